"""A JSON Schema as a graph of nodes that does not depend on the draft. Pure.

The graph follows the Java library that Confluent compares with (everit-json-schema): a schema with
keywords of several groups is an ``allOf`` of one node for each group, and a list of types is an
``anyOf``. ``{"type": "string", "enum": ["a"]}`` becomes ``allOf(enum, string)``.

References are nodes too, so a graph may be cyclic. After `compile_schema` returns it, a graph is
never changed, and several threads may read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, auto
from typing import TypeAlias

from odradek.registry.schemas.json_text import Json

Number: TypeAlias = "int | Decimal"


@dataclass(frozen=True, slots=True, eq=False)
class EmptyForm:
    """Accepts every value."""


@dataclass(frozen=True, slots=True, eq=False)
class FalseForm:
    """Accepts no value."""


@dataclass(frozen=True, slots=True, eq=False)
class NullForm:
    """Accepts null."""


@dataclass(frozen=True, slots=True, eq=False)
class BooleanForm:
    """Accepts true and false."""


@dataclass(frozen=True, slots=True, eq=False)
class StringForm:
    """The keywords of strings."""

    typed: bool
    """Accepts only strings. If false, accepts every value that is not a string as well."""
    min_length: Number | None
    max_length: Number | None
    pattern: str | None


class Whole(Enum):
    """Which numbers a schema accepts."""

    ANY = auto()
    """All numbers."""
    BY_VALUE = auto()
    """Integers, and numbers such as 1.0 (``integer`` since draft 6)."""
    BY_NOTATION = auto()
    """Numbers without a fraction or an exponent in their text (``integer`` of draft 4)."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberForm:
    """The keywords of numbers."""

    typed: bool
    whole: Whole
    minimum: Number | None
    maximum: Number | None
    exclusive_minimum: Number | None
    exclusive_maximum: Number | None
    multiple_of: Number | None


@dataclass(frozen=True, slots=True, eq=False)
class ObjectForm:
    """The keywords of objects."""

    typed: bool
    properties: Mapping[str, Node]
    pattern_properties: Mapping[str, Node]
    additional: Node | None
    unevaluated: Node | None
    """Set only where it has the meaning of `additional`, which is then None."""
    property_names: Node | None
    required: frozenset[str]
    min_properties: Number | None
    max_properties: Number | None
    array_dependencies: Mapping[str, frozenset[str]]
    schema_dependencies: Mapping[str, Node]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayForm:
    """The keywords of arrays."""

    typed: bool
    prefix: tuple[Node, ...]
    """The schemas by position: ``prefixItems``, or ``items`` as an array."""
    rest: Node | None
    """The schema of all items after `prefix`."""
    unevaluated: Node | None
    """Set only where it has the meaning of `rest`, which is then None."""
    contains: Node | None
    min_contains: Number | None
    max_contains: Number | None
    min_items: Number | None
    max_items: Number | None
    unique: bool


@dataclass(frozen=True, slots=True, eq=False)
class EnumForm:
    """Accepts the listed values."""

    values: tuple[Json, ...]
    keys: frozenset[str]
    """`value_key` of each value."""


@dataclass(frozen=True, slots=True, eq=False)
class ConstForm:
    """Accepts one value."""

    value: Json
    key: str


class Criterion(Enum):
    """How many of its alternatives a combined schema requires."""

    ALL = "allOf"
    ANY = "anyOf"
    ONE = "oneOf"


@dataclass(frozen=True, slots=True, eq=False)
class CombinedForm:
    """``allOf``, ``anyOf`` or ``oneOf``, or the parts of one schema (an ``allOf``)."""

    criterion: Criterion
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class NotForm:
    """Accepts the values that the child rejects."""

    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class ConditionalForm:
    """``if``, ``then`` and ``else``."""

    condition: Node
    consequence: Node | None
    alternative: Node | None


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceForm:
    """Accepts the values of the target."""

    target: Node


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Properties that a schema evaluates by other keywords than ``unevaluatedProperties``."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    everything: bool = False
    """All properties, whatever their names are."""


@dataclass(frozen=True, slots=True, eq=False)
class UnevaluatedForm:
    """A schema whose ``unevaluatedProperties`` or ``unevaluatedItems`` depend on other applicators.

    Such a keyword rejects values that `inner` accepts, and which ones depends on annotations.
    """

    inner: Node
    """The same schema without these keywords."""
    keywords: frozenset[str]
    fingerprint: str | None
    """`value_key` of the whole schema, or None if it contains references."""
    closed: Node | None = None
    """`inner` without the properties that ``unevaluatedProperties`` rejects for certain."""
    possible: Evaluated | None = None
    """The only properties that a value may have, or None if others are possible."""
    guaranteed: Evaluated = Evaluated()
    """Properties to which ``unevaluatedProperties`` is never applied."""


@dataclass(frozen=True, slots=True, eq=False)
class DynamicForm:
    """``$dynamicRef`` or ``$recursiveRef``. Its target depends on the path of the validation."""


Form: TypeAlias = (
    EmptyForm
    | FalseForm
    | NullForm
    | BooleanForm
    | StringForm
    | NumberForm
    | ObjectForm
    | ArrayForm
    | EnumForm
    | ConstForm
    | CombinedForm
    | NotForm
    | ConditionalForm
    | ReferenceForm
    | UnevaluatedForm
    | DynamicForm
)


@dataclass(slots=True, eq=False)
class Node:
    """A schema of a document, or one group of its keywords."""

    location: str
    """Where the schema is, for messages: a URI and a JSON pointer, such as ``#/properties/a``."""
    schema: Json
    """The schema's text as a value. The nodes for groups of keywords have an empty object."""
    form: Form = field(default_factory=EmptyForm)
    """Assigned once, while the graph is compiled."""

    def annotation(self, name: str) -> Json:
        """Return the value of a keyword, or None."""
        return self.schema.get(name) if isinstance(self.schema, dict) else None

    def has_default(self) -> bool:
        """Whether the schema has the keyword ``default``."""
        return isinstance(self.schema, dict) and "default" in self.schema


def resolved(node: Node) -> Node:
    """Return the target of a chain of references, or the node itself."""
    while isinstance(node.form, ReferenceForm):
        node = node.form.target
    return node


def is_false(node: Node | None) -> bool:
    """Whether the schema exists and is ``false``."""
    return node is not None and isinstance(resolved(node).form, FalseForm)


def constraint(node: Node | None) -> Node | None:
    """Return the schema, or None if it accepts every value."""
    if node is None or isinstance(resolved(node).form, EmptyForm):
        return None
    return node


def in_place(form: Form) -> Iterator[Node]:
    """Yield the nodes that validate the same value as a schema of this form."""
    if isinstance(form, CombinedForm):
        yield from form.children
    elif isinstance(form, NotForm):
        yield form.child
    elif isinstance(form, ReferenceForm):
        yield form.target
    elif isinstance(form, UnevaluatedForm):
        yield form.inner
    elif isinstance(form, ObjectForm):
        yield from form.schema_dependencies.values()
    elif isinstance(form, ConditionalForm):
        parts = (form.condition, form.consequence, form.alternative)
        yield from (part for part in parts if part is not None)
