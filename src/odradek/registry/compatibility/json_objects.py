"""The comparison of objects. Pure.

The content model of a schema is open (other properties may have any value), closed (there are no
others) or partially open (others must satisfy a schema). An added property needs a writer that is
not open, and a removed one needs a reader that accepts its values.

Deviations from Confluent's registry, which accepts each of these changes:

- ``patternProperties`` and ``propertyNames`` are compared. A property must satisfy every pattern
  that matches its name.
- A name in ``required`` counts also if it is not in ``properties``.
- A schema with a pattern and without ``additionalProperties`` is open.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.registry.compatibility.json_differences import Findings, JsonDifferenceKind, Outcome
from odradek.registry.compatibility.json_properties import (
    Obligation,
    additional,
    known_schemas,
    obligations,
)
from odradek.registry.compatibility.json_steps import (
    Steps,
    compare_into,
    compare_limit,
    compare_optional,
    compare_typed,
)
from odradek.registry.schemas.json_model import Node, ObjectForm, constraint, is_false
from odradek.registry.schemas.json_patterns import exclude_each_other

_K = JsonDifferenceKind


def compare_objects(found: Findings, writer: ObjectForm, reader: ObjectForm) -> Steps[None]:
    """Compare the keywords of objects."""
    compare_typed(found, writer.typed, reader.typed)
    _compare_required(found, writer, reader)
    for name in {**writer.properties, **reader.properties}:
        yield from _compare_property(found, writer, reader, name)
    yield from _compare_patterns(found, writer, reader)
    yield from _compare_additional(found, writer, reader)
    yield from _compare_dependencies(found, writer, reader)
    names = writer.property_names, reader.property_names
    yield from compare_optional(found, *names, "propertyNames")
    _compare_sizes(found, writer, reader)


def _compare_sizes(found: Findings, writer: ObjectForm, reader: ObjectForm) -> None:
    greatest = writer.max_properties, reader.max_properties
    smallest = writer.min_properties, reader.min_properties
    compare_limit(found, "maxProperties", "MAX_PROPERTIES", *greatest)
    compare_limit(found, "minProperties", "MIN_PROPERTIES", *smallest)


def _compare_required(found: Findings, writer: ObjectForm, reader: ObjectForm) -> None:
    for name in sorted(writer.required - reader.required):
        if name in writer.properties and name in reader.properties:
            found.add(_K.REQUIRED_ATTRIBUTE_REMOVED, "required", name)
    for name in sorted(reader.required - writer.required):
        schema = reader.properties.get(name)
        if schema is not None and name not in writer.properties:
            continue  # `_compare_property` reports it
        has_default = schema is not None and schema.has_default()
        found.add(
            _K.REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED
            if has_default
            else _K.REQUIRED_ATTRIBUTE_ADDED,
            "required",
            name,
        )


def _compare_property(
    found: Findings, writer: ObjectForm, reader: ObjectForm, name: str
) -> Steps[None]:
    path = ("properties", name)
    known = known_schemas(writer, name)
    duties = obligations(reader, name, frozenset(writer.pattern_properties))
    if name not in reader.properties:
        yield from _compare_removed(found, known, duties, path, writer.properties[name])
        return
    schema = reader.properties[name]
    if name not in writer.properties:
        yield from _compare_added(found, writer, reader, name, known)
    elif len(known) <= 1:
        yield from compare_into(found, writer.properties[name], schema, *path)
    else:
        own = yield writer.properties[name], schema
        accepted = yield from _first_accepted(known, schema)
        found.merge(own if accepted is None else accepted, *path)
    for duty in duties:
        if not (yield from _is_covered(known, duty.schema)):
            found.add(_K.PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL, *duty.path)


def _compare_removed(
    found: Findings,
    known: Sequence[Node],
    duties: Sequence[Obligation],
    path: tuple[str, ...],
    schema: Node,
) -> Steps[None]:
    """Compare a property that only the writer has with the reader's patterns and the rest."""
    if not duties:
        found.add(_K.PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL, *path)
        return
    for duty in duties:
        if is_false(duty.schema):
            is_absent = any(is_false(node) for node in known)
            found.add(
                _K.PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL
                if is_absent
                else _K.PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL,
                *path,
            )
            continue
        accepted = yield from _first_accepted(known, duty.schema)
        if accepted is not None:
            found.merge(accepted, *path)
            found.add(_K.PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL, *path)
        else:
            yield from compare_into(found, schema, duty.schema, *path)
            found.add(_K.PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL, *path)


def _compare_added(
    found: Findings,
    writer: ObjectForm,
    reader: ObjectForm,
    name: str,
    known: Sequence[Node],
) -> Steps[None]:
    """Compare a property that only the reader has with the writer's patterns and the rest."""
    path = ("properties", name)
    schema = reader.properties[name]
    is_required = name in reader.required and name not in writer.required
    if not known:
        found.add(_added_to_open(schema, is_required=is_required), *path)
        return
    if not any(is_false(node) for node in known):
        accepted = yield from _first_accepted(known, schema)
        if accepted is not None:
            found.merge(accepted, *path)
            found.add(_K.PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL, *path)
        else:
            yield from compare_into(found, known[0], schema, *path)
            found.add(_K.PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL, *path)
    if not is_required:
        found.add(_K.OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL, *path)
    elif schema.has_default():
        found.add(_K.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL, *path)
    else:
        found.add(_K.REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL, *path)


def _added_to_open(schema: Node, *, is_required: bool) -> JsonDifferenceKind:
    if is_required:
        if schema.has_default():
            return _K.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL
        return _K.REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL
    if constraint(schema) is None:
        return _K.PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    return _K.OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL


