"""Generator of the message classes, the API table and the table of coordinator records.

    python -m odradek.protocol.generate           # write the files from the definitions
    python -m odradek.protocol.generate --check   # exit 1 and name the files that differ

Each message has a module with its class and the classes of its structs, children first. A class
serves all versions. The comment behind a field gives the versions that have it on the wire.
"""

from __future__ import annotations

import keyword
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from odradek.protocol.spec import (
    NEW_STRUCT,
    NO_VERSIONS,
    FieldSpec,
    MessageSpec,
    StructSpec,
    Versions,
    load,
    paths,
    snake_case,
)
from odradek.protocol.wire import ANY_LATER

LINE_MAX = 100
PACKAGE = Path(__file__).parent
RECORD_FAMILIES = ("group", "share", "transaction")
OWN_FAMILY = "odradek"
PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "Chunk",
    "uuid": "Uuid",
}


def generate() -> dict[Path, str]:
    """Return all generated files: their path below this package, and their text."""
    specs = [load(path) for path in paths()]
    valid = [spec for spec in specs if spec.versions != NO_VERSIONS]
    files = {Path("messages") / f"{snake_case(spec.name)}.py": module(spec) for spec in valid}
    files[Path("messages/__init__.py")] = (
        '"""Generated: one module for each message, imported where the message is needed."""\n'
    )
    files[Path("api_keys.py")] = api_keys(specs)
    files[Path("record_types.py")] = record_types(valid)
    return files


def module(spec: MessageSpec) -> str:
    """Return the module of one message."""
    text = "\n\n\n".join([*(struct_class(struct) for struct in spec.structs), message_class(spec)])
    title = f'"""{spec.name}: generated from definitions/{spec.path}.json, do not edit."""'
    return f"{title}\n\n{imports(text)}\n\n{text}\n"


def imports(body: str) -> str:
    fields = "dataclass, field" if "field(default_factory" in body else "dataclass"
    lines = [
        "from __future__ import annotations",
        "",
        f"from dataclasses import {fields}",
        "from typing import ClassVar",
    ]
    names = [name for name in ("ZERO_UUID", "Uuid") if name in body]
    own = [f"from odradek.ids import {', '.join(names)}"] if names else []
    own += ["from odradek.protocol.wire import Chunk"] if "Chunk" in body else []
    return "\n".join([*lines, *([""] if own else []), *own, ""])


def struct_class(struct: StructSpec) -> str:
    lines = ["@dataclass(slots=True)", f"class {struct.name}:"]
    return "\n".join([*lines, *field_lines(struct)])


def message_class(spec: MessageSpec) -> str:
    lines = [
        "@dataclass(slots=True)",
        f"class {spec.name}:",
        f'    SPEC: ClassVar[str] = "{spec.path}"',
        f"    API_KEY: ClassVar[int] = {spec.api_key}",
        f"    MIN_VERSION: ClassVar[int] = {spec.versions.lowest}",
        f"    MAX_VERSION: ClassVar[int] = {spec.versions.highest}",
        f"    FLEXIBLE_FROM: ClassVar[int] = {flexible_from(spec)}",
    ]
    if spec.body.fields:
        lines.append("")
    return "\n".join([*lines, *field_lines(spec.body)])


def field_lines(struct: StructSpec) -> list[str]:
    """Return the fields of a class, each with its comment behind it, or above a long line."""
    lines = []
    for field in struct.fields:
        assert not keyword.iskeyword(field.attribute), field.attribute
        line = f"    {field.attribute}: {python_type(field)} = {default(field)}"
        if len(line) > LINE_MAX:
            line = line.replace("field(", "field(\n        ").removesuffix(")") + "\n    )"
        comment = f"# {field_comment(field)}"
        together = f"{line}  {comment}"
        lines += [together] if len(together) <= LINE_MAX else [f"    {comment}", line]
    return lines


def field_comment(field: FieldSpec) -> str:
    comment = f"versions {show(field.versions)}"
    if field.nullable != NO_VERSIONS:
        comment += f", nullable {show(field.nullable)}"
    if field.tagged != NO_VERSIONS:
        comment += f", tag {field.tag}"
    if field.entity is not None:
        comment += f", {field.entity}"
    return f"{comment}, not in Kafka" if field.own else comment


def python_type(field: FieldSpec) -> str:
    name = PYTHON_TYPES.get(field.kind, "int") if field.struct is None else field.struct.name
    if field.is_array:
        name = f"list[{name}]"
    can_be_none = field.nullable != NO_VERSIONS or field.default is None
    return f"{name} | None" if can_be_none else name


