"""The comparison of arrays. Pure.

Items have schemas by position, and one schema for the rest (``items``, ``additionalItems`` or
``unevaluatedItems``). As with the properties of objects, the content model is open, closed or
partially open.

Deviations from Confluent's registry:

- The schema in ``contains`` is compared. Confluent compares only ``minContains`` and
  ``maxContains``.
- ``additionalItems`` without schemas by position has no effect and is not compared.
- A change between one schema for all items and schemas by position compares them.
"""

from __future__ import annotations

from odradek.registry.compatibility.json_differences import Findings, JsonDifferenceKind
from odradek.registry.compatibility.json_objects import compare_rest
from odradek.registry.compatibility.json_steps import (
    Steps,
    compare_into,
    compare_limit,
    compare_optional,
    compare_typed,
)
from odradek.registry.schemas.json_model import ArrayForm, Node, Number, constraint, is_false

_K = JsonDifferenceKind


def compare_arrays(found: Findings, writer: ArrayForm, reader: ArrayForm) -> Steps[None]:
    """Compare the keywords of arrays."""
    compare_typed(found, writer.typed, reader.typed)
    if writer.prefix or reader.prefix:
        yield from _compare_positions(found, writer, reader)
    yield from _compare_rest(found, writer, reader)
    yield from _compare_contains(found, writer, reader)
    compare_limit(found, "maxItems", "MAX_ITEMS", writer.max_items, reader.max_items)
    compare_limit(found, "minItems", "MIN_ITEMS", writer.min_items, reader.min_items)
    if reader.unique and not writer.unique:
        found.add(_K.UNIQUE_ITEMS_ADDED, "uniqueItems")
    elif writer.unique and not reader.unique:
        found.add(_K.UNIQUE_ITEMS_REMOVED, "uniqueItems")


def _rest(form: ArrayForm) -> Node | None:
    """Return the schema of the items after those by position, or None for any value."""
    return constraint(form.rest if form.rest is not None else form.unevaluated)


def _compare_rest(found: Findings, writer: ArrayForm, reader: ArrayForm) -> Steps[None]:
    is_unevaluated = reader.unevaluated is not None or (
        writer.unevaluated is not None and reader.rest is None
    )
    schemas = _rest(writer), _rest(reader)
    if is_unevaluated:
        yield from compare_rest(found, *schemas, "unevaluatedItems", "UNEVALUATED_ITEMS")
    elif writer.prefix or reader.prefix:
        yield from compare_rest(found, *schemas, "additionalItems", "ADDITIONAL_ITEMS")
    else:
        yield from compare_optional(found, *schemas, "items")


def _compare_positions(found: Findings, writer: ArrayForm, reader: ArrayForm) -> Steps[None]:
    shared = min(len(writer.prefix), len(reader.prefix))
    for index in range(shared):
        pair = writer.prefix[index], reader.prefix[index]
        yield from compare_into(found, *pair, "items", str(index))
    for index in range(shared, len(writer.prefix)):
        yield from _compare_removed(found, writer.prefix[index], _rest(reader), str(index))
    for index in range(shared, len(reader.prefix)):
        yield from _compare_added(found, _rest(writer), reader.prefix[index], str(index))


def _compare_removed(found: Findings, writer: Node, rest: Node | None, index: str) -> Steps[None]:
    if rest is None:
        found.add(_K.ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL, "items", index)
    elif not is_false(rest):
        outcome = yield from compare_into(found, writer, rest, "items", index)
        found.add(
            _K.ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
            if outcome.is_compatible
            else _K.ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
            "items",
            index,
        )
    elif is_false(writer):
        found.add(_K.ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL, "items", index)
    else:
        found.add(_K.ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL, "items", index)


def _compare_added(found: Findings, rest: Node | None, reader: Node, index: str) -> Steps[None]:
    if rest is None:
        found.add(
            _K.ITEM_ADDED_TO_OPEN_CONTENT_MODEL
            if constraint(reader) is not None
            else _K.ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL,
            "items",
            index,
        )
    elif is_false(rest):
        found.add(_K.ITEM_ADDED_TO_CLOSED_CONTENT_MODEL, "items", index)
    else:
        outcome = yield from compare_into(found, rest, reader, "items", index)
        found.add(
            _K.ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
            if outcome.is_compatible
            else _K.ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
            "items",
            index,
        )


def _compare_contains(found: Findings, writer: ArrayForm, reader: ArrayForm) -> Steps[None]:
    """Compare how many items ``contains`` accepts at least and at most."""
    least = _least(writer), _least(reader)
    most = writer.max_contains, reader.max_contains
    compare_limit(found, "minContains", "MIN_CONTAINS", *least)
    compare_limit(found, "maxContains", "MAX_CONTAINS", *most)
    if writer.contains is None or reader.contains is None:
        return
    if least[1] is not None:
        yield from compare_into(found, writer.contains, reader.contains, "contains")
    if most[1] is not None:
        back = yield reader.contains, writer.contains
        if not back.is_compatible:
            found.add(_K.TYPE_CHANGED, "contains")


def _least(form: ArrayForm) -> Number | None:
    """Return the effective ``minContains``, which is 1 by default, or None for no minimum."""
    if form.contains is None or form.min_contains == 0:
        return None
    return 1 if form.min_contains is None else form.min_contains
