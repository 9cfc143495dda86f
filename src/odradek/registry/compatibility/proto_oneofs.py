"""Compares the oneofs of two versions of a message. Pure.

A field belongs to the same oneof by its number, not by the name of the oneof. Fields that the
writer sets independently must not exclude each other in the reader, because the reader would keep
only the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.registry.compatibility.proto_differences import ProtoDifferenceKind
from odradek.registry.compatibility.proto_types import Field

Fields = Mapping[int, Field]
"""The fields of a message by number."""


def compare_oneofs(original: Fields, update: Fields) -> Iterator[tuple[ProtoDifferenceKind, str]]:
    """Yield the differences between the oneofs of two messages, each with the oneof's name."""
    old, new = _members(original), _members(update)
    for name, members in new.items():
        kind = _newly_exclusive(members, original)
        if kind is not None:
            yield kind, name
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield ProtoDifferenceKind.ONEOF_REMOVED, name
        elif name not in old:
            yield ProtoDifferenceKind.ONEOF_ADDED, name


def removed_oneofs(original: Fields, update: Fields) -> set[str]:
    """Return the oneofs that the update lacks together with all their fields.

    Confluent's rules accept the removal of a whole oneof, but not of single members.
    """
    new = _members(update)
    return {
        name
        for name, members in _members(original).items()
        if name not in new and not any(number in update for number in members)
    }


def _members(fields: Fields) -> dict[str, list[int]]:
    members: dict[str, list[int]] = {}
    for number, field in fields.items():
        if field.oneof is not None:
            members.setdefault(field.oneof, []).append(number)
    return members


def _newly_exclusive(members: list[int], original: Fields) -> ProtoDifferenceKind | None:
    """Return the difference if members could be set at the same time in the original."""
    existing = [number for number in members if number in original]
    alone = [number for number in existing if original[number].oneof is None]
    groups = {original[number].oneof for number in existing} - {None}
    if len(alone) + len(groups) < 2:
        return None
    if len(alone) > 1:
        return ProtoDifferenceKind.MULTIPLE_FIELDS_MOVED_TO_ONEOF
    return ProtoDifferenceKind.FIELD_MOVED_TO_EXISTING_ONEOF
