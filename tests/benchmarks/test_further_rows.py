"""The pure parts of the rows beyond the first table."""

from __future__ import annotations

from benchmarks.further_rows import batches_in_time, cleaned_offset, rate_and_cpu
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.batch import crc_is_valid
from odradek.records.record import iter_records


def test_a_million_records_are_the_unit_of_cpu() -> None:
    found = rate_and_cpu({"records": 500_000, "seconds": 2.0, "cpu_s": 3.0})
    assert found == {"rate": 250_000.0, "cpu_s": 6.0}


@given(st.integers(0, 200), st.integers(0, 1 << 42), st.integers(1, 20))
def test_prefilled_records_are_one_millisecond_apart(
    records: int, first_ms: int, batch_records: int
) -> None:
    stamps = []
    for batch in batches_in_time(records, first_ms, batch_records):
        assert crc_is_valid(memoryview(batch))
        stamps += [record.timestamp for record in iter_records(batch)]
    whole = records - records % batch_records
    assert stamps == list(range(first_ms, first_ms + whole))


def test_the_cleaned_offset_is_that_of_partition_0_of_the_topic() -> None:
    checkpoint = "0\n3\nother 0 11\ntopic 1 12\ntopic 0 13\n"
    assert cleaned_offset(checkpoint, "topic") == 13
    assert cleaned_offset(checkpoint, "topi") == 0
    assert cleaned_offset("", "topic") == 0
