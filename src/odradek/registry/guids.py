"""The guid of a schema: a hash of its content that is equal in all contexts. Pure.

Confluent's registry (``Schema.updateHash``) computes MD5 over the UTF-8 texts of the schema, its
references, its metadata and its rule set, and writes the 16 bytes as a UUID.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable

from odradek.registry.metadata import Metadata
from odradek.registry.rules import RuleSet
from odradek.registry.schemas.parsed import Reference

PRESENT = b"\x01"
"""The byte before metadata and before a rule set, so that an empty one differs from none."""


def guid_of(
    text: str,
    references: Iterable[Reference],
    metadata: Metadata | None,
    rule_set: RuleSet | None,
) -> str:
    """Return the guid of a schema's content."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode())
        digest.update(reference.subject.encode())
        digest.update(reference.version.to_bytes(4, "big", signed=True))
    for part in (metadata, rule_set):
        if part is not None:
            digest.update(PRESENT)
            digest.update("".join(part.hash_parts()).encode())
    name = digest.hexdigest()
    return f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}"


def parse_guid(text: str) -> str | None:
    """Return a guid in its canonical form, or None if the text is not a UUID."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None
