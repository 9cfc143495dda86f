"""Whether two JSON Schemas accept no common value. Pure.

A value is valid under ``oneOf`` only if exactly one alternative accepts it, so an added alternative
must not accept values of the others. Confluent does not test this.

The test is conservative: false means that it found no proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import product

from odradek.registry.schemas.json_model import (
    ArrayForm,
    BooleanForm,
    CombinedForm,
    ConstForm,
    Criterion,
    EnumForm,
    FalseForm,
    Form,
    Node,
    NullForm,
    Number,
    NumberForm,
    ObjectForm,
    StringForm,
    UnevaluatedForm,
    is_false,
    resolved,
)
from odradek.registry.schemas.json_text import Json

STEPS_MAX = 100_000
"""Maximum number of pairs that one comparison of two schemas tests."""

DEPTH_MAX = 12
"""Maximum depth of nested types and references that a test descends to."""

_ALL = frozenset({"null", "boolean", "object", "array", "number", "string"})


class Disjointness:
    """Tests pairs of schemas with a budget. Owned by one comparison."""

    def __init__(self) -> None:
        self._steps_left = STEPS_MAX

    def disjoint(self, one: Node, two: Node) -> bool:
        """Return whether it is proved that no value is valid under both schemas."""
        return self._disjoint(one, two, DEPTH_MAX)

    def _disjoint(self, one: Node, two: Node, depth: int) -> bool:
        self._steps_left -= 1
        if depth == 0 or self._steps_left < 0:
            return False
        first, second = _form(one), _form(two)
        if isinstance(first, FalseForm) or isinstance(second, FalseForm):
            return True
        if self._combined(first, two, depth) or self._combined(second, one, depth):
            return True
        if self._types(first, depth).isdisjoint(self._types(second, depth)):
            return True
        return self._same_type(first, second, depth)

    def _combined(self, form: Form, other: Node, depth: int) -> bool:
        if not isinstance(form, CombinedForm):
            return False
        tests = (self._disjoint(child, other, depth - 1) for child in form.children)
        return any(tests) if form.criterion is Criterion.ALL else all(tests)

    def _types(self, form: Form, depth: int) -> frozenset[str]:
        """Return the types of which the schema may accept values."""
        self._steps_left -= 1
        if depth == 0 or self._steps_left < 0:
            return _ALL
        if not isinstance(form, CombinedForm):
            return _types_of(form)
        types = [self._types(_form(child), depth - 1) for child in form.children]
        if form.criterion is Criterion.ALL:
            return _ALL.intersection(*types)
        return frozenset[str]().union(*types)

    def _same_type(self, first: Form, second: Form, depth: int) -> bool:
        one, two = _value_keys(first), _value_keys(second)
        if one is not None and two is not None:
            return one.isdisjoint(two)
        if isinstance(first, NumberForm) and isinstance(second, NumberForm):
            return _is_typed(first, second) and _apart(_interval(first), _interval(second))
        if isinstance(first, StringForm) and isinstance(second, StringForm):
            lengths = (
                (first.min_length, first.max_length),
                (second.min_length, second.max_length),
            )
            return _is_typed(first, second) and _apart(*lengths)
        if isinstance(first, ObjectForm) and isinstance(second, ObjectForm):
            return _is_typed(first, second) and self._objects(first, second, depth)
        return False

    def _objects(self, first: ObjectForm, second: ObjectForm, depth: int) -> bool:
        """Return whether a property that one requires has no value that is valid under both."""
        for name in first.required | second.required:
            for one, two in product(_schemas_of(first, name), _schemas_of(second, name)):
                if self._disjoint(one, two, depth - 1):
                    return True
            rejected = (*_schemas_of(first, name), *_schemas_of(second, name))
            if any(is_false(node) for node in rejected):
                return True
        return False


def _form(node: Node) -> Form:
    form = resolved(node).form
    while isinstance(form, UnevaluatedForm):
        form = resolved(form.inner).form
    return form


def _types_of(form: Form) -> frozenset[str]:
    if isinstance(form, NullForm):
        return frozenset({"null"})
    if isinstance(form, BooleanForm):
        return frozenset({"boolean"})
    if isinstance(form, ConstForm):
        return frozenset({_type_of(form.value)})
    if isinstance(form, EnumForm):
        return frozenset(_type_of(value) for value in form.values)
    return _keyword_types(form)


def _keyword_types(form: Form) -> frozenset[str]:
    if isinstance(form, StringForm) and form.typed:
        return frozenset({"string"})
    if isinstance(form, NumberForm) and form.typed:
        return frozenset({"number"})
    if isinstance(form, ObjectForm) and form.typed:
        return frozenset({"object"})
    if isinstance(form, ArrayForm) and form.typed:
        return frozenset({"array"})
    return _ALL


def _type_of(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, Decimal)):
        return "number"
    return "object" if isinstance(value, dict) else "array"


def _value_keys(form: Form) -> frozenset[str] | None:
    if isinstance(form, ConstForm):
        return frozenset({form.key})
    return form.keys if isinstance(form, EnumForm) else None


def _is_typed(
    first: StringForm | NumberForm | ObjectForm, second: StringForm | NumberForm | ObjectForm
) -> bool:
    return first.typed or second.typed


def _interval(form: NumberForm) -> tuple[Number | None, Number | None]:
    """Return bounds that include all accepted numbers. Exclusive bounds count as inclusive."""
    lower = [bound for bound in (form.minimum, form.exclusive_minimum) if bound is not None]
    upper = [bound for bound in (form.maximum, form.exclusive_maximum) if bound is not None]
    return max(lower, default=None), min(upper, default=None)


def _apart(
    one: tuple[Number | None, Number | None], two: tuple[Number | None, Number | None]
) -> bool:
    return _below(one[1], two[0]) or _below(two[1], one[0])


def _below(upper: Number | None, lower: Number | None) -> bool:
    return upper is not None and lower is not None and upper < lower


def _schemas_of(form: ObjectForm, name: str) -> Iterator[Node]:
    """Yield the schemas that a property with the name must satisfy, as far as they are known."""
    if name in form.properties:
        yield form.properties[name]
        return
    rest = form.additional or form.unevaluated
    if rest is not None and not form.pattern_properties:
        yield rest