def _first_accepted(known: Sequence[Node], reader: Node) -> Steps[Outcome | None]:
    """Return the outcome of the first schema of the writer that the reader accepts, or None."""
    for node in known:
        outcome = yield node, reader
        if outcome.is_compatible:
            return outcome
    return None


def _is_covered(known: Sequence[Node], reader: Node) -> Steps[bool]:
    if constraint(reader) is None or any(is_false(node) for node in known):
        return True
    accepted = yield from _first_accepted(known, reader)
    return accepted is not None


def _compare_patterns(found: Findings, writer: ObjectForm, reader: ObjectForm) -> Steps[None]:
    """Compare the schemas of names that match a pattern and are not in ``properties``."""
    for pattern, schema in reader.pattern_properties.items():
        known = writer.pattern_properties.get(pattern)
        if known is not None:
            yield from compare_into(found, known, schema, "patternProperties", pattern)
        elif constraint(schema) is not None:
            yield from _compare_added_pattern(found, writer, pattern, schema)
    for pattern, known in writer.pattern_properties.items():
        if pattern not in reader.pattern_properties:
            yield from _compare_removed_pattern(found, reader, pattern, known)


def _compare_added_pattern(
    found: Findings, writer: ObjectForm, pattern: str, schema: Node
) -> Steps[None]:
    """A name that matches may match other patterns of the writer, or none of them."""
    path = ("patternProperties", pattern)
    rest = additional(writer)
    if rest is None:
        found.add(_K.OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL, *path)
        return
    sources = [
        node
        for other, node in writer.pattern_properties.items()
        if not exclude_each_other(pattern, other)
    ]
    for node in (*sources, rest):
        if is_false(node):
            continue
        outcome = yield node, schema
        if not outcome.is_compatible:
            found.merge(outcome, *path)
            found.add(_K.PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL, *path)
            return
    found.add(_K.OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL, *path)


def _compare_removed_pattern(
    found: Findings, reader: ObjectForm, pattern: str, schema: Node
) -> Steps[None]:
    path = ("patternProperties", pattern)
    rest = additional(reader)
    if rest is None:
        found.add(_K.PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL, *path)
    elif is_false(schema):
        found.add(_K.PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL, *path)
    elif is_false(rest):
        found.add(_K.PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL, *path)
    else:
        outcome = yield from compare_into(found, schema, rest, *path)
        found.add(
            _K.PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
            if outcome.is_compatible
            else _K.PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
            *path,
        )


def _compare_additional(found: Findings, writer: ObjectForm, reader: ObjectForm) -> Steps[None]:
    is_unevaluated = reader.unevaluated is not None or (
        writer.unevaluated is not None and reader.additional is None
    )
    keyword = "unevaluatedProperties" if is_unevaluated else "additionalProperties"
    prefix = "UNEVALUATED_PROPERTIES" if is_unevaluated else "ADDITIONAL_PROPERTIES"
    yield from compare_rest(found, additional(writer), additional(reader), keyword, prefix)


def compare_rest(
    found: Findings, writer: Node | None, reader: Node | None, keyword: str, prefix: str
) -> Steps[None]:
    """Compare the schemas of the properties or items that no other keyword describes.

    Args:
        found: Receives the differences.
        writer: The writer's schema, or None for any value.
        reader: The reader's schema, or None for any value.
        keyword: The keyword, such as ``additionalItems``.
        prefix: The first part of the names of its differences, such as ``ADDITIONAL_ITEMS``.
    """
    if is_false(writer) or is_false(reader):
        if not is_false(reader):
            found.add(JsonDifferenceKind[f"{prefix}_ADDED"], keyword)
        elif not is_false(writer):
            found.add(JsonDifferenceKind[f"{prefix}_REMOVED"], keyword)
    elif writer is not None and reader is not None:
        yield from compare_into(found, writer, reader, keyword)
    elif reader is not None:
        found.add(JsonDifferenceKind[f"{prefix}_NARROWED"], keyword)
    elif writer is not None:
        found.add(JsonDifferenceKind[f"{prefix}_EXTENDED"], keyword)


def _compare_dependencies(found: Findings, writer: ObjectForm, reader: ObjectForm) -> Steps[None]:
    for name in {**writer.array_dependencies, **reader.array_dependencies}:
        kind = _dependency_change(
            writer.array_dependencies.get(name), reader.array_dependencies.get(name)
        )
        if kind is not None:
            found.add(kind, "dependencies", name)
    for name in {**writer.schema_dependencies, **reader.schema_dependencies}:
        one, two = writer.schema_dependencies.get(name), reader.schema_dependencies.get(name)
        if one is not None and two is not None:
            yield from compare_into(found, one, two, "dependencies", name)
        elif two is not None:
            found.add(_K.DEPENDENCY_SCHEMA_ADDED, "dependencies", name)
        else:
            found.add(_K.DEPENDENCY_SCHEMA_REMOVED, "dependencies", name)


def _dependency_change(
    writer: frozenset[str] | None, reader: frozenset[str] | None
) -> JsonDifferenceKind | None:
    if writer == reader:
        return None
    if reader is None:
        return _K.DEPENDENCY_ARRAY_REMOVED
    if writer is None:
        return _K.DEPENDENCY_ARRAY_ADDED
    if writer < reader:
        return _K.DEPENDENCY_ARRAY_EXTENDED
    return _K.DEPENDENCY_ARRAY_NARROWED if writer > reader else _K.DEPENDENCY_ARRAY_CHANGED
