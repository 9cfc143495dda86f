"""The names of types as the text of a schema has them, before protoc resolves them. Pure.

protoc's descriptors contain full names only. Confluent's registry stores `Status`, not
`.shop.Order.Status`, when the registered text says so. The positions in protoc's source info give
the names of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from google.protobuf.descriptor_pb2 import FileDescriptorProto

SourcePath = tuple[int, ...]
"""The path of an element in a file's descriptor: field numbers and indexes in turn."""

SYNTAX_PATH: SourcePath = (FileDescriptorProto.SYNTAX_FIELD_NUMBER,)
"""The path of the statement that names the syntax. It exists if the text has the statement."""

_TAB_COLUMNS = 8

_NAME_FIELDS = frozenset({2, 3, 6})
"""Last numbers of paths with a name: extendee or request, response, and the type of a field."""

_NAME = re.compile(rb"\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_MAP = re.compile(rb"map\s*<\s*\w+\s*,\s*(\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*>")


def written_names(file: FileDescriptorProto, text: str) -> dict[SourcePath, str]:
    """Return the names in a text by path. The path of a map has the type of its values.

    Args:
        file: The descriptor of the text, with source info.
        text: The text.
    """
    lines = [line.expandtabs(_TAB_COLUMNS) for line in text.encode().split(b"\n")]
    names: dict[SourcePath, str] = {}
    for location in file.source_code_info.location:
        path = tuple(location.path)
        if path == SYNTAX_PATH:
            names[path] = file.syntax or "proto2"
        elif len(path) > 2 and len(path) % 2 and path[-1] in _NAME_FIELDS:
            name = _name(_between(lines, location.span))
            if name:
                names[path] = name
    return names


def name_in_text(names: Mapping[SourcePath, str], path: SourcePath, resolved: str) -> str:
    """Return the name in the text for a resolved name, or the resolved name if there is none."""
    written = names.get(path, "")
    if written and f".{resolved.lstrip('.')}".endswith(f".{written.lstrip('.')}"):
        return written
    return resolved


def _between(lines: list[bytes], span: Iterable[int]) -> bytes:
    """Return the text at a span: line and column of its start, [line and] column of its end."""
    first, start, *last, end = (int(each) for each in span)
    stop = last[0] if last else first
    if stop >= len(lines):
        return b""
    if first == stop:
        return lines[first][start:end]
    return b"\n".join([lines[first][start:], *lines[first + 1 : stop], lines[stop][:end]])


def _name(written: bytes) -> str:
    in_map = _MAP.fullmatch(written)
    if in_map is not None:
        return in_map[1].decode()
    return written.decode() if _NAME.fullmatch(written) else ""