def default(field: FieldSpec) -> str:
    if field.default is NEW_STRUCT:
        assert field.struct is not None
        return f"field(default_factory={field.struct.name})"
    if field.default == []:
        return "field(default_factory=list)"
    if field.kind == "uuid" and not field.is_array:
        return "ZERO_UUID"
    return f'"{field.default}"' if isinstance(field.default, str) else literal(field.default)


def literal(value: object) -> str:
    return 'b""' if value == b"" else repr(value)


def show(versions: Versions) -> str:
    if versions.highest == ANY_LATER:
        return f"{versions.lowest}+"
    if versions.lowest == versions.highest:
        return str(versions.lowest)
    return f"{versions.lowest}-{versions.highest}"


def api_keys(specs: list[MessageSpec]) -> str:
    """Return the API tables: keys, names and the stable version ranges."""
    requests = sorted((s for s in specs if s.kind == "request"), key=lambda spec: spec.api_key)
    lines = [
        '"""API keys and version ranges: generated from the definitions, do not edit."""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "",
        "",
        "class ApiKey(IntEnum):",
        *(f"    {api_name(spec).upper()} = {spec.api_key}" for spec in requests),
        "",
        "",
        "# Of Kafka 4.1: lowest version, highest stable version, first flexible version. APIs that",
        "# Kafka has removed, or that have no stable version yet, are not listed.",
        "API_RANGES: dict[ApiKey, tuple[int, int, int]] = {",
        *range_lines(spec for spec in requests if not is_own(spec)),
        "}",
        "",
        "# The same of Odradek's own APIs, which only brokers send (definitions/README.md).",
        "OWN_API_RANGES: dict[ApiKey, tuple[int, int, int]] = {",
        *range_lines(spec for spec in requests if is_own(spec)),
        "}",
        "",
        "# First version whose header has a tag section, for every API that was not removed.",
        "FLEXIBLE_FROM: dict[int, int] = {",
    ]
    for spec in requests:
        if spec.versions != NO_VERSIONS:
            lines.append(f"    {spec.api_key}: {flexible_from(spec)},")
    return "\n".join([*lines, "}", ""])


def range_lines(requests: Iterable[MessageSpec]) -> Iterator[str]:
    """Yield a line of a table of version ranges for each API that has a stable version."""
    for spec in requests:
        highest = spec.versions.highest - spec.latest_unstable
        if spec.versions.lowest <= highest:
            row = f"({spec.versions.lowest}, {highest}, {flexible_from(spec)})"
            yield f"    ApiKey.{api_name(spec).upper()}: {row},"


def flexible_from(spec: MessageSpec) -> int:
    return ANY_LATER if spec.flexible == NO_VERSIONS else spec.flexible.lowest


def is_own(spec: MessageSpec) -> bool:
    """Return whether Kafka does not know the message."""
    return spec.path.startswith(f"{OWN_FAMILY}/")


def api_name(spec: MessageSpec) -> str:
    return snake_case(spec.name.removesuffix("Request"))


def record_types(specs: list[MessageSpec]) -> str:
    """Return the table of the coordinators' records: a key's type number to its two classes."""
    lines = [
        '"""The records of internal topics: generated from definitions, do not edit."""',
        "",
        "from __future__ import annotations",
        "",
        "# Family, then the type number in front of a key: names of the key and value classes.",
        "RECORD_TYPES: dict[str, dict[int, tuple[str, str]]] = {",
    ]
    for family in RECORD_FAMILIES:
        found = [s for s in specs if s.path.startswith(f"{family}/")]
        keys = {s.api_key: s.name for s in found if s.kind == "coordinator-key"}
        values = {s.api_key: s.name for s in found if s.kind == "coordinator-value"}
        lines.append(f'    "{family}": {{')
        for number in sorted(keys):
            names = (f'            "{name}",' for name in (keys[number], values[number]))
            lines += [f"        {number}: (", *names, "        ),"]
        lines.append("    },")
    return "\n".join([*lines, "}", ""])


def differing(files: dict[Path, str]) -> list[str]:
    """Return the files on disk that differ from the definitions, with stale ones."""
    on_disk = {p.relative_to(PACKAGE) for p in (PACKAGE / "messages").glob("*.py")}
    found = [str(path) for path in on_disk - set(files)]
    for path, text in files.items():
        file = PACKAGE / path
        if not file.exists() or file.read_text() != text:
            found.append(str(path))
    return sorted(found)


def main(arguments: list[str]) -> None:
    files = generate()
    changed = differing(files)
    if arguments == ["--check"]:
        if changed:
            raise SystemExit(
                "these generated files differ from the definitions, run "
                "python -m odradek.protocol.generate: " + ", ".join(changed)
            )
        return
    for name in changed:
        file = PACKAGE / name
        if Path(name) in files:
            file.write_text(files[Path(name)])
        else:
            file.unlink()
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
