"""Random pairs of Avro schemas for the comparison of verdicts: near misses, made by mutation."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

Node: TypeAlias = Any
"""A part of a schema's JSON."""

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
NAMES = [f"Type{number}" for number in range(40)]
FIELDS = ["id", "name", "size", "tags", "next", "kind", "price", "note"]
SYMBOLS = ["RED", "GREEN", "BLUE", "BLACK", "WHITE"]
SPACES = ["shop", "shop.items"]
LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "int", "logicalType": "unknown"},
]
DEPTH_MAX = 4
TYPES_MAX = 12


@dataclass(frozen=True, slots=True)
class AvroPair:
    """The texts of two schemas. Mutations leave a few of them invalid."""

    reader: str
    writer: str


def avro_pairs(random: Random, count: int) -> Iterator[AvroPair]:
    """Yield pairs: half have one mutated schema, the others two, none, or unrelated ones."""
    for _ in range(count):
        first = SchemaMaker(random).schema()
        chance = random.random()
        if chance < 0.5:
            second = mutated(random, first)
        elif chance < 0.75:
            first, second = mutated(random, first), mutated(random, first)
        elif chance < 0.95:
            second = SchemaMaker(random).schema()
        else:
            second = copy.deepcopy(first)
        reader, writer = random.sample([first, second], 2)
        yield AvroPair(json.dumps(reader), json.dumps(writer))


@dataclass(frozen=True, slots=True)
class _Known:
    """A named type that the text has defined, or has begun to define."""

    name: str
    space: str | None

    def reference(self, random: Random, space: str | None) -> str:
        """A name that means this type in a namespace."""
        if self.space is None:
            return self.name
        if self.space == space and random.random() < 0.5:
            return self.name
        return f"{self.space}.{self.name}"


class SchemaMaker:
    """Makes one random schema. Names of types are used once."""

    def __init__(self, random: Random) -> None:
        self._random = random
        # Few names, so that unrelated schemas have types of the same names.
        self._names = random.sample(NAMES[:12], 12) + NAMES[12:]
        self._known: dict[str, _Known] = {}

    def schema(self) -> Node:
        """Return the JSON of a schema."""
        if self._random.random() < 0.75:
            return self._record(None, 0)
        return self.type(None, 0, in_union=False)

    def type(self, space: str | None, depth: int, *, in_union: bool) -> Node:
        """Return the JSON of a type in a namespace."""
        make = self._random.choices(
            [self._primitive, self._used, self._record, self._enum, self._fixed, self._collection],
            [10, 3, 3, 2, 2, 3],
        )[0]
        is_full = depth >= DEPTH_MAX or len(self._known) >= TYPES_MAX
        if is_full:
            make = self._random.choice([self._primitive, self._used])
        if not in_union and not is_full and self._random.random() < 0.2:
            make = self._union
        return make(space, depth)

    def _primitive(self, space: str | None, depth: int) -> Node:
        if self._random.random() < 0.1:
            return dict(self._random.choice(LOGICAL))
        name = self._random.choice(PRIMITIVES)
        return {"type": name} if self._random.random() < 0.1 else name

    def _used(self, space: str | None, depth: int) -> Node:
        names = [known.reference(self._random, space) for known in self._known.values()]
        return self._random.choice(names) if names else self._primitive(space, depth)

    def _collection(self, space: str | None, depth: int) -> Node:
        part = self.type(space, depth + 1, in_union=False)
        if self._random.random() < 0.6:
            return {"type": "array", "items": part}
        return {"type": "map", "values": part}

    def _union(self, space: str | None, depth: int) -> Node:
        branches: dict[str, Node] = {}
        for _ in range(self._random.randint(1, 4)):
            branch = self.type(space, depth + 1, in_union=True)
            branches.setdefault(_branch_name(branch), branch)
        return list(branches.values())

    def _enum(self, space: str | None, depth: int) -> Node:
        symbols = self._random.sample(SYMBOLS, self._random.randint(1, 4))
        node, _ = self._named("enum", space)
        node["symbols"] = symbols
        if self._random.random() < 0.3:
            node["default"] = self._random.choice(symbols)
        return node

    def _fixed(self, space: str | None, depth: int) -> Node:
        node, _ = self._named("fixed", space)
        node["size"] = self._random.choice([4, 8, 16])
        return node

    def _record(self, space: str | None, depth: int) -> Node:
        node, inner = self._named("record", space)
        node["fields"] = [
            self.field(name, inner, depth)
            for name in self._random.sample(FIELDS, self._random.randint(0, 4))
        ]
        return node

    def field(self, name: str, space: str | None, depth: int) -> Node:
        """Return the JSON of a field."""
        node = {"name": name, "type": self.type(space, depth + 1, in_union=False)}
        value = default_of(node["type"])
        if value is not _NONE and self._random.random() < 0.4:
            node["default"] = value
        if self._random.random() < 0.1:
            node["aliases"] = [self._random.choice(FIELDS)]
        if self._random.random() < 0.1:
            node["doc"] = 'A "field".'
        if self._random.random() < 0.05:
            node["order"] = self._random.choice(["ascending", "descending", "ignore"])
        return node

    def _named(self, kind: str, space: str | None) -> tuple[Node, str | None]:
        node: dict[str, Node] = {"type": kind, "name": self._names.pop(0)}
        if self._random.random() < 0.25:
            space = node["namespace"] = self._random.choice(SPACES)
        if self._random.random() < 0.1:
            node["aliases"] = [self._random.choice(["Type1", "shop.Type2", "shop.items.Type3"])]
        self._known[node["name"]] = _Known(node["name"], space)
        return node, space


