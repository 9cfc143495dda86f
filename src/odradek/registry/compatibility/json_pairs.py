"""The comparison of two schemas by their forms. Pure."""

from __future__ import annotations

from odradek.registry.compatibility.json_arrays import compare_arrays
from odradek.registry.compatibility.json_combined import (
    compare_combined,
    compare_combined_with,
    compare_conditional,
    compare_not,
    compare_with_combined,
)
from odradek.registry.compatibility.json_differences import Findings, JsonDifferenceKind
from odradek.registry.compatibility.json_disjoint import Disjointness
from odradek.registry.compatibility.json_objects import compare_objects
from odradek.registry.compatibility.json_scalars import (
    compare_constants,
    compare_enumerations,
    compare_numbers,
    compare_strings,
)
from odradek.registry.compatibility.json_steps import Steps, compare_into
from odradek.registry.schemas.json_evaluated import covers
from odradek.registry.schemas.json_model import (
    ArrayForm,
    CombinedForm,
    ConditionalForm,
    ConstForm,
    DynamicForm,
    EmptyForm,
    EnumForm,
    FalseForm,
    Form,
    Node,
    NotForm,
    NumberForm,
    ObjectForm,
    StringForm,
    UnevaluatedForm,
)

_ANNOTATIONS = (
    ("$id", JsonDifferenceKind.ID_CHANGED),
    ("id", JsonDifferenceKind.ID_CHANGED),
    ("title", JsonDifferenceKind.TITLE_CHANGED),
    ("description", JsonDifferenceKind.DESCRIPTION_CHANGED),
    ("default", JsonDifferenceKind.DEFAULT_CHANGED),
)

_UNEVALUATED = {
    "unevaluatedItems": JsonDifferenceKind.UNEVALUATED_ITEMS_NARROWED,
    "unevaluatedProperties": JsonDifferenceKind.UNEVALUATED_PROPERTIES_NARROWED,
}


def compare_pair(
    found: Findings, writer: Node, reader: Node, disjointness: Disjointness
) -> Steps[None]:
    """Compare two schemas that are not references.

    Confluent accepts a change between any two schemas with ``"connect.type": "bytes"``. They are
    compared here.
    """
    if isinstance(writer.form, FalseForm) or isinstance(reader.form, EmptyForm):
        if type(writer.form) is type(reader.form):
            _compare_annotations(found, writer, reader)
        return
    if isinstance(reader.form, UnevaluatedForm):
        yield from _compare_with_unevaluated(found, writer, reader.form)
    elif isinstance(writer.form, UnevaluatedForm):
        yield from compare_into(found, writer.form.closed or writer.form.inner, reader)
    elif not (yield from _compare_unlike(found, writer, reader, disjointness)):
        yield from _compare_alike(found, writer, reader, disjointness)


def _compare_unlike(
    found: Findings, writer: Node, reader: Node, disjointness: Disjointness
) -> Steps[bool]:
    """Compare a combined schema and one that is not. Return whether the comparison is complete."""
    one, two = writer.form, reader.form
    if isinstance(two, CombinedForm) and not isinstance(one, CombinedForm):
        return (yield from compare_with_combined(found, writer, two, disjointness))
    if isinstance(one, CombinedForm) and not isinstance(two, CombinedForm):
        return (yield from compare_combined_with(found, one, reader))
    return False


def _compare_alike(
    found: Findings, writer: Node, reader: Node, disjointness: Disjointness
) -> Steps[None]:
    one, two = writer.form, reader.form
    if type(one) is not type(two) or isinstance(two, DynamicForm):
        found.add(JsonDifferenceKind.TYPE_CHANGED)
        return
    _compare_annotations(found, writer, reader)
    _compare_scalars(found, one, two)
    if isinstance(one, CombinedForm) and isinstance(two, CombinedForm):
        yield from compare_combined(found, one, two, disjointness)
    elif isinstance(one, NotForm) and isinstance(two, NotForm):
        yield from compare_not(found, one, two)
    elif isinstance(one, ConditionalForm) and isinstance(two, ConditionalForm):
        yield from compare_conditional(found, one, two)
    elif isinstance(one, ObjectForm) and isinstance(two, ObjectForm):
        yield from compare_objects(found, one, two)
    elif isinstance(one, ArrayForm) and isinstance(two, ArrayForm):
        yield from compare_arrays(found, one, two)


def _compare_scalars(found: Findings, writer: Form, reader: Form) -> None:
    if isinstance(writer, StringForm) and isinstance(reader, StringForm):
        compare_strings(found, writer, reader)
    elif isinstance(writer, NumberForm) and isinstance(reader, NumberForm):
        compare_numbers(found, writer, reader)
    elif isinstance(writer, EnumForm) and isinstance(reader, EnumForm):
        compare_enumerations(found, writer, reader)
    elif isinstance(writer, ConstForm) and isinstance(reader, ConstForm):
        compare_constants(found, writer, reader)


def _compare_annotations(found: Findings, writer: Node, reader: Node) -> None:
    for keyword, kind in _ANNOTATIONS:
        if writer.annotation(keyword) != reader.annotation(keyword):
            found.add(kind)


def _compare_with_unevaluated(
    found: Findings, writer: Node, reader: UnevaluatedForm
) -> Steps[None]:
    """Compare with a reader whose unevaluated properties or items depend on other applicators.

    The keyword has no effect on properties that the reader always evaluates. Which other values it
    rejects depends on annotations, so the writer must be the same schema.
    """
    form = writer.form
    possible = None
    if isinstance(form, UnevaluatedForm):
        if form.fingerprint is not None and form.fingerprint == reader.fingerprint:
            return
        possible = form.possible
        writer = form.closed or form.inner
    for keyword in sorted(reader.keywords):
        is_of_properties = keyword == "unevaluatedProperties"
        if not (is_of_properties and possible and covers(reader.guaranteed, possible)):
            found.add(_UNEVALUATED[keyword], keyword)
    yield from compare_into(found, writer, reader.inner)
