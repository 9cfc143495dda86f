"""The properties that the applicators of a schema evaluate, for ``unevaluatedProperties``. Pure.

A closed object that extends another one is usually written as an ``allOf`` of a reference, with
``properties`` and ``"unevaluatedProperties": false``. Its properties are known without a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from odradek.registry.schemas.json_model import (
    CombinedForm,
    Criterion,
    DynamicForm,
    EmptyForm,
    Evaluated,
    FalseForm,
    Form,
    Node,
    ObjectForm,
    ReferenceForm,
    UnevaluatedForm,
    in_place,
    is_false,
)
from odradek.registry.schemas.json_patterns import matches
from odradek.registry.schemas.json_text import Json

NODES_MAX = 1_000
"""Maximum number of nodes that are visited for one schema. Beyond it, nothing is known."""


def with_evaluated(form: UnevaluatedForm, schema: Json) -> UnevaluatedForm:
    """Return the form with the fields that need the complete graph.

    Args:
        form: The form without them.
        schema: The schema's text as a value.
    """
    guaranteed = _guaranteed(form.inner)
    is_closed = isinstance(schema, dict) and schema.get("unevaluatedProperties") is False
    possible = _possible(form.inner) if is_closed and _rejects_properties(form) else None
    if possible is None:
        return replace(form, guaranteed=guaranteed)
    closed = _closed(form.inner, possible)
    return replace(form, guaranteed=guaranteed, possible=possible, closed=closed)


def covers(evaluated: Evaluated, other: Evaluated) -> bool:
    """Whether all properties of the other are certainly among the evaluated ones."""
    if evaluated.everything:
        return True
    if other.everything or not other.patterns <= evaluated.patterns:
        return False
    return all(
        name in evaluated.names or any(matches(each, name) for each in evaluated.patterns)
        for name in other.names
    )


def _rejects_properties(form: UnevaluatedForm) -> bool:
    return "unevaluatedProperties" in form.keywords


def _possible(inner: Node) -> Evaluated | None:
    """Return the properties that some applicator may evaluate, or None if these may be all."""
    names: set[str] = set()
    patterns: set[str] = set()
    count = 0
    for form in _forms(inner, certain=False):
        count += 1
        if count > NODES_MAX or isinstance(form, (DynamicForm, UnevaluatedForm)):
            return None
        if not isinstance(form, ObjectForm):
            continue
        if any(each is not None and not is_false(each) for each in _rests(form)):
            return None
        names.update(form.properties)
        patterns.update(form.pattern_properties)
    return Evaluated(frozenset(names), frozenset(patterns))


def _guaranteed(inner: Node) -> Evaluated:
    """Return properties that are evaluated in each value that the schema accepts."""
    names: set[str] = set()
    patterns: set[str] = set()
    everything = False
    for count, form in enumerate(_forms(inner, certain=True)):
        if count == NODES_MAX:
            break
        if isinstance(form, ObjectForm):
            names.update(form.properties)
            patterns.update(form.pattern_properties)
            # The library `jsonschema` does not count the properties that another schema accepts.
            everything = everything or (
                form.additional is not None and isinstance(form.additional.schema, bool)
            )
    return Evaluated(frozenset(names), frozenset(patterns), everything)


def _rests(form: ObjectForm) -> tuple[Node | None, Node | None]:
    return form.additional, form.unevaluated


def _forms(start: Node, *, certain: bool) -> Iterator[Form]:
    """Yield the forms of the schemas that validate the same value.

    Args:
        start: The schema to begin with.
        certain: Only the schemas that must accept the value.
    """
    seen = {start}
    pending = [start]
    while pending:
        form = pending.pop().form
        yield form
        children = _certain(form) if certain else in_place(form)
        for child in children:
            if child not in seen:
                seen.add(child)
                pending.append(child)


def _certain(form: Form) -> Iterator[Node]:
    if isinstance(form, (ReferenceForm, UnevaluatedForm)):
        yield from in_place(form)
    elif isinstance(form, CombinedForm) and (
        form.criterion is Criterion.ALL or len(form.children) == 1
    ):
        yield from form.children


def _closed(inner: Node, possible: Evaluated) -> Node:
    """Return the schema with its group of object keywords closed to other properties."""
    is_product = isinstance(inner.form, CombinedForm) and inner.form.criterion is Criterion.ALL
    children = list(in_place(inner.form)) if is_product else [inner]
    for position, child in enumerate(children):
        if isinstance(child.form, ObjectForm):
            children[position] = _closed_object(child, child.form, possible)
            break
    else:
        return inner
    if len(children) == 1:
        return children[0]
    return Node(inner.location, {}, CombinedForm(Criterion.ALL, tuple(children)))


def _closed_object(node: Node, form: ObjectForm, possible: Evaluated) -> Node:
    names = {name: Node(node.location, {}, EmptyForm()) for name in sorted(possible.names)}
    patterns = {each: Node(node.location, {}, EmptyForm()) for each in sorted(possible.patterns)}
    closed = replace(
        form,
        properties={**names, **form.properties},
        pattern_properties={**patterns, **form.pattern_properties},
        additional=Node(node.location, False, FalseForm()),
        unevaluated=None,
    )
    return Node(node.location, node.schema, closed)