_NONE = object()


def default_of(node: Node) -> Node:
    """Return a valid default of a type. `_NONE`: this function has none for it."""
    if isinstance(node, list):
        return default_of(node[0]) if node else _NONE
    if isinstance(node, str):
        return _PRIMITIVE_DEFAULTS.get(node, _NONE)
    makers: dict[str, Callable[[Node], Node]] = {
        "array": lambda each: [],
        "map": lambda each: {},
        "enum": lambda each: each["symbols"][0],
        "fixed": lambda each: "\x00" * each["size"],
        "record": _record_default,
    }
    make = makers.get(node["type"])
    return default_of(node["type"]) if make is None else make(node)


_PRIMITIVE_DEFAULTS: dict[str, Node] = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 7_000_000_000,
    "float": 1.5,
    "double": 2,
    "bytes": "\xff",
    "string": "text",
}


def _record_default(node: Node) -> Node:
    values = {each["name"]: default_of(each["type"]) for each in node["fields"]}
    return _NONE if _NONE in values.values() else values


def _branch_name(node: Node) -> str:
    if isinstance(node, str):
        return node.rpartition(".")[2]
    return str(node.get("name", node["type"]))


# --- Mutations ---


def mutated(random: Random, schema: Node) -> Node:
    """Return a copy of a schema with one to three mutations."""
    holder = [copy.deepcopy(schema)]
    for _ in range(random.choice([1, 1, 1, 2, 2, 3])):
        mutate = random.choice(MUTATIONS)
        mutate(random, holder)
    return holder[0]


Slot: TypeAlias = tuple[Any, Any]
"""A list or an object, and the index or the key of a type in it."""


def slots(holder: list[Node]) -> list[Slot]:
    """Return the places of all types in a schema. `holder` is a list with its root."""
    found: list[Slot] = []
    pending: list[Slot] = [(holder, 0)]
    while pending:
        slot = pending.pop()
        found.append(slot)
        node = slot[0][slot[1]]
        if isinstance(node, list):
            pending += [(node, position) for position in range(len(node))]
        elif isinstance(node, dict):
            pending += [(field, "type") for field in node.get("fields", [])]
            pending += [(node, key) for key in ("items", "values") if key in node]
    return found


def _nodes(holder: list[Node], *kinds: str) -> list[Node]:
    nodes = [container[key] for container, key in slots(holder)]
    return [node for node in nodes if isinstance(node, dict) and node["type"] in kinds]


def _unions(holder: list[Node]) -> list[Node]:
    nodes = [container[key] for container, key in slots(holder)]
    return [node for node in nodes if isinstance(node, list)]


def _fields(holder: list[Node]) -> list[tuple[Node, Node]]:
    return [(record, field) for record in _nodes(holder, "record") for field in record["fields"]]


def _change_primitive(random: Random, holder: list[Node]) -> None:
    found = [slot for slot in slots(holder) if slot[0][slot[1]] in PRIMITIVES]
    if not found:
        return
    container, key = random.choice(found)
    taken = container if isinstance(container, list) and container is not holder else []
    others = [name for name in PRIMITIVES if name not in taken]
    container[key] = random.choice(others or PRIMITIVES)
    if isinstance(container, dict) and "default" in container:
        container["default"] = _PRIMITIVE_DEFAULTS[container[key]]


def _wrap_in_union(random: Random, holder: list[Node]) -> None:
    found = [
        (container, key)
        for container, key in slots(holder)
        if not isinstance(container[key], list)
        and (container is holder or not isinstance(container, list))
    ]
    if not found:
        return
    container, key = random.choice(found)
    others = [name for name in PRIMITIVES if name != container[key]]
    branches = [container[key], random.choice(others)]
    has_default = isinstance(container, dict) and "default" in container
    container[key] = branches if has_default else random.sample(branches, 2)


def _unwrap_union(random: Random, holder: list[Node]) -> None:
    found = [slot for slot in slots(holder) if isinstance(slot[0][slot[1]], list)]
    if found:
        container, key = random.choice(found)
        if container[key]:
            container[key] = random.choice(container[key])


