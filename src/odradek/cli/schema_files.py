"""Schemas that the command line names: a file, its kind and its references."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.cli.output import CommandError

if TYPE_CHECKING:
    from odradek.registry.client import StoredSchema, Version
    from odradek.registry.schemas.parsed import Reference, SchemaKind

KINDS = ("AVRO", "JSON", "PROTOBUF")
STANDARD_INPUT = Path("-")

_KIND_OF_SUFFIX = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


def read_schema(file: Path, kind: str | None, references: list[str]) -> StoredSchema:
    """Return the schema of a file.

    Args:
        file: The file; ``-`` is standard input.
        kind: Its kind, or None for the kind of the suffix.
        references: References of the form NAME=SUBJECT:VERSION.

    Raises:
        CommandError: The file cannot be read, its kind is unknown, or a reference has another form.
    """
    from odradek.registry.client import StoredSchema

    found_kind = _kind(file, kind)
    found_references = tuple(map(_reference, references))
    return StoredSchema(_read(file), found_kind, found_references)


def parse_version(text: str) -> Version:
    """Return a version of the command line: a number, or ``latest``."""
    if text == "latest":
        return "latest"
    if not (text.isascii() and text.isdigit()):
        raise CommandError(f"A version is a number or latest, not {text!r}.")
    return int(text)


def _kind(file: Path, kind: str | None) -> SchemaKind:
    """Return the kind of the option --type, or of the suffix of a file."""
    from odradek.registry.schemas.parsed import SchemaKind

    name = kind.upper() if kind is not None else _KIND_OF_SUFFIX.get(file.suffix.lower())
    if name is None:
        raise CommandError(
            f"{file}: the suffix names no kind of schema. Add --type, one of {', '.join(KINDS)}."
        )
    if name not in KINDS:
        raise CommandError(f"--type is one of {', '.join(KINDS)}, not {kind!r}.")
    return SchemaKind(name)


def _read(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
        return data.decode()
    except UnicodeDecodeError:
        raise CommandError(f"{file} is not UTF-8.") from None
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}.") from None


def _reference(text: str) -> Reference:
    from odradek.registry.schemas.parsed import Reference

    name, _, rest = text.rpartition("=")
    subject, _, version = rest.rpartition(":")
    if not name or not subject or not (version.isascii() and version.isdigit()):
        raise CommandError(f"--reference takes NAME=SUBJECT:VERSION, not {text!r}.")
    return Reference(name, subject, int(version))
