"""The queue of operations that wait for an offset, compared with a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.replication.offset_queue import REMOVED_ENTRIES_MAX, OffsetQueue
from tests.helpers.call_count import count_calls

OFFSETS = st.integers(0, 5)


class Operation:
    """An operation, which cannot be compared with others."""


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), OFFSETS),
            st.tuples(st.just("add"), OFFSETS),
            st.tuples(st.just("remove"), st.integers(0, 30)),
            st.tuples(st.just("take"), OFFSETS),
            st.tuples(st.just("remove all"), st.none()),
        ),
        max_size=60,
    )
)
def test_operations_are_taken_in_the_order_of_their_offsets(
    steps: list[tuple[str, int]],
) -> None:
    queue: OffsetQueue[Operation] = OffsetQueue()
    model: list[tuple[int, int, Operation]] = []
    added: list[Operation] = []
    for name, argument in steps:
        if name == "add":
            operation = Operation()
            model.append((argument, len(added), operation))
            added.append(operation)
            queue.add(operation, argument)
        elif name == "remove" and argument < len(added):
            model = [each for each in model if each[2] is not added[argument]]
            queue.remove(added[argument])
        elif name == "take":
            first = min(model, default=None)
            expected = None
            if first is not None and first[0] <= argument:
                model.remove(first)
                expected = first[2]
            assert queue.first_up_to(argument) is expected
        elif name == "remove all":
            assert queue.remove_all() == [operation for _, _, operation in sorted(model)]
            model.clear()
        assert len(queue) == len(model)


@pytest.mark.parametrize("waiting", [10, 1_000])
def test_cost_of_a_removal_does_not_depend_on_the_operations_that_wait(waiting: int) -> None:
    queue: OffsetQueue[Operation] = OffsetQueue()
    operations = [Operation() for _ in range(waiting)]
    for offset, operation in enumerate(operations):
        queue.add(operation, offset)
    assert count_calls(queue.remove, operations[waiting // 2]).total <= 4


@pytest.mark.parametrize("kept", [0, 1_000])
def test_removed_operations_do_not_accumulate(kept: int) -> None:
    queue: OffsetQueue[Operation] = OffsetQueue()
    for offset in range(kept):
        queue.add(Operation(), offset)
    for _ in range(10_000):
        operation = Operation()
        queue.add(operation, 1 << 40)
        queue.remove(operation)
    assert len(queue) == kept
    assert len(queue._heap) <= 2 * kept + REMOVED_ENTRIES_MAX
