"""Dependencies between transactions, and their cycles (Adya's G0, G1c, G-single, G2; G1b).

There are three kinds of edges from T1 to T2:

- ww: T1 wrote a value and T2 wrote the next value in the key's order.
- wr: T1 wrote a value that T2 read.
- rw: T2 wrote the value after the last value of the key that T1 read.

Only operations that took effect are nodes. Kafka does not isolate writes, so G0, and G1c through
ww, are normal. The polls of a transaction are not a snapshot, so G-single and G2 are normal. A
cycle of wr edges alone is an error: with read_committed, each value was committed before it is
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from conformance.histories.checks import Anomaly
from conformance.histories.facts import Facts, took_effect
from conformance.histories.history import OK, READ_COMMITTED, Op

Graph = dict[int, set[int]]

NO_WRITE_ISOLATION = "Kafka does not isolate writes"
NO_SNAPSHOT = "the polls of a transaction are no snapshot"
PARTLY_POLLED = "a poll may end inside of what a transaction wrote"


def strongly_connected(graph: Graph) -> list[list[int]]:
    """Return the components of more than one node, by Tarjan's algorithm without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, children = work[-1]
            child = next(children, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_pop_component(stack, on_stack, node))
            elif child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                on_stack.add(child)
                work.append((child, iter(sorted(graph.get(child, ())))))
            elif child in on_stack:
                low[node] = min(low[node], index[child])
    return [component for component in found if len(component) > 1]


def _pop_component(stack: list[int], on_stack: set[int], node: int) -> list[int]:
    component = []
    while True:
        top = stack.pop()
        on_stack.discard(top)
        component.append(top)
        if top == node:
            return component


def path(graph: Graph, start: int, goal: int, within: set[int]) -> list[int] | None:
    """Return a shortest path of at least one edge inside `within`, with both ends."""
    came: dict[int, int] = {}
    level = [start]
    while level:
        following = []
        for node in level:
            for child in sorted(graph.get(node, set()) & within):
                if child == goal:
                    way = [goal, node]
                    while way[-1] != start:
                        way.append(came[way[-1]])
                    return way[::-1]
                if child not in came and child != start:
                    came[child] = node
                    following.append(child)
        level = following
    return None


def cycles(facts: Facts) -> Iterator[Anomaly]:
    """Yield one anomaly for each component, with its shortest cycle."""
    ops = [op for op in facts.history.ops if _is_node(facts, op)]
    number = {id(op): op_index for op_index, op in enumerate(ops)}
    ww, wr, rw = _edges(facts, ops, number)
    yield from _closed(ops, "G1c", wr, wr, "")
    yield from _closed(ops, "G0", ww, ww, NO_WRITE_ISOLATION)
    yield from _closed(ops, "G1c-ww", wr, _union(ww, wr), NO_WRITE_ISOLATION, _closed_nodes(wr))
    yield from _anti_dependencies(ops, _union(ww, wr), rw)
    yield from _intermediate_reads(facts, ops)


def _is_node(facts: Facts, op: Op) -> bool:
    if op.f == "send":
        return any(send.status == OK for send in op.sends)
    return op.f in ("txn", "poll") and op.isolation == READ_COMMITTED and took_effect(facts, op)


def _edges(facts: Facts, ops: list[Op], number: dict[int, int]) -> tuple[Graph, Graph, Graph]:
    ww: Graph = {}
    wr: Graph = {}
    rw: Graph = {}

    def writer(key: int, value: int) -> int | None:
        pair = facts.writer.get((key, value))
        return None if pair is None else number.get(id(pair[0]))

    for key, log in facts.logs.items():
        for before, after in zip(log.order, log.order[1:], strict=False):
            _link(ww, writer(key, before), writer(key, after))
    for op_index, op in enumerate(ops):
        last: dict[int, int] = {}
        for read in op.reads:
            _link(wr, writer(read.key, read.value), op_index)
            found = facts.logs[read.key].index_from(read.offset)
            last[read.key] = max(found, last.get(read.key, -1))
        for key, index in last.items():
            order = facts.logs[key].order
            if index < len(order) - 1:
                _link(rw, op_index, writer(key, order[index + 1]))
    return ww, wr, rw


def _link(graph: Graph, start: int | None, end: int | None) -> None:
    if start is not None and end is not None and start != end:
        graph.setdefault(start, set()).add(end)


def _union(one: Graph, other: Graph) -> Graph:
    return {node: one.get(node, set()) | other.get(node, set()) for node in one.keys() | other}


def _closed_nodes(graph: Graph) -> set[int]:
    return {node for component in strongly_connected(graph) for node in component}


def _closed(
    ops: list[Op],
    kind: str,
    through: Graph,
    graph: Graph,
    allowed: str,
    without: Iterable[int] = (),
) -> Iterator[Anomaly]:
    """Return a cycle of `graph` with an edge of `through` for each component that has one."""
    known = set(without)
    for component in strongly_connected(graph):
        nodes = set(component)
        if nodes & known:
            continue
        for start in sorted(nodes):
            way = next(_ways_back(through, graph, start, nodes), None)
            if way is not None:
                yield Anomaly(kind, allowed, {"ops": [ops[node].name for node in way]})
                break


def _ways_back(through: Graph, graph: Graph, start: int, nodes: set[int]) -> Iterator[list[int]]:
    for end in sorted(through.get(start, set()) & nodes):
        way = path(graph, end, start, nodes)
        if way is not None:
            yield [start, *way]


def _anti_dependencies(ops: list[Op], plain: Graph, rw: Graph) -> Iterator[Anomaly]:
    """G-single: a cycle with one rw edge; G2: components that need more than one."""
    whole = _union(plain, rw)
    for component in strongly_connected(whole):
        nodes = set(component)
        single = None
        for start in sorted(nodes & rw.keys()):
            single = next(_ways_back(rw, plain, start, nodes), None)
            if single:
                break
        if single is not None:
            yield Anomaly("G-single", NO_SNAPSHOT, {"ops": [ops[n].name for n in single]})
        elif not any(len(part) > 1 for part in strongly_connected(_within(plain, nodes))):
            names = [ops[n].name for n in sorted(nodes)[:10]]
            yield Anomaly("G2", NO_SNAPSHOT, {"ops": names})


def _within(graph: Graph, nodes: set[int]) -> Graph:
    return {node: graph.get(node, set()) & nodes for node in nodes}


def _intermediate_reads(facts: Facts, ops: list[Op]) -> Iterator[Anomaly]:
    """G1b: an operation's last read of a key is not the last value that the writer wrote to it."""
    for op in ops:
        last = {read.key: read.value for read in op.reads}
        for key, value in last.items():
            pair = facts.writer.get((key, value))
            if pair is None or pair[0].f != "txn" or pair[0] is op:
                continue
            final = [send.value for send in pair[0].sends if send.key == key][-1]
            if final != value:
                detail = {"key": key, "value": value, "writer": pair[0].name, "reader": op.name}
                yield Anomaly("G1b", PARTLY_POLLED, detail)
