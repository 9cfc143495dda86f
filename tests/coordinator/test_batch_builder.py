"""Batches of coordinators have the bytes of `build_batch`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.batch_builder import Pair, build_coordinator_batch
from odradek.coordinator.encoded_records import EncodedRecords
from odradek.records.batch import Compression
from odradek.records.record import Record, build_batch

# Sizes around the limits of varints of one and two bytes, and of the table.
SIZES = (0, 1, 63, 64, 127, 128, 255, 256, 8191, 8192)
sized = st.sampled_from(SIZES).map(bytes) | st.binary(max_size=40)
lists = st.lists(st.tuples(sized, st.none() | sized), min_size=1, max_size=12)


@given(
    pairs=lists,
    timestamp_ms=st.integers(0, 2**45),
    compression=st.sampled_from(Compression),
    producer=st.none() | st.tuples(st.integers(0, 2**62), st.integers(0, 2**15 - 1)),
)
def test_batch_has_the_bytes_of_the_general_builder(
    pairs: list[Pair],
    timestamp_ms: int,
    compression: Compression,
    producer: tuple[int, int] | None,
) -> None:
    producer_id, producer_epoch = producer or (-1, -1)
    expected = build_batch(
        [Record(key, value) for key, value in pairs],
        timestamp_ms=timestamp_ms,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=producer is not None,
    )
    found = build_coordinator_batch(
        pairs, timestamp_ms, compression, producer_id, producer_epoch, producer is not None
    )
    assert found == expected
    assert isinstance(found, bytearray), "the log writes offset and epoch into it"
    in_pieces = EncodedRecords()
    for first in range(0, len(pairs), 5):
        in_pieces.add(pairs[first : first + 5])
    assert expected == build_coordinator_batch(
        in_pieces, timestamp_ms, compression, producer_id, producer_epoch, producer is not None
    )


def test_more_records_than_the_table_has_varints() -> None:
    pairs: list[Pair] = [(b"%d" % number, b"v") for number in range(1_000)]
    records = [Record(key, value) for key, value in pairs]
    assert build_coordinator_batch(pairs, 5) == build_batch(records, timestamp_ms=5)


def test_batch_has_at_least_one_record() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_coordinator_batch([], 0)
