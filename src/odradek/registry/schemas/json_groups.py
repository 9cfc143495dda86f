"""The forms of a schema object's groups of keywords. Pure.

A keyword that the draft does not have is ignored, and so is a keyword of another type beside
``type``. Each keyword that has an effect on validation is in exactly one group. The metaschema was
applied before, so a value has the type that its keyword requires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from odradek.registry.schemas.json_drafts import Draft, escaped
from odradek.registry.schemas.json_model import (
    ArrayForm,
    BooleanForm,
    CombinedForm,
    ConditionalForm,
    ConstForm,
    Criterion,
    DynamicForm,
    EmptyForm,
    EnumForm,
    FalseForm,
    Form,
    Node,
    NotForm,
    NullForm,
    Number,
    NumberForm,
    ObjectForm,
    ReferenceForm,
    StringForm,
    UnevaluatedForm,
    Whole,
)
from odradek.registry.schemas.json_text import Json, value_key
from odradek.registry.schemas.parsed import InvalidSchema

Keywords = dict[str, Json]

_STRING = frozenset({"minLength", "maxLength", "pattern"})
_NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_OBJECT_4 = frozenset(
    {
        "properties",
        "patternProperties",
        "additionalProperties",
        "required",
        "minProperties",
        "maxProperties",
    }
)
_ARRAY_4 = frozenset({"items", "additionalItems", "minItems", "maxItems", "uniqueItems"})
_APPLICATORS = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"}
)
"""The applicators whose subschemas evaluate properties or items of the same value."""
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_WITHOUT_EFFECT: tuple[Json, ...] = (True, {})


class Scope(Protocol):
    """The place of a schema object in its document."""

    @property
    def draft(self) -> Draft: ...

    @property
    def location(self) -> str: ...

    def child(self, value: Json, pointer: str) -> Node:
        """Return the node of a subschema."""

    def part(self, form: Form) -> Node:
        """Return a new node for a group of keywords."""

    def target(self, reference: str) -> Node:
        """Return the node that a reference names."""


def form_of(schema: Keywords, scope: Scope) -> Form:
    """Return the form of a schema object.

    Raises:
        InvalidSchema: A reference cannot be resolved.
    """
    groups = _reference_groups(schema, scope)
    if groups and scope.draft < Draft.DRAFT_2019_09:
        return groups[0]
    groups += _value_groups(schema, scope)
    groups += _type_groups(schema, scope)
    if scope.draft >= Draft.DRAFT_7 and "if" in schema:
        groups.append(_conditional(schema, scope))
    form = _all_of(groups, scope)
    dependent = _dependent_keywords(schema, scope.draft)
    if not dependent:
        return form
    return UnevaluatedForm(scope.part(form), dependent, _fingerprint(schema, scope.draft))


def _all_of(groups: list[Form], scope: Scope) -> Form:
    if not groups:
        return EmptyForm()
    if len(groups) == 1:
        return groups[0]
    return CombinedForm(Criterion.ALL, tuple(scope.part(group) for group in groups))


def _reference_groups(schema: Keywords, scope: Scope) -> list[Form]:
    groups: list[Form] = []
    if "$ref" in schema:
        reference = schema["$ref"]
        if not isinstance(reference, str):
            raise InvalidSchema(f"{scope.location}/$ref is not a string")
        groups.append(ReferenceForm(scope.target(reference)))
    dynamic = {Draft.DRAFT_2019_09: "$recursiveRef", Draft.DRAFT_2020_12: "$dynamicRef"}
    if dynamic.get(scope.draft) in schema:
        groups.append(DynamicForm())
    return groups


def _value_groups(schema: Keywords, scope: Scope) -> list[Form]:
    groups: list[Form] = []
    values = schema.get("enum")
    if isinstance(values, list):
        groups.append(EnumForm(tuple(values), frozenset(value_key(each) for each in values)))
    for criterion in Criterion:
        alternatives = schema.get(criterion.value)
        if isinstance(alternatives, list):
            children = (
                scope.child(each, f"{criterion.value}/{index}")
                for index, each in enumerate(alternatives)
            )
            groups.append(CombinedForm(criterion, tuple(children)))
    if "not" in schema:
        groups.append(NotForm(scope.child(schema["not"], "not")))
    if scope.draft >= Draft.DRAFT_6 and "const" in schema:
        groups.append(ConstForm(schema["const"], value_key(schema["const"])))
    return groups


def _type_groups(schema: Keywords, scope: Scope) -> list[Form]:
    types = schema.get("type")
    if isinstance(types, str):
        return [_of_type(types, schema, scope)]
    if isinstance(types, list):
        parts = (scope.part(_of_type(str(each), schema, scope)) for each in types)
        return [CombinedForm(Criterion.ANY, tuple(parts))]
    groups: list[Form] = []
    if not _array_keywords(scope.draft).isdisjoint(schema):
        groups.append(_array(schema, scope, typed=False))
    if not _object_keywords(scope.draft).isdisjoint(schema):
        groups.append(_object(schema, scope, typed=False))
    if not _NUMBER.isdisjoint(schema):
        groups.append(_number(schema, scope.draft, Whole.ANY, typed=False))
    if not _STRING.isdisjoint(schema):
        groups.append(_string(schema, typed=False))
    return groups


def _of_type(name: str, schema: Keywords, scope: Scope) -> Form:
    if name == "object":
        return _object(schema, scope, typed=True)
    if name == "array":
        return _array(schema, scope, typed=True)
    if name == "string":
        return _string(schema, typed=True)
    if name == "number":
        return _number(schema, scope.draft, Whole.ANY, typed=True)
    if name == "integer":
        whole = Whole.BY_NOTATION if scope.draft == Draft.DRAFT_4 else Whole.BY_VALUE
        return _number(schema, scope.draft, whole, typed=True)
    if name == "boolean":
        return BooleanForm()
    return NullForm() if name == "null" else FalseForm()


def _string(schema: Keywords, *, typed: bool) -> StringForm:
    pattern = schema.get("pattern")
    return StringForm(
        typed=typed,
        min_length=_limit(schema, "minLength"),
        max_length=_limit(schema, "maxLength"),
        pattern=pattern if isinstance(pattern, str) else None,
    )


def _number(schema: Keywords, draft: Draft, whole: Whole, *, typed: bool) -> NumberForm:
    minimum, exclusive_minimum = _bounds(schema, draft, "minimum", "exclusiveMinimum")
    maximum, exclusive_maximum = _bounds(schema, draft, "maximum", "exclusiveMaximum")
    return NumberForm(
        typed=typed,
        whole=whole,
        minimum=minimum,
        maximum=maximum,
        exclusive_minimum=exclusive_minimum,
        exclusive_maximum=exclusive_maximum,
        multiple_of=_limit(schema, "multipleOf"),
    )


def _bounds(
    schema: Keywords, draft: Draft, inclusive: str, exclusive: str
) -> tuple[Number | None, Number | None]:
    """Return the inclusive and the exclusive bound. In draft 4, a flag makes a bound exclusive."""
    bound = _limit(schema, inclusive)
    if draft > Draft.DRAFT_4:
        return bound, _limit(schema, exclusive)
    return (None, bound) if schema.get(exclusive) is True else (bound, None)


def _object_keywords(draft: Draft) -> frozenset[str]:
    keywords = _OBJECT_4
    if draft >= Draft.DRAFT_6:
        keywords |= {"propertyNames"}
    if draft >= Draft.DRAFT_2019_09:
        return keywords | {"dependentRequired", "dependentSchemas", "unevaluatedProperties"}
    return keywords | {"dependencies"}


def _object(schema: Keywords, scope: Scope, *, typed: bool) -> ObjectForm:
    required = schema.get("required")
    has_names = scope.draft >= Draft.DRAFT_6
    return ObjectForm(
        typed=typed,
        properties=_children(schema, "properties", scope),
        pattern_properties=_children(schema, "patternProperties", scope),
        additional=_child(schema, "additionalProperties", scope),
        unevaluated=_independent(schema, "unevaluatedProperties", scope),
        property_names=_child(schema, "propertyNames", scope) if has_names else None,
        required=_names(required),
        min_properties=_limit(schema, "minProperties"),
        max_properties=_limit(schema, "maxProperties"),
        array_dependencies=_array_dependencies(schema, scope.draft),
        schema_dependencies=_schema_dependencies(schema, scope),
    )


def _array_dependencies(schema: Keywords, draft: Draft) -> Mapping[str, frozenset[str]]:
    keyword = "dependentRequired" if draft >= Draft.DRAFT_2019_09 else "dependencies"
    entries = schema.get(keyword)
    if not isinstance(entries, dict):
        return {}
    return {name: _names(value) for name, value in entries.items() if isinstance(value, list)}


def _schema_dependencies(schema: Keywords, scope: Scope) -> Mapping[str, Node]:
    if scope.draft >= Draft.DRAFT_2019_09:
        return _children(schema, "dependentSchemas", scope)
    return _children(schema, "dependencies", scope)


def _array_keywords(draft: Draft) -> frozenset[str]:
    keywords = _ARRAY_4
    if draft >= Draft.DRAFT_6:
        keywords |= {"contains"}
    if draft >= Draft.DRAFT_2019_09:
        keywords |= {"unevaluatedItems"}
    if draft >= Draft.DRAFT_2020_12:
        keywords = (keywords - {"additionalItems"}) | {"prefixItems"}
    return keywords


def _array(schema: Keywords, scope: Scope, *, typed: bool) -> ArrayForm:
    prefix, rest = _items(schema, scope)
    contains = _child(schema, "contains", scope) if scope.draft >= Draft.DRAFT_6 else None
    counts = contains is not None and scope.draft >= Draft.DRAFT_2019_09
    return ArrayForm(
        typed=typed,
        prefix=prefix,
        rest=rest,
        unevaluated=_independent(schema, "unevaluatedItems", scope),
        contains=contains,
        min_contains=_limit(schema, "minContains") if counts else None,
        max_contains=_limit(schema, "maxContains") if counts else None,
        min_items=_limit(schema, "minItems"),
        max_items=_limit(schema, "maxItems"),
        unique=schema.get("uniqueItems") is True,
    )


def _items(schema: Keywords, scope: Scope) -> tuple[tuple[Node, ...], Node | None]:
    """Return the schemas by position and the schema of the rest.

    Without schemas by position, ``additionalItems`` has no effect.
    """
    prefix_keyword = "prefixItems" if scope.draft >= Draft.DRAFT_2020_12 else "items"
    positions = schema.get(prefix_keyword)
    if not isinstance(positions, list):
        return (), _child(schema, "items", scope)
    prefix = tuple(
        scope.child(each, f"{prefix_keyword}/{index}") for index, each in enumerate(positions)
    )
    rest = "items" if scope.draft >= Draft.DRAFT_2020_12 else "additionalItems"
    return prefix, _child(schema, rest, scope)


def _conditional(schema: Keywords, scope: Scope) -> ConditionalForm:
    return ConditionalForm(
        condition=scope.child(schema["if"], "if"),
        consequence=_child(schema, "then", scope),
        alternative=_child(schema, "else", scope),
    )


def _dependent_keywords(schema: Keywords, draft: Draft) -> frozenset[str]:
    """Return the ``unevaluated...`` keywords whose effect depends on other applicators."""
    return frozenset(
        keyword
        for keyword in ("unevaluatedItems", "unevaluatedProperties")
        if _has_unevaluated(schema, keyword, draft) and _is_dependent(schema, keyword)
    )


def _independent(schema: Keywords, keyword: str, scope: Scope) -> Node | None:
    if not _has_unevaluated(schema, keyword, scope.draft):
        return None
    if _is_dependent(schema, keyword):
        return None
    return scope.child(schema[keyword], keyword)


def _has_unevaluated(schema: Keywords, keyword: str, draft: Draft) -> bool:
    """Whether the keyword exists and values remain that no sibling keyword evaluates."""
    if draft < Draft.DRAFT_2019_09 or schema.get(keyword, True) in _WITHOUT_EFFECT:
        return False
    if keyword == "unevaluatedProperties":
        return not isinstance(schema.get("additionalProperties"), bool)
    if draft >= Draft.DRAFT_2020_12:
        return "items" not in schema
    items = schema.get("items")
    return items is None or (isinstance(items, list) and "additionalItems" not in schema)


def _is_dependent(schema: Keywords, keyword: str) -> bool:
    """Whether the properties or items that the keyword applies to are unknown without a value.

    By the specification, a schema in ``additionalProperties`` evaluates all properties. The library
    ``jsonschema`` deviates for 2019-09, so the keyword's effect counts as unknown.
    """
    if not _APPLICATORS.isdisjoint(schema):
        return True
    if keyword == "unevaluatedProperties":
        return "additionalProperties" in schema
    # Since 2020-12, `contains` evaluates the items that it accepts.
    return "contains" in schema


def _fingerprint(schema: Keywords, draft: Draft) -> str | None:
    pending: list[Json] = [schema]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if not _REFERENCES.isdisjoint(item):
                return None
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return f"{draft.name}:{value_key(schema)}"


def _child(schema: Keywords, keyword: str, scope: Scope) -> Node | None:
    return scope.child(schema[keyword], keyword) if keyword in schema else None


def _children(schema: Keywords, keyword: str, scope: Scope) -> Mapping[str, Node]:
    entries = schema.get(keyword)
    if not isinstance(entries, dict):
        return {}
    return {
        name: scope.child(value, f"{keyword}/{escaped(name)}")
        for name, value in entries.items()
        if isinstance(value, (dict, bool))
    }


def _limit(schema: Keywords, keyword: str) -> Number | None:
    value = schema.get(keyword)
    return None if value is None or isinstance(value, (bool, str, list, dict)) else value


def _names(value: Json) -> frozenset[str]:
    return (
        frozenset(each for each in value if isinstance(each, str))
        if isinstance(value, list)
        else frozenset()
    )
