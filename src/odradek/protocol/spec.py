"""The message definitions, read from JSON, for the generator, the compiler and the slow codec.

A definition is read when its first codec is needed, never at import. Versions are closed ranges.
"3+" ends at `ANY_LATER`, and "none" is the empty range. The fields of a struct are in wire order.
In a version in which a field is tagged, it is not in the body but in the tag section after it.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from odradek.protocol.wire import ANY_LATER

DEFINITIONS = Path(__file__).parent / "definitions"

FIXED_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The kinds of fixed width, with their codes in the formats of `struct`."""

FIXED_SIZES = {kind: struct.calcsize(f">{code}") for kind, code in FIXED_CODES.items()}


class Versions(NamedTuple):
    """The closed range of versions `lowest`..`highest`. Empty when highest is below lowest."""

    lowest: int
    highest: int

    def has(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


NO_VERSIONS = Versions(0, -1)


def parse_versions(text: str | None) -> Versions:
    """Parse "none", "3", "3-5" or "3+". None is the empty range."""
    if text is None or text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), ANY_LATER)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))


@dataclass(frozen=True, slots=True)
class StructSpec:
    """A struct of a message, or the message's own body."""

    name: str
    fields: tuple[FieldSpec, ...]

    def present(self, version: int) -> list[FieldSpec]:
        """Return the fields of the body at `version`, in wire order, without tagged ones."""
        return [f for f in self.fields if f.versions.has(version) and not f.tagged.has(version)]

    def tagged(self, version: int) -> list[FieldSpec]:
        """Return the tagged fields at `version` in ascending order of tags, as written."""
        found = [f for f in self.fields if f.versions.has(version) and f.tagged.has(version)]
        return sorted(found, key=lambda field: field.tag)

    def absent(self, version: int) -> list[FieldSpec]:
        return [f for f in self.fields if not f.versions.has(version)]


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field.

    Attributes:
        kind: The name of a primitive type, "string", "bytes", "records" or "struct".
        is_array: The field is an array of that kind.
        default: The value of an absent field: a scalar, None, or `[]` for an array. The default of
            a struct is None, or `NEW_STRUCT` for a new struct with all its defaults.
        own: Odradek has added the field to a message of Kafka, as a tagged field that Kafka skips.
    """

    name: str
    attribute: str
    kind: str
    is_array: bool
    struct: StructSpec | None
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    flexible: Versions | None
    default: Any
    ignorable: bool
    entity: str | None
    own: bool

    def is_nullable(self, version: int) -> bool:
        return self.nullable.has(version)

    def element(self) -> FieldSpec:
        """Return the array's element, as a field that is neither array nor nullable."""
        return replace(self, is_array=False, nullable=NO_VERSIONS)


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """One message: a request, a response, a header, a coordinator's record or other data."""

    path: str
    name: str
    kind: str
    api_key: int
    versions: Versions
    flexible: Versions
    latest_unstable: bool
    body: StructSpec
    structs: tuple[StructSpec, ...]

    def is_flexible(self, version: int) -> bool:
        return self.flexible.has(version)


class _NewStruct:
    """The default of a struct that is not nullable: a new struct with all its own defaults."""

    def __repr__(self) -> str:
        return "NEW_STRUCT"


NEW_STRUCT = _NewStruct()


