"""Random Avro schemas with values in Avro's JSON encoding, for hypothesis.

Each schema comes with a strategy of pairs: the JSON value, and the value that fastavro reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

DEPTH_MAX = 3


@dataclass(frozen=True)
class AvroData:
    """A schema, the name of its branch in a union, and values (JSON, fastavro)."""

    schema: Any
    branch: str
    values: st.SearchStrategy[tuple[Any, Any]]


def _same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return values.map(lambda value: (value, value))


def _bytes(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[tuple[str, bytes]]:
    return values.map(lambda value: (value.decode("latin-1"), value))


PRIMITIVES = [
    AvroData("null", "null", st.just((None, None))),
    AvroData("boolean", "boolean", _same(st.booleans())),
    AvroData("int", "int", _same(st.integers(-(2**31), 2**31 - 1))),
    AvroData("long", "long", _same(st.integers(-(2**63), 2**63 - 1))),
    AvroData("double", "double", _same(st.floats(allow_nan=False, allow_infinity=False))),
    AvroData("string", "string", _same(st.text(max_size=8))),
    AvroData("bytes", "bytes", _bytes(st.binary(max_size=8))),
]


@st.composite
def schemas(draw: st.DrawFn, depth: int = DEPTH_MAX) -> AvroData:
    """A schema in which all names differ, with its values."""
    counter = iter(range(1000))
    return draw(_schema(depth, lambda: f"ns.N{next(counter)}"))


def _schema(depth: int, name: Callable[[], str]) -> st.SearchStrategy[AvroData]:
    leaves = st.sampled_from(PRIMITIVES) | st.builds(_fixed, st.just(name), st.integers(1, 5))
    if depth == 0:
        return leaves | st.builds(_enum, st.just(name))
    below = _schema(depth - 1, name)
    return st.one_of(
        leaves,
        below.map(_array),
        below.map(_map),
        st.lists(below, max_size=3).map(lambda fields: _record(name, fields)),
        st.lists(below, min_size=1, max_size=4).map(_union),
    )


def _fixed(name: Callable[[], str], size: int) -> AvroData:
    full = name()
    schema = {"type": "fixed", "name": full, "size": size}
    return AvroData(schema, full, _bytes(st.binary(min_size=size, max_size=size)))


def _enum(name: Callable[[], str]) -> AvroData:
    full, symbols = name(), ["A", "B", "C"]
    schema = {"type": "enum", "name": full, "symbols": symbols}
    return AvroData(schema, full, _same(st.sampled_from(symbols)))


def _array(items: AvroData) -> AvroData:
    values = st.lists(items.values, max_size=3).map(
        lambda pairs: ([json for json, _ in pairs], [plain for _, plain in pairs])
    )
    return AvroData({"type": "array", "items": items.schema}, "array", values)


def _map(items: AvroData) -> AvroData:
    values = st.dictionaries(st.text(max_size=4), items.values, max_size=3).map(
        lambda pairs: (
            {key: json for key, (json, _) in pairs.items()},
            {key: plain for key, (_, plain) in pairs.items()},
        )
    )
    return AvroData({"type": "map", "values": items.schema}, "map", values)


def _record(name: Callable[[], str], fields: list[AvroData]) -> AvroData:
    full = name()
    listed = [{"name": f"f{n}", "type": each.schema} for n, each in enumerate(fields)]
    values = st.tuples(*(each.values for each in fields)).map(
        lambda pairs: (
            {f"f{n}": json for n, (json, _) in enumerate(pairs)},
            {f"f{n}": plain for n, (_, plain) in enumerate(pairs)},
        )
    )
    return AvroData({"type": "record", "name": full, "fields": listed}, full, values)


def _union(candidates: list[AvroData]) -> AvroData:
    """A union without the candidates that Avro would refuse in it."""
    branches = {each.branch: each for each in candidates if each.branch != "union"}
    if not branches:
        return candidates[0]
    values = st.one_of(*(_tagged(each) for each in branches.values()))
    return AvroData([each.schema for each in branches.values()], "union", values)


def _tagged(branch: AvroData) -> st.SearchStrategy[tuple[Any, Any]]:
    if branch.branch == "null":
        return branch.values
    return branch.values.map(lambda pair: ({branch.branch: pair[0]}, pair[1]))
