"""The map from keys to newest offsets, compared with a dictionary, and its memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.log.cleaner.offset_map import SLOT_BYTES, OffsetMap
from odradek.log.cleaner.record_spans import RecordSpan

keys = st.one_of(st.none(), st.integers(0, 30).map(lambda n: b"%d" % n))


def spans(given_keys: list[bytes | None]) -> list[RecordSpan]:
    return [(0, 0, 0, at, key, True) for at, key in enumerate(given_keys)]


@given(st.lists(keys, max_size=80), st.integers(3, 40), st.integers(0, 2**40))
def test_the_map_equals_a_dictionary_until_it_is_full(
    given_keys: list[bytes | None], slots: int, first: int
) -> None:
    offset_map = OffsetMap(first, slots * SLOT_BYTES, 0.9, len(given_keys))
    records = spans(given_keys)
    whole = offset_map.put_records(records, first)
    end = len(records) if whole else offset_map.latest_offset + 1 - first
    newest = {key: at for at, key in enumerate(given_keys[:end]) if key is not None}
    assert len(offset_map) == len(newest) <= offset_map.keys_max
    kept = {record[3] for record in offset_map.newest(records, first)}
    last = offset_map.latest_offset - first
    assert kept == set(newest.values()) | set(range(last + 1, len(records)))
    if not whole:
        assert len(newest) == offset_map.keys_max


def test_records_before_the_first_offset_are_skipped() -> None:
    offset_map = OffsetMap(10, 1 << 16, 0.9, 100)
    assert offset_map.put_records(spans([b"a", b"b"]), 9)
    assert len(offset_map) == 1
    assert offset_map.latest_offset == 10


def test_memory_follows_the_number_of_keys_up_to_the_budget() -> None:
    assert OffsetMap(0, 128 << 20, 0.9, 100).slots < 200
    slots = OffsetMap(0, 1 << 20, 0.9, 10**9).slots
    assert 0.99 * (1 << 20) < slots * SLOT_BYTES <= 1 << 20


def test_a_nearly_full_map_finds_every_key_and_no_other() -> None:
    many = [b"key-%d" % number for number in range(20_000)]
    offset_map = OffsetMap(0, 20_500 * SLOT_BYTES, 0.99, 10**6)
    assert offset_map.put_records(spans(many), 0)
    assert offset_map.utilization > 0.97
    assert len(offset_map.newest(spans(many), 0)) == len(many)
    others = [b"other-%d" % number for number in range(2_000)]
    assert len(offset_map.newest(spans(others), 0)) == len(others)
    assert not offset_map.newest(spans(many[:-1][::-1][:1]), -1), "older than what is known"
