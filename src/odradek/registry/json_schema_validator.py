"""Validation of JSON values by a JSON Schema, with the expressions and names of the registry.

The library `jsonschema` searches with Python's `re`, which lacks syntax of ECMAScript's and Java's
dialects, and takes exponential time for some expressions. Here RE2 searches, as in the registry. An
expression that RE2 does not accept is searched with `re`. If `re` does not accept it either, it
restricts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from jsonschema import FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft7Validator, extend, validator_for
from jsonschema_specifications import REGISTRY
from referencing import Resource
from referencing.jsonschema import DRAFT7

from odradek.registry.schemas.json_compile import reference_uris, with_shared_definitions
from odradek.registry.schemas.json_patterns import compiled_expression

SET_IN_SET = "[["
"""Syntax that has a meaning of its own in each dialect."""

Json: TypeAlias = Any
"""A value of `json.loads`, as `jsonschema` takes it."""

_Errors: TypeAlias = Iterator[ValidationError]


def make_validator(schema: Json, references: Mapping[str, Json]) -> Validator:
    """Return the validator of a schema.

    Args:
        schema: The value of the schema's text.
        references: The values of the referenced texts by the names that the schemas use.

    Raises:
        SchemaError: The schema is invalid.
        InvalidSchema: The name of a reference is not a URI.
    """
    kind = validator_for(schema, default=Draft7Validator)
    # Without formats: a "regex" may be of a dialect that Python does not have.
    kind.check_schema(schema, format_checker=FormatChecker(formats=()))
    schema = with_shared_definitions(schema)
    base = (Resource.from_contents(schema, DRAFT7).id() if isinstance(schema, dict) else "") or ""
    # The registry of the validator never requests a URL.
    registry = REGISTRY.with_resources(
        (uri, _resource(contents, schema))
        for name, contents in references.items()
        for uri in reference_uris(base, name)
    )
    return extend(kind, _KEYWORDS)(_without_draft(schema), registry=registry)


def _resource(contents: Json, root: Json) -> Resource[Json]:
    resource = Resource.from_contents(with_shared_definitions(contents), DRAFT7)
    if isinstance(contents, dict) and contents.get("$schema") != _draft(root):
        return resource
    return resource._specification.create_resource(_without_draft(resource.contents))


def _draft(schema: Json) -> object:
    return schema.get("$schema") if isinstance(schema, dict) else None


def _without_draft(schema: Json) -> Json:
    """Return a schema without ``$schema``, which would select a validator with other keywords."""
    if not isinstance(schema, dict):
        return schema
    return {name: value for name, value in schema.items() if name != "$schema"}


def _search(expression: str, text: str) -> bool | None:
    """Return whether an expression matches somewhere in a text, or None if that is unknown."""
    compiled = compiled_expression(expression)
    if compiled is None and SET_IN_SET in expression:
        return None
    try:
        found = re.search(expression, text) if compiled is None else compiled.search(text)
    except (re.error, OverflowError, RecursionError):
        return None
    return found is not None


def _pattern(validator: Validator, expression: str, value: Json, _: Json) -> _Errors:
    if validator.is_type(value, "string") and _search(expression, value) is False:
        yield ValidationError(f"{value!r} does not match {expression!r}")


def _pattern_properties(
    validator: Any, expressions: Mapping[str, Json], value: Json, _: Json
) -> _Errors:
    if not validator.is_type(value, "object"):
        return
    for expression, schema in expressions.items():
        for name, element in value.items():
            if _search(expression, name):
                yield from validator.descend(element, schema, path=name, schema_path=expression)


def _additional_properties(validator: Any, allowed: Json, value: Json, schema: Json) -> _Errors:
    if not validator.is_type(value, "object"):
        return
    names = _additional(value, schema)
    if allowed is False and names:
        shown = ", ".join(map(repr, names))
        yield ValidationError(f"Additional properties are not allowed ({shown})")
    elif allowed is not False:
        for name in names:
            yield from validator.descend(value[name], allowed, path=name)


def _additional(value: Mapping[str, Json], schema: Mapping[str, Json]) -> Sequence[str]:
    properties = schema.get("properties", {})
    expressions = schema.get("patternProperties", {})
    return [
        name
        for name in value
        if name not in properties
        and all(_search(expression, name) is False for expression in expressions)
    ]


_KEYWORDS = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
