"""`odradek schema diff`: the texts of two versions, and which of them reads the data of the other.

The compatibility rules run here, because a registry checks only the direction of its level.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.client import JsonOutput
from odradek.cli.output import CommandError, print_json
from odradek.cli.registry_access import (
    DEFAULT_REGISTRY,
    PasswordFile,
    RegistryUrl,
    RegistryUser,
    registry,
)
from odradek.cli.schema_files import parse_version

if TYPE_CHECKING:
    from odradek.registry.client import RegistryClient, StoredSchema
    from odradek.registry.schemas.parsed import ParsedSchema

CONTEXT_LINES = 3


def diff(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT")],
    old: Annotated[
        str | None,
        typer.Argument(metavar="[OLD]", help="Version (default: the one before NEW)."),
    ] = None,
    new: Annotated[str, typer.Argument(metavar="[NEW]", help="Version or latest.")] = "latest",
    as_json: JsonOutput = False,
    registry_url: RegistryUrl = DEFAULT_REGISTRY,
    user: RegistryUser = None,
    password_file: PasswordFile = None,
) -> None:
    """Show the difference of two versions, and whether each can read the data of the other.

    Avro and JSON schemas are indented before they are compared.
    """
    with registry(registry_url, user, password_file) as client:
        later = client.version(subject, parse_version(new), deleted=True)
        number = parse_version(old) if old is not None else _before(client, subject, later)
        earlier = client.version(subject, number, deleted=True)
        older, newer = _parse(client, earlier), _parse(client, later)
    lines = list(unified(subject, earlier, later))
    backward, forward = _reasons(newer, older, "new", "old"), _reasons(older, newer, "old", "new")
    if as_json:
        print_json(
            {
                "subject": subject,
                "old": earlier.version,
                "new": later.version,
                "diff": lines,
                "backward": {"compatible": not backward, "reasons": backward},
                "forward": {"compatible": not forward, "reasons": forward},
            }
        )
        return
    print("\n".join(lines) if lines else "the texts are equal")
    print()
    _print_direction(later, earlier, backward, "backward")
    _print_direction(earlier, later, forward, "forward")


def unified(subject: str, earlier: StoredSchema, later: StoredSchema) -> Iterator[str]:
    """Yield the lines of the unified diff of two schemas."""
    return difflib.unified_diff(
        pretty(earlier).splitlines(),
        pretty(later).splitlines(),
        f"{subject} version {earlier.version}",
        f"{subject} version {later.version}",
        n=CONTEXT_LINES,
        lineterm="",
    )


def pretty(schema: StoredSchema) -> str:
    """Return the text with one JSON value on each line. Other texts stay as they are."""
    try:
        value = json.loads(schema.text)
    except (ValueError, RecursionError):
        return schema.text
    return json.dumps(value, indent=2, ensure_ascii=False)


def _before(client: RegistryClient, subject: str, later: StoredSchema) -> int:
    """Return the version before `later`."""
    earlier = [each for each in client.versions(subject) if each < (later.version or 0)]
    if not earlier:
        raise CommandError(f"Subject '{subject}' has no version before {later.version}.")
    return earlier[-1]


def _parse(client: RegistryClient, schema: StoredSchema) -> ParsedSchema:
    from odradek.registry.schemas.parsed import InvalidSchema, SchemaKind
    from odradek.registry.schemas.parsers import Parsers

    name = f"{schema.subject} version {schema.version}"
    try:
        kind = SchemaKind(schema.kind)
    except ValueError:
        raise CommandError(f"{name} is of the unknown kind {schema.kind}.") from None
    try:
        return Parsers().parse(kind, schema.text, client.resolve(schema), stored=True)
    except InvalidSchema as error:
        raise CommandError(f"{name} is not a valid schema: {error}") from None


def _reasons(reader: ParsedSchema, writer: ParsedSchema, *roles: str) -> list[str]:
    """Return why `reader` cannot read data of `writer`, with the roles of both in the texts."""
    from odradek.registry.compatibility.levels import check

    found = []
    for text in check(reader, writer):
        for role in roles:
            text = text.replace("%s", role, 1)
        found.append(text)
    return found


def _print_direction(
    reader: StoredSchema, writer: StoredSchema, reasons: list[str], name: str
) -> None:
    verb = "cannot read" if reasons else "reads"
    print(f"version {reader.version} {verb} data of version {writer.version} ({name})")
    for reason in reasons:
        print(f"  {reason}")
