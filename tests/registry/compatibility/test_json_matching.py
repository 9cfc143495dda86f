"""The maximum matching of subschemas."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.compatibility.json_matching import maximum_matching

graphs = st.dictionaries(
    st.integers(0, 4), st.lists(st.integers(0, 4), max_size=5, unique=True), max_size=5
)


def largest(edges: dict[int, list[int]]) -> int:
    """Return the size of a maximum matching, by trying all assignments."""
    lefts = sorted(edges)
    return max(
        sum(right in edges[left] for left, right in zip(lefts, rights, strict=False))
        for rights in permutations(range(5), len(lefts))
    )


@given(graphs)
def test_matching_is_as_large_as_possible(edges: dict[int, list[int]]) -> None:
    matching = maximum_matching(edges)
    assert all(right in edges[left] for left, right in matching.items())
    assert len(set(matching.values())) == len(matching)
    assert len(matching) == largest(edges)


def test_first_edge_is_preferred() -> None:
    assert maximum_matching({0: [0, 1], 1: [1, 0]}) == {0: 0, 1: 1}
    assert maximum_matching({0: [1, 0], 1: [0, 1]}) == {0: 1, 1: 0}


def test_assigned_vertex_is_reassigned_if_needed() -> None:
    assert maximum_matching({0: [0, 1], 1: [0]}) == {0: 1, 1: 0}
    assert maximum_matching({0: [0, 1], 1: [1, 2], 2: [0]}) == {0: 1, 1: 2, 2: 0}
