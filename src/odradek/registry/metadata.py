"""Metadata of a schema: tags, properties and the names of sensitive properties. Pure.

The registry stores and returns metadata. Only ``confluent:version`` has a meaning for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from odradek.registry.json_value import JsonFields, JsonObject, JsonValue, WrongType

VERSION_PROPERTY = "confluent:version"
"""The property that a client sets to have its own version number stored in the metadata."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata in Confluent's canonical form: entries and names are sorted and unique."""

    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    sensitive: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: JsonValue) -> Metadata | None:
        """Return the metadata of a field, or None for null.

        Raises:
            WrongType: A value has a wrong type.
        """
        if value is None:
            return None
        fields = JsonFields(value, "metadata")
        tags = ((path, _names(names)) for path, names in fields.entries("tags"))
        return cls(
            tags=tuple(sorted(tags)),
            properties=fields.text_entries("properties"),
            sensitive=tuple(sorted(set(fields.texts("sensitive")))),
        )

    def to_json(self) -> JsonObject:
        """Return the JSON form. Empty fields are omitted."""
        json: JsonObject = {}
        if self.tags:
            json["tags"] = {path: list(names) for path, names in self.tags}
        if self.properties:
            json["properties"] = dict(self.properties)
        if self.sensitive:
            json["sensitive"] = list(self.sensitive)
        return json

    def get(self, name: str) -> str | None:
        """Return the value of a property."""
        return dict(self.properties).get(name)

    @property
    def version(self) -> int | None:
        """The number in ``confluent:version``, or None if it has none."""
        text = self.get(VERSION_PROPERTY)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def with_version(self, version: int) -> Metadata:
        """Return the metadata with ``confluent:version`` set."""
        properties = {**dict(self.properties), VERSION_PROPERTY: str(version)}
        return replace(self, properties=tuple(sorted(properties.items())))

    def without_version(self) -> Metadata:
        """Return the metadata without ``confluent:version``."""
        kept = tuple(entry for entry in self.properties if entry[0] != VERSION_PROPERTY)
        return replace(self, properties=kept)

    def hash_parts(self) -> list[str]:
        """Return the texts that the guid hashes, in Confluent's order."""
        parts: list[str] = []
        for path, names in self.tags:
            parts += [path, *names]
        for name, value in self.properties:
            parts += [name, value]
        return [*parts, *self.sensitive]


def merge_metadata(base: Metadata | None, over: Metadata | None) -> Metadata | None:
    """Return `base` with the entries of `over`, which wins for equal keys."""
    if base is None or over is None:
        return base if over is None else over
    return Metadata(
        tags=tuple(sorted({**dict(base.tags), **dict(over.tags)}.items())),
        properties=tuple(sorted({**dict(base.properties), **dict(over.properties)}.items())),
        sensitive=tuple(sorted({*base.sensitive, *over.sensitive})),
    )


def _names(value: JsonValue) -> tuple[str, ...]:
    try:
        return tuple(sorted(set(JsonFields({"tags": value}, "metadata").texts("tags"))))
    except WrongType as error:
        raise WrongType("metadata.tags must be an object of arrays of strings") from error
