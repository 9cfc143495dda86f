"""Persistent maps and vectors behave like dictionaries and tuples, and a change copies little."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metadata.persistent import CHUNK_LENGTH, PersistentMap, PersistentVector

COPIED_BYTES_MAX = 8_000
"""Maximum size of the copies that one change makes, with 10 and with 10,000 entries."""


class SameBucket(int):
    """A key with the same hash as all other keys of this class."""

    def __hash__(self) -> int:
        return 0


Change = tuple[dict[int, int], list[int]]
changes = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 300), st.integers(), max_size=200),
        st.lists(st.integers(0, 300), max_size=100),
    ),
    max_size=8,
)


@pytest.mark.parametrize("key_type", [int, str, SameBucket])
def test_map_equals_a_dictionary_after_any_changes(key_type: Callable[[int], object]) -> None:
    @given(changes)
    def check(steps: list[Change]) -> None:
        expected: dict[object, int] = {}
        found: PersistentMap[object, int] = PersistentMap()
        versions = []
        for changed, removed in steps:
            for key in map(key_type, removed):
                expected.pop(key, None)
            expected.update({key_type(key): value for key, value in changed.items()})
            found = found.with_changes(
                {key_type(key): value for key, value in changed.items()}, map(key_type, removed)
            )
            versions.append((found, dict(expected)))
        for version, contents in versions:  # later changes leave earlier versions as they were
            assert version == contents
            assert contents == version
            assert len(version) == len(contents)
            assert list(version) == sorted(contents)  # type: ignore[type-var]
            assert list(version.items()) == sorted(contents.items())  # type: ignore[type-var]
            for key in map(key_type, range(0, 301, 7)):
                assert version.get(key) == contents.get(key)
                assert (key in version) == (key in contents)

    check()


def test_missing_key_of_a_map() -> None:
    it = PersistentMap({"a": 1})
    assert it.get("b") is None
    assert it.get("b", 7) == 7
    with pytest.raises(KeyError):
        it["b"]


@given(st.dictionaries(st.integers(), st.integers(), max_size=300))
def test_equality_does_not_depend_on_the_order_of_changes(entries: dict[int, int]) -> None:
    whole = PersistentMap(entries)
    grown: PersistentMap[int, int] = PersistentMap()
    for key in reversed(entries):
        grown = grown.with_changes({key: entries[key]})
    shrunk = PersistentMap({**entries, **dict.fromkeys(range(2000), 0)})
    shrunk = shrunk.with_changes(entries, [key for key in range(2000) if key not in entries])
    assert whole == grown == shrunk
    assert list(whole) == list(grown) == list(shrunk)
    assert whole.with_changes({-1: 1}) != whole.with_changes({-1: 2})


def test_keys_with_none_are_sorted_before_texts() -> None:
    keys = [(("user", "b"),), (("user", None),), (("client-id", "c"), ("user", None))]
    assert list(PersistentMap(dict.fromkeys(keys, 1))) == [keys[2], keys[1], keys[0]]


@given(
    st.integers(0, 3 * CHUNK_LENGTH),
    st.lists(st.dictionaries(st.integers(0, 4 * CHUNK_LENGTH), st.integers(), max_size=20)),
)
def test_vector_equals_a_tuple_after_any_changes(length: int, steps: list[dict[int, int]]) -> None:
    expected = list(range(length))
    found = PersistentVector(expected)
    for changed in steps:
        gapless = {}
        for at in sorted(changed):
            at = min(at, len(expected))
            gapless[at] = changed.get(at, 0)
            expected[at : at + 1] = [gapless[at]]
        before = tuple(found)
        new = found.with_changes(gapless)
        assert tuple(found) == before
        found = new
    assert found == tuple(expected)
    assert found == PersistentVector(expected)
    assert hash(found) == hash(PersistentVector(expected))
    assert len(found) == len(expected)
    assert [found[at] for at in range(-len(expected), len(expected))] == expected * 2
    assert found[3:70] == tuple(expected)[3:70]
    with pytest.raises(IndexError):
        found[len(expected)]


def test_a_change_of_a_vector_that_leaves_a_gap_is_refused() -> None:
    with pytest.raises(IndexError):
        PersistentVector([1]).with_changes({2: 3})


def allocated(change: Callable[[], object]) -> int:
    """Return the number of bytes that a change allocates."""
    change()
    tracemalloc.start()
    try:
        kept = change()
        return tracemalloc.get_traced_memory()[1] + 0 * id(kept)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [10, 10_000])
def test_a_change_copies_little(length: int) -> None:
    vector = PersistentVector(range(length))
    assert allocated(lambda: vector.with_changes({5: 0})) < COPIED_BYTES_MAX
    by_number = PersistentMap(dict.fromkeys(range(length), 1))
    assert allocated(lambda: by_number.with_changes({5: 0})) < COPIED_BYTES_MAX
    by_text = PersistentMap({str(number): number for number in range(length)})
    assert allocated(lambda: by_text.with_changes({"5": 0})) < COPIED_BYTES_MAX


def test_iteration_after_a_change_of_values_does_not_sort_again() -> None:
    compared = 0

    class Key(str):
        def __lt__(self, other: str) -> bool:
            nonlocal compared
            compared += 1
            return str.__lt__(self, other)

    keys = [Key(number) for number in range(100)]
    it: PersistentMap[Key, int] = PersistentMap(dict.fromkeys(keys, 1))
    assert len(list(it)) == 100
    assert compared
    compared = 0
    changed = it.with_changes({keys[5]: 2})
    assert list(changed) == list(it)
    assert compared == 0
