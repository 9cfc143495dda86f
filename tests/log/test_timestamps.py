"""Offsets for timestamps, exact to the record, compared with a list."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.records.batch import Compression, write_crc
from tests.log.builders import (
    NOW_MS,
    append,
    batch_of,
    offset_for_timestamp,
    offset_of_max_timestamp,
    open_log,
    open_manager,
)

stamps = st.lists(
    st.lists(st.integers(NOW_MS - 30, NOW_MS), min_size=1, max_size=4), min_size=1, max_size=25
)


@given(batches=stamps, codec=st.sampled_from(list(Compression)), start=st.integers(0, 10))
def test_first_record_at_or_after_the_timestamp_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[int]],
    codec: Compression,
    start: int,
) -> None:
    config = LogConfig(segment_bytes=700, index_interval_bytes=100)
    manager = open_manager(tmp_path_factory.mktemp("log"), config)
    log = open_log(manager)
    written: list[int] = []
    for timestamps in batches:
        values = [b"x" * 20] * len(timestamps)
        batch = batch_of(values, timestamps=timestamps, compression=codec)
        log.append_as_leader(memoryview(batch), 4, now_ms=NOW_MS)
        written += timestamps
    log.advance_high_watermark(log.log_end_offset)
    start = min(start, len(written))
    log.delete_records(start)
    visible = [(stamp, at) for at, stamp in enumerate(written) if at >= start]
    for target in range(NOW_MS - 31, NOW_MS + 2):
        expected = next(((s, at) for s, at in visible if s >= target), None)
        found = offset_for_timestamp(log, target)
        assert (found[:2] if found else None) == expected
        assert found is None or found.leader_epoch == 4
    latest = offset_of_max_timestamp(log)
    largest = max((stamp for stamp, _ in visible), default=None)
    expected = next(((s, at) for s, at in visible if s == largest), None)
    assert (latest[:2] if latest else None) == expected
    manager.close(clean=False)


def test_log_without_records_has_no_offset_for_any_timestamp(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None
    manager.close()


def test_batch_that_cannot_be_unpacked_is_represented_by_its_header(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    append(log, [b"x"], timestamp_ms=NOW_MS - 10)
    lying = batch_of([b"y" * 100], timestamp_ms=NOW_MS, compression=Compression.ZSTD)
    lying[61:] = b"\xff" * (len(lying) - 61)
    write_crc(lying)
    log.append_as_leader(memoryview(lying), 0, now_ms=NOW_MS)
    found = offset_for_timestamp(log, NOW_MS)
    assert found is not None and found[:2] == (NOW_MS, 1)
    assert offset_of_max_timestamp(log) == found
    manager.close()
