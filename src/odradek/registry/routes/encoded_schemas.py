"""Encoded responses to ``GET /schemas/ids/{id}``, in a cache that is limited in bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from odradek.registry.json_value import encode_json
from odradek.registry.routes.responses import EncodedJson
from odradek.registry.schema_version import SchemaVersion, schema_string_json
from odradek.registry.subjects import QualifiedSubject

ENCODED_BYTES_MAX = 16 * 1_048_576
"""Maximum estimated size of the encoded responses in the cache of one instance."""

BYTES_PER_ENTRY = 512
"""Estimated memory of an entry with an empty body."""

_Key: TypeAlias = tuple[QualifiedSubject, int, bool]


class EncodedSchemas:
    """The cache of encoded responses. The event loop owns it.

    An entry is valid for one `SchemaVersion` object. The state replaces that object when the
    version changes, so an entry is never stale.
    """

    def __init__(self, bytes_max: int = ENCODED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._cached: OrderedDict[_Key, tuple[SchemaVersion, EncodedJson]] = OrderedDict()
        self._cached_bytes = 0

    def encoded(self, version: SchemaVersion, *, with_subject: bool) -> EncodedJson:
        """Return the body for a version.

        Args:
            version: The version that has the id of the request.
            with_subject: Whether the body names the subject and the version.
        """
        key = (version.subject, version.version, with_subject)
        entry = self._cached.get(key)
        if entry is not None and entry[0] is version:
            self._cached.move_to_end(key)
            return entry[1]
        body = EncodedJson(encode_json(schema_string_json(version, with_subject=with_subject)))
        self._keep(key, version, body)
        return body

    def _keep(self, key: _Key, version: SchemaVersion, body: EncodedJson) -> None:
        replaced = self._cached.pop(key, None)
        if replaced is not None:
            self._cached_bytes -= _weight(replaced[1])
        if _weight(body) > self._bytes_max:
            return
        self._cached[key] = (version, body)
        self._cached_bytes += _weight(body)
        while self._cached_bytes > self._bytes_max:
            _, (_, oldest) = self._cached.popitem(last=False)
            self._cached_bytes -= _weight(oldest)


def _weight(body: EncodedJson) -> int:
    return BYTES_PER_ENTRY + len(body.body)
