"""Tests of the sizes of the controller's writes. Those of its fences: test_store_operations.py."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.metadata_writer import OPERATIONS_PER_WRITE_MAX, MetadataWriter
from odradek.ids import TopicName
from odradek.metadata import znodes
from odradek.metadata.store.interface import Check, Delete, Operation, Set, operations_bytes

UNFINISHED = [TopicName("unfinished")]


def writer(limit: int | None) -> MetadataWriter:
    store = SimpleNamespace(multi_bytes_max=limit)
    return MetadataWriter(store, 5, 3, 9)  # type: ignore[arg-type]


def deletes(count: int, length: int = 10) -> list[Operation]:
    return [Delete("/" + "x" * length)] * count


OVERHEAD = writer(None).overhead_bytes()
SIZE = operations_bytes(deletes(1))


def test_overhead_of_a_write_is_its_fence_and_the_largest_position() -> None:
    position = znodes.encode_position(5, 2**63 - 1, UNFINISHED)
    fixed: list[Operation] = [Check(znodes.CONTROLLER_EPOCH, 3), Set(znodes.METADATA, position, 9)]
    assert 0 <= writer(None).overhead_bytes(UNFINISHED) - operations_bytes(fixed) < 20
    assert writer(None).overhead_bytes(UNFINISHED) > OVERHEAD


@pytest.mark.parametrize(
    ("count", "room", "parts"),
    [
        (0, SIZE, 1),
        (1, SIZE, 1),
        (2, 2 * SIZE, 1),
        (2, 2 * SIZE - 1, 2),
        (3, 2 * SIZE, 2),
        (OPERATIONS_PER_WRITE_MAX, 10**9, 1),
        (OPERATIONS_PER_WRITE_MAX + 1, 10**9, 2),
        (2 * OPERATIONS_PER_WRITE_MAX, 10**9, 2),
        (2 * OPERATIONS_PER_WRITE_MAX + 1, 10**9, 3),
        (2 * OPERATIONS_PER_WRITE_MAX + 1, None, 1),
    ],
)
def test_operations_above_a_limit_need_further_writes(
    count: int, room: int | None, parts: int
) -> None:
    """None is a store without a limit, which takes any change in one write."""
    limit = None if room is None else OVERHEAD + room
    assert writer(limit).parts(deletes(count)) == parts


def test_names_of_unfinished_topics_count_for_the_size_of_a_write() -> None:
    assert writer(OVERHEAD + 2 * SIZE).parts(deletes(2), UNFINISHED) == 2


@given(
    st.lists(st.tuples(st.integers(0, OPERATIONS_PER_WRITE_MAX), st.integers(1, 200)), max_size=12),
    st.none() | st.integers(1, 300_000),
)
def test_groups_are_combined_into_the_fewest_writes_in_order(
    shapes: Sequence[tuple[int, int]], room: int | None
) -> None:
    groups = [deletes(count, length) for count, length in shapes]
    limit = None if room is None else OVERHEAD + room
    writes = list(writer(limit).combined(groups))
    expected: list[list[Operation]] = [[]]
    for group in groups:
        both = expected[-1] + group
        fits = room is None or operations_bytes(both) <= room
        if fits and len(both) <= OPERATIONS_PER_WRITE_MAX:
            expected[-1] = both
        elif expected[-1]:
            expected.append(group)
        else:
            expected[-1] = group
    assert writes == expected
