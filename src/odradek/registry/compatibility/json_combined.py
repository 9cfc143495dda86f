"""The comparison of ``allOf``, ``anyOf``, ``oneOf``, ``not`` and ``if``. Pure.

The subschemas of the writer are assigned to those of the reader by a maximum matching, as in
Confluent's registry. Deviations from it:

- A value that two alternatives of a ``oneOf`` accept is invalid. So the reader's alternatives must
  not accept values of each other. Confluent treats ``oneOf`` like ``anyOf``.
- Conditions are compared. Confluent ignores all changes of ``if``, ``then`` and ``else``.
- If one schema is combined of a single subschema, the differences of the subschema are reported
  instead of ``TYPE_CHANGED``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.registry.compatibility.json_differences import Findings, JsonDifferenceKind, Outcome
from odradek.registry.compatibility.json_disjoint import Disjointness
from odradek.registry.compatibility.json_matching import maximum_matching
from odradek.registry.compatibility.json_steps import Steps, compare_into, compare_optional
from odradek.registry.schemas.json_model import (
    CombinedForm,
    ConditionalForm,
    Criterion,
    Node,
    NotForm,
)
from odradek.registry.schemas.json_text import Json, value_key

DUPLICATE_VALUES_MAX = 64
"""Subschemas of more JSON values are not tested for duplicates."""


def compare_with_combined(
    found: Findings, writer: Node, reader: CombinedForm, disjointness: Disjointness
) -> Steps[bool]:
    """Compare a schema with a combined one. Return whether the comparison is complete."""
    if len(reader.children) == 1:
        yield from compare_into(found, writer, reader.children[0])
        return True
    if reader.criterion is Criterion.ALL:
        return False
    accepted = False
    for index, child in enumerate(reader.children):
        outcome = yield writer, child
        if not outcome.is_compatible:
            continue
        accepted = True
        if reader.criterion is Criterion.ANY or _is_only_alternative(
            writer, index, reader.children, disjointness
        ):
            found.merge(outcome)
            found.add(JsonDifferenceKind.SUM_TYPE_EXTENDED)
            return True
    if accepted:
        found.add(JsonDifferenceKind.COMBINED_TYPE_SUBSCHEMAS_CHANGED)
    return accepted


def _is_only_alternative(
    writer: Node, index: int, children: Sequence[Node], disjointness: Disjointness
) -> bool:
    """Whether no other alternative accepts a value of the writer."""
    return all(
        disjointness.disjoint(writer, other) or disjointness.disjoint(children[index], other)
        for position, other in enumerate(children)
        if position != index
    )


def compare_combined_with(found: Findings, writer: CombinedForm, reader: Node) -> Steps[bool]:
    """Compare a combined schema with one that is not. Return whether that is complete."""
    if len(writer.children) == 1:
        yield from compare_into(found, writer.children[0], reader)
        return True
    if writer.criterion is not Criterion.ALL:
        return False
    for child in writer.children:
        outcome = yield child, reader
        if outcome.is_compatible:
            found.merge(outcome)
            found.add(JsonDifferenceKind.PRODUCT_TYPE_NARROWED)
            return True
    return False


def compare_combined(
    found: Findings, writer: CombinedForm, reader: CombinedForm, disjointness: Disjointness
) -> Steps[None]:
    """Compare two combined schemas."""
    change = _criterion_change(writer, reader)
    if change is not None:
        found.add(change)
    if change is JsonDifferenceKind.COMBINED_TYPE_CHANGED:
        return
    writers, readers = _distinct(writer), _distinct(reader)
    _compare_sizes(found, writer.criterion, reader.criterion, len(readers) - len(writers))
    outcomes = yield from _compatible_pairs(writers, readers)
    matching = maximum_matching(_edges(len(writers), outcomes))
    for left, right in matching.items():
        found.merge(outcomes[left, right], writer.criterion.value, str(left))
    if len(matching) < min(len(writers), len(readers)):
        found.add(JsonDifferenceKind.COMBINED_TYPE_SUBSCHEMAS_CHANGED)
    elif reader.criterion is Criterion.ONE:
        exclusive = writer.criterion is Criterion.ONE
        yield from _compare_alternatives(
            found, writers, readers, matching, disjointness, exclusive=exclusive
        )


def compare_not(found: Findings, writer: NotForm, reader: NotForm) -> Steps[None]:
    """Compare two negations: the reader must not reject more values."""
    outcome = yield reader.child, writer.child
    if not outcome.is_compatible:
        found.add(JsonDifferenceKind.NOT_TYPE_EXTENDED, "not")
    elif outcome.differences:
        found.add(JsonDifferenceKind.NOT_TYPE_NARROWED, "not")


def compare_conditional(
    found: Findings, writer: ConditionalForm, reader: ConditionalForm
) -> Steps[None]:
    """Compare two conditional schemas. Their conditions must accept the same values."""
    forth = yield writer.condition, reader.condition
    back = yield reader.condition, writer.condition
    if not (forth.is_compatible and back.is_compatible):
        found.add(JsonDifferenceKind.COMBINED_TYPE_SUBSCHEMAS_CHANGED, "if")
        return
    yield from compare_optional(found, writer.consequence, reader.consequence, "then")
    yield from compare_optional(found, writer.alternative, reader.alternative, "else")


def _criterion_change(writer: CombinedForm, reader: CombinedForm) -> JsonDifferenceKind | None:
    if writer.criterion is reader.criterion:
        return None
    single_writer, single_reader = len(writer.children) == 1, len(reader.children) == 1
    if (
        reader.criterion is Criterion.ANY
        or (single_writer and single_reader)
        or (single_writer and reader.criterion is Criterion.ONE)
        or (single_reader and writer.criterion is Criterion.ALL)
    ):
        return JsonDifferenceKind.COMBINED_TYPE_EXTENDED
    return JsonDifferenceKind.COMBINED_TYPE_CHANGED


def _compare_sizes(found: Findings, writer: Criterion, reader: Criterion, growth: int) -> None:
    if growth > 0:
        is_product = reader is Criterion.ALL
        found.add(
            JsonDifferenceKind.PRODUCT_TYPE_EXTENDED
            if is_product
            else JsonDifferenceKind.SUM_TYPE_EXTENDED
        )
    elif growth < 0:
        is_product = writer is Criterion.ALL
        found.add(
            JsonDifferenceKind.PRODUCT_TYPE_NARROWED
            if is_product
            else JsonDifferenceKind.SUM_TYPE_NARROWED
        )


def _distinct(form: CombinedForm) -> tuple[Node, ...]:
    """Return the subschemas without duplicates. Duplicates in a ``oneOf`` have a meaning."""
    if form.criterion is Criterion.ONE:
        return form.children
    seen: set[str] = set()
    distinct: list[Node] = []
    for child in form.children:
        key = _duplicate_key(child.schema)
        if key is None or key not in seen:
            distinct.append(child)
        if key is not None:
            seen.add(key)
    return tuple(distinct)


def _duplicate_key(schema: Json) -> str | None:
    """Return a text that equal schemas share, or None for a group of keywords or a large schema."""
    if schema == {}:
        return None
    count = 0
    pending = [schema]
    while pending:
        item = pending.pop()
        if isinstance(item, (dict, list)):
            count += len(item)
            if count > DUPLICATE_VALUES_MAX:
                return None
            pending.extend(item.values() if isinstance(item, dict) else item)
    return value_key(schema)


def _compatible_pairs(
    writers: Sequence[Node], readers: Sequence[Node]
) -> Steps[dict[tuple[int, int], Outcome]]:
    compatible: dict[tuple[int, int], Outcome] = {}
    for left, writer in enumerate(writers):
        for right, reader in enumerate(readers):
            outcome = yield writer, reader
            if outcome.is_compatible:
                compatible[left, right] = outcome
    return compatible


def _edges(count: int, pairs: Mapping[tuple[int, int], Outcome]) -> dict[int, list[int]]:
    """Return the right vertices of each left one, with the same position first."""
    edges: dict[int, list[int]] = {left: [] for left in range(count)}
    for left, right in pairs:
        edges[left].append(right)
    return {left: _position_first(left, rights) for left, rights in edges.items()}


def _position_first(position: int, rights: list[int]) -> list[int]:
    return [r for r in rights if r == position] + [r for r in rights if r != position]


def _compare_alternatives(
    found: Findings,
    writers: Sequence[Node],
    readers: Sequence[Node],
    matching: Mapping[int, int],
    disjointness: Disjointness,
    *,
    exclusive: bool,
) -> Steps[None]:
    """Add a difference if a second alternative of the reader may accept a value of the writer.

    Let a value be accepted by the writer's alternative ``i`` and by the reader's ``j``, to which
    ``i`` is assigned. Another alternative of the reader rejects the value in these cases:

    - It accepts no value of ``i`` or of ``j``.
    - The writer is a ``oneOf`` (`exclusive`), and another of its alternatives, which thus rejects
      the value, accepts all values that this one accepts.
    """
    left_of = {right: left for left, right in matching.items()}
    covered: dict[int, bool] = {}
    for left, right in matching.items():
        for other, alternative in enumerate(readers):
            if other == right or _apart(alternative, writers[left], readers[right], disjointness):
                continue
            if exclusive and other in left_of:
                if other not in covered:
                    outcome = yield alternative, writers[left_of[other]]
                    covered[other] = outcome.is_compatible
                if covered[other]:
                    continue
            found.add(JsonDifferenceKind.COMBINED_TYPE_SUBSCHEMAS_CHANGED)
            return


def _apart(alternative: Node, writer: Node, reader: Node, disjointness: Disjointness) -> bool:
    return disjointness.disjoint(writer, alternative) or disjointness.disjoint(reader, alternative)
