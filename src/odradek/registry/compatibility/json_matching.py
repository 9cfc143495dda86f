"""The assignment of the writer's subschemas to the reader's: a maximum matching. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def maximum_matching(edges: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return a largest set of edges without a common end, by augmenting paths.

    The time is proportional to the number of vertices times the number of edges.

    Args:
        edges: The right vertices that each left vertex may be assigned to, preferred ones first.

    Returns:
        The right vertex of each assigned left vertex.
    """
    left_of: dict[int, int] = {}
    for start in edges:
        _augment(start, edges, left_of)
    return {left: right for right, left in left_of.items()}


def _augment(start: int, edges: Mapping[int, Sequence[int]], left_of: dict[int, int]) -> None:
    """Assign one more left vertex, if a path to a free right vertex exists (breadth first)."""
    reached_from: dict[int, int] = {}
    pending = [start]
    for left in pending:
        for right in edges.get(left, ()):
            if right in reached_from:
                continue
            reached_from[right] = left
            if right in left_of:
                pending.append(left_of[right])
                continue
            _flip(right, start, reached_from, left_of)
            return


def _flip(free: int, start: int, reached_from: Mapping[int, int], left_of: dict[int, int]) -> None:
    """Reassign the right vertices on the path from the free one back to the start."""
    right_of = {left: right for right, left in left_of.items()}
    right: int | None = free
    while right is not None:
        left = reached_from[right]
        previous = None if left == start else right_of[left]
        left_of[right] = left
        right = previous
