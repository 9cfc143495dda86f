"""Components and shortest cycles, against the definition."""

from __future__ import annotations

from itertools import pairwise

from conformance.histories.graphs import Graph, path, strongly_connected
from hypothesis import given
from hypothesis import strategies as st

NODES = st.integers(0, 9)
GRAPHS = st.lists(st.tuples(NODES, NODES), max_size=30).map(
    lambda edges: _graph([edge for edge in edges if edge[0] != edge[1]])
)


def _graph(edges: list[tuple[int, int]]) -> Graph:
    graph: Graph = {}
    for start, end in edges:
        graph.setdefault(start, set()).add(end)
    return graph


def _reaches(graph: Graph, start: int) -> set[int]:
    found: set[int] = set()
    todo = [start]
    while todo:
        for child in graph.get(todo.pop(), set()) - found:
            found.add(child)
            todo.append(child)
    return found


@given(GRAPHS)
def test_components_are_the_sets_of_nodes_that_reach_each_other(graph: Graph) -> None:
    reach = {node: _reaches(graph, node) for node in range(10)}
    expected = {
        frozenset(other for other in range(10) if other in reach[node] and node in reach[other])
        for node in range(10)
    }
    found = {frozenset(component) for component in strongly_connected(graph)}
    assert found == {component for component in expected if len(component) > 1}


@given(GRAPHS, NODES, NODES)
def test_a_path_is_there_exactly_when_the_goal_is_reached(
    graph: Graph, start: int, goal: int
) -> None:
    way = path(graph, start, goal, set(range(10)))
    assert (way is not None) == (goal in _reaches(graph, start))
    if way is not None:
        assert (way[0], way[-1]) == (start, goal)
        assert all(b in graph[a] for a, b in pairwise(way))


def test_a_deep_graph_needs_no_recursion() -> None:
    ring = {node: {(node + 1) % 50_000} for node in range(50_000)}
    assert [len(component) for component in strongly_connected(ring)] == [50_000]