def _change_branches(random: Random, holder: list[Node]) -> None:
    unions = _unions(holder)
    if not unions:
        return
    union = random.choice(unions)
    change = random.choice(["add", "remove", "shuffle"])
    if change == "add":
        union.append(random.choice([each for each in PRIMITIVES if each not in union] or ["int"]))
    elif change == "remove" and len(union) > 1:
        union.pop(random.randrange(len(union)))
    else:
        random.shuffle(union)


def _add_field(random: Random, holder: list[Node]) -> None:
    records = _nodes(holder, "record")
    if not records:
        return
    record = random.choice(records)
    names = [name for name in FIELDS if all(each["name"] != name for each in record["fields"])]
    if not names:
        return
    added: Node = {"name": random.choice(names), "type": random.choice(PRIMITIVES)}
    if random.random() < 0.5:
        added["default"] = _PRIMITIVE_DEFAULTS[added["type"]]
    elif random.random() < 0.3:
        added["type"] = {
            "type": "enum",
            "name": f"Added{random.randrange(1000)}",
            "symbols": ["A", "B"],
            "default": "A",
        }
    record["fields"].insert(random.randint(0, len(record["fields"])), added)


def _remove_field(random: Random, holder: list[Node]) -> None:
    fields = _fields(holder)
    if fields:
        record, field = random.choice(fields)
        record["fields"].remove(field)


def _rename_field(random: Random, holder: list[Node]) -> None:
    fields = _fields(holder)
    if not fields:
        return
    _, field = random.choice(fields)
    if random.random() < 0.6:
        field["aliases"] = [field["name"]]
    field["name"] = random.choice([*FIELDS, "renamed"])


def _add_field_alias(random: Random, holder: list[Node]) -> None:
    fields = _fields(holder)
    if fields:
        _, field = random.choice(fields)
        field["aliases"] = random.sample(FIELDS, 2)


def _change_default(random: Random, holder: list[Node]) -> None:
    fields = _fields(holder)
    if not fields:
        return
    _, field = random.choice(fields)
    if "default" in field:
        del field["default"]
    elif default_of(field["type"]) is not _NONE:
        field["default"] = default_of(field["type"])


def _change_symbols(random: Random, holder: list[Node]) -> None:
    enums = _nodes(holder, "enum")
    if not enums:
        return
    enum = random.choice(enums)
    others = [each for each in SYMBOLS if each not in enum["symbols"]]
    if others and random.random() < 0.5:
        enum["symbols"].append(random.choice(others))
    elif len(enum["symbols"]) > 1:
        enum["symbols"].pop()
    if random.random() < 0.3:
        enum["default"] = random.choice(enum["symbols"])


def _change_size(random: Random, holder: list[Node]) -> None:
    fixed = _nodes(holder, "fixed")
    if fixed:
        random.choice(fixed)["size"] = random.choice([4, 8, 16])


def _rename_type(random: Random, holder: list[Node]) -> None:
    named = _nodes(holder, "record", "enum", "fixed")
    if not named:
        return
    node = random.choice(named)
    taken = {each["name"] for each in named}
    names = [name for name in ("Renamed", "Type1", "Type2", "Type3") if name not in taken]
    old, new = node["name"], random.choice(names or ["Renamed2"])
    if random.random() < 0.6:
        node["aliases"] = [random.choice([old, f"shop.{old}"])]
    node["name"] = new
    for container, key in slots(holder):
        if isinstance(container[key], str) and container[key].rpartition(".")[2] == old:
            container[key] = container[key][: -len(old)] + new


def _change_namespace(random: Random, holder: list[Node]) -> None:
    named = _nodes(holder, "record", "enum", "fixed")
    if named:
        random.choice(named)["namespace"] = random.choice(["", "other", *SPACES])


def _change_collection(random: Random, holder: list[Node]) -> None:
    collections = _nodes(holder, "array", "map")
    if not collections:
        return
    node = random.choice(collections)
    if node["type"] == "array":
        node["type"], node["values"] = "map", node.pop("items")
    else:
        node["type"], node["items"] = "array", node.pop("values")


def _change_attributes(random: Random, holder: list[Node]) -> None:
    nodes = _nodes(holder, "record", "enum", "fixed", "array", "map")
    if nodes:
        random.choice(nodes)["source"] = {"b": [1, 2.5, None], "a": "x"}


MUTATIONS: list[Callable[[Random, list[Node]], None]] = [
    _change_primitive,
    _change_primitive,
    _wrap_in_union,
    _unwrap_union,
    _change_branches,
    _add_field,
    _add_field,
    _remove_field,
    _remove_field,
    _rename_field,
    _add_field_alias,
    _change_default,
    _change_symbols,
    _change_symbols,
    _change_symbols,
    _change_symbols,
    _change_size,
    _rename_type,
    _change_namespace,
    _change_collection,
    _change_attributes,
]
