"""Parses a schema of any kind, and keeps parsed schemas in a cache that is limited in bytes.

The libraries of a kind are imported by the first schema of this kind, because a start needs none of
them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from odradek.registry.schemas.parsed import (
    InvalidSchema,
    ParsedSchema,
    ResolvedReference,
    SchemaKind,
    resolved_text,
    text_digest,
)

CACHE_BYTES_MAX = 24 * 1_048_576
"""Maximum estimated size of all parsed schemas in the cache of one `Parsers`."""

BYTES_PER_CHARACTER = 24
"""Estimated memory of a parsed schema per character of its text and of its references."""

BYTES_PER_SCHEMA = 2_048
"""Estimated memory of a parsed schema with an empty text."""

DIGESTS_MAX = 20_000
"""Maximum number of stored texts whose digests are kept, in about 250 bytes each."""

Parse = Callable[[str, tuple[ResolvedReference, ...]], ParsedSchema]


@dataclass(frozen=True, slots=True)
class _Key:
    kind: SchemaKind
    text: str
    references: tuple[ResolvedReference, ...]
    stored: bool

    def digest(self, resolved: bool) -> bytes:
        """Return a hash of the key and of the form of the text."""
        parts = [str(resolved), self.kind.value, self.text]
        parts += [part for each in self.references for part in (each.name, each.text)]
        return text_digest("".join(f"{len(part)}:{part}" for part in parts))

    def weight(self) -> int:
        texts = sum(len(each.text) + len(each.name) for each in self.references)
        return BYTES_PER_SCHEMA + BYTES_PER_CHARACTER * (len(self.text) + texts)


class Parsers:
    """The parser of each kind behind one cache.

    Several threads may use one instance. Two threads that miss the same schema at the same time
    both parse it, and the cache keeps one of the results.
    """

    def __init__(self, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._cache_bytes_max = cache_bytes_max
        self._lock = Lock()
        self._cached: OrderedDict[_Key, ParsedSchema] = OrderedDict()
        self._cached_bytes = 0
        self._digests: OrderedDict[bytes, bytes | None] = OrderedDict()

    def digest(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        resolved: bool = False,
    ) -> bytes | None:
        """Return the digest of the canonical text of a stored schema. It is computed once.

        A search through all versions of a subject would remove all other schemas from the cache of
        parsed schemas. Therefore it compares digests.

        Args:
            kind: The kind of the schema.
            text: The text of the schema.
            references: As for `parse`.
            resolved: Whether to return the digest of the text with the definitions of references.

        Returns:
            The digest, or None if the text is not a valid schema of its kind.
        """
        parse_key = _Key(kind, text, references, stored=True)
        key = parse_key.digest(resolved)
        with self._lock:
            if key in self._digests:
                self._digests.move_to_end(key)
                return self._digests[key]
            parsed = self._cached.get(parse_key)
        try:
            parsed = parsed or _parser(kind, stored=True)(text, references)
        except InvalidSchema:
            digest = None
        else:
            digest = text_digest(resolved_text(parsed) if resolved else parsed.canonical)
        with self._lock:
            self._digests[key] = digest
            if len(self._digests) > DIGESTS_MAX:
                self._digests.popitem(last=False)
        return digest

    def parse(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        stored: bool = False,
    ) -> ParsedSchema:
        """Return the parsed schema from the cache, or parse it.

        Args:
            kind: The kind of the schema.
            text: The text of the schema.
            references: The texts of all references, transitively, in the order of dependency.
            stored: The text was registered before. Names and defaults, which earlier versions of
                Confluent's registry did not validate, are not validated again.

        Raises:
            InvalidSchema: The text is not a valid schema of its kind.
        """
        key = _Key(kind, text, references, stored)
        with self._lock:
            found = self._cached.get(key)
            if found is not None:
                self._cached.move_to_end(key)
                return found
        parsed = _parser(kind, stored)(text, references)
        self._keep(key, parsed)
        return parsed

    def _keep(self, key: _Key, parsed: ParsedSchema) -> None:
        weight = key.weight()
        if weight > self._cache_bytes_max:
            return
        with self._lock:
            if key in self._cached:
                return
            self._cached[key] = parsed
            self._cached_bytes += weight
            while self._cached_bytes > self._cache_bytes_max:
                oldest, _ = self._cached.popitem(last=False)
                self._cached_bytes -= oldest.weight()


def _parser(kind: SchemaKind, stored: bool) -> Parse:
    match kind:
        case SchemaKind.AVRO:
            from odradek.registry.schemas import avro

            return avro.parse_stored if stored else avro.parse
        case SchemaKind.JSON:
            from odradek.registry.schemas import json_schema

            return json_schema.parse
        case SchemaKind.PROTOBUF:
            from odradek.registry.schemas import protobuf

            return protobuf.parse
