"""The steps of a comparison. Pure.

A comparison of two schemas is a generator. It yields a pair of subschemas, the writer's first, and
receives the outcome of their comparison. The stack of Python therefore does not limit the depth of
schemas, and one component decides about cycles, limits and repeated pairs.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

from odradek.registry.compatibility.json_differences import Findings, JsonDifferenceKind, Outcome
from odradek.registry.schemas.json_model import Node, Number, constraint

T = TypeVar("T")

Pair: TypeAlias = tuple[Node, Node]
"""A schema of the writer and one of the reader."""

Steps: TypeAlias = Generator[Pair, Outcome, T]


def compare_into(found: Findings, writer: Node, reader: Node, *path: str) -> Steps[Outcome]:
    """Compare two subschemas, add their differences at a path, and return the outcome."""
    outcome = yield writer, reader
    found.merge(outcome, *path)
    return outcome


def compare_optional(
    found: Findings, writer: Node | None, reader: Node | None, *path: str
) -> Steps[None]:
    """Compare two subschemas that may be absent. An absent one accepts every value."""
    writer, reader = constraint(writer), constraint(reader)
    if writer is not None and reader is not None:
        yield from compare_into(found, writer, reader, *path)
    elif reader is not None:
        found.add(JsonDifferenceKind.SCHEMA_ADDED, *path)
    elif writer is not None:
        found.add(JsonDifferenceKind.SCHEMA_REMOVED, *path)


def compare_typed(found: Findings, writer_typed: bool, reader_typed: bool) -> None:
    """Compare whether the schemas accept values of other types.

    Confluent does not compare this: ``{"maxLength": 3}`` accepts numbers.
    """
    if reader_typed and not writer_typed:
        found.add(JsonDifferenceKind.TYPE_NARROWED)
    elif writer_typed and not reader_typed:
        found.add(JsonDifferenceKind.TYPE_EXTENDED)


def compare_limit(
    found: Findings, keyword: str, prefix: str, writer: Number | None, reader: Number | None
) -> None:
    """Compare a limit.

    Args:
        found: Receives the difference.
        keyword: The keyword, such as ``maxLength``.
        prefix: The first part of the names of its differences, such as ``MAX_LENGTH``.
        writer: The writer's limit.
        reader: The reader's limit.
    """
    if reader is None:
        if writer is not None:
            found.add(JsonDifferenceKind[f"{prefix}_REMOVED"], keyword)
    elif writer is None:
        found.add(JsonDifferenceKind[f"{prefix}_ADDED"], keyword)
    elif writer < reader:
        found.add(JsonDifferenceKind[f"{prefix}_INCREASED"], keyword)
    elif writer > reader:
        found.add(JsonDifferenceKind[f"{prefix}_DECREASED"], keyword)