def snake_case(name: str) -> str:
    """``TopicData`` -> ``topic_data``, ``KRaftVersion`` -> ``k_raft_version``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def load(path: str) -> MessageSpec:
    """Return the definition at `path`, for example "api/FetchRequest".

    The path is relative to `DEFINITIONS` and has no ".json".
    """
    return _DefinitionReader(
        path, json.loads((DEFINITIONS / f"{path}.json").read_bytes())
    ).message()


def paths() -> list[str]:
    """Return the paths of all definitions, sorted."""
    return sorted(f"{file.parent.name}/{file.stem}" for file in DEFINITIONS.glob("*/*.json"))


def find(name: str) -> MessageSpec:
    """Return the definition of the message called `name`, or raise LookupError."""
    for path in paths():
        if path.endswith("/" + name):
            return load(path)
    raise LookupError(f"no message is called {name}")


def min_size(struct: StructSpec, version: int, flexible: bool) -> int:
    """Return the fewest bytes of `struct` on the wire, which bound the count of an array."""
    fields = struct.present(version)
    return sum(_min_field_size(f, version, flexible) for f in fields) + flexible


def _min_field_size(field: FieldSpec, version: int, flexible: bool) -> int:
    if field.is_array or field.kind in ("bytes", "records"):
        return 1 if flexible else 4
    if field.kind == "string":
        return 1 if flexible else 2
    if field.struct is not None:
        return 1 if field.is_nullable(version) else min_size(field.struct, version, flexible)
    return FIXED_SIZES[field.kind]


def min_element_size(field: FieldSpec, version: int, flexible: bool) -> int:
    """Return the fewest bytes of one element of the array `field`."""
    if field.struct is not None:
        return min_size(field.struct, version, flexible)
    if field.kind == "string":
        return 1 if flexible else 2
    return FIXED_SIZES[field.kind]


class _DefinitionReader:
    """Conversion of one JSON definition to a `MessageSpec`, with its structs, children first."""

    def __init__(self, path: str, definition: dict[str, Any]) -> None:
        self.path = path
        self.definition = definition
        self.common = {s["name"]: s for s in definition.get("commonStructs", [])}
        self.structs: dict[str, StructSpec] = {}

    def message(self) -> MessageSpec:
        definition = self.definition
        body = StructSpec(definition["name"], self.fields(definition.get("fields", [])))
        return MessageSpec(
            path=self.path,
            name=definition["name"],
            kind=definition["type"],
            api_key=int(definition.get("apiKey", -1)),
            versions=parse_versions(definition["validVersions"]),
            flexible=parse_versions(definition.get("flexibleVersions")),
            latest_unstable=bool(definition.get("latestVersionUnstable", False)),
            body=body,
            structs=tuple(self.structs.values()),
        )

    def fields(self, definitions: list[dict[str, Any]]) -> tuple[FieldSpec, ...]:
        return tuple(self.field(definition) for definition in definitions)

    def field(self, definition: dict[str, Any]) -> FieldSpec:
        type_name: str = definition["type"]
        is_array = type_name.startswith("[]")
        element = type_name.removeprefix("[]")
        struct = self.struct(element, definition) if element[0].isupper() else None
        tagged = parse_versions(definition.get("taggedVersions"))
        override = definition.get("flexibleVersions")
        return FieldSpec(
            name=definition["name"],
            attribute=snake_case(definition["name"]),
            kind="struct" if struct is not None else element,
            is_array=is_array,
            struct=struct,
            # A tagged field may have no "versions": it exists in the versions that tag it.
            versions=parse_versions(definition.get("versions", definition.get("taggedVersions"))),
            nullable=parse_versions(definition.get("nullableVersions")),
            tagged=tagged,
            tag=int(definition.get("tag", -1)),
            flexible=None if override is None else parse_versions(override),
            default=_default(definition, is_array, element),
            ignorable=bool(definition.get("ignorable", False)),
            entity=definition.get("entityType"),
            own=bool(definition.get("own", False)),
        )

    def struct(self, name: str, definition: dict[str, Any]) -> StructSpec:
        if name not in self.structs:
            fields = definition.get("fields") or self.common[name]["fields"]
            self.structs[name] = StructSpec(name, self.fields(fields))
        return self.structs[name]


def _default(definition: dict[str, Any], is_array: bool, element: str) -> Any:
    text = definition.get("default")
    if text == "null" or element == "records":
        return None
    if is_array:
        return []
    if element[0].isupper():
        # A tagged struct that is not sent has all its defaults. None represents it without a copy.
        never_null = definition.get("nullableVersions") is None
        return None if "tag" in definition and never_null else NEW_STRUCT
    return _scalar_default(element, "" if text is None else str(text))


def _scalar_default(kind: str, text: str) -> Any:
    match kind:
        case "string":
            return text
        case "bytes":
            return b""
        case "uuid":
            return bytes(16)
        case "bool":
            return text.lower() == "true"
        case "float64":
            return float(text or 0)
        case _:
            return int(text or "0", 0)
