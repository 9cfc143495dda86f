"""Reads the messages that Confluent's registry writes for maps.

For a schema that was registered as a descriptor, Confluent's text has ``repeated NamesEntry names``
and the message `NamesEntry` with ``option map_entry = true``. protoc refuses this option in a text.
"""

from __future__ import annotations

import re

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

_STATEMENT = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
_MARK = "map_entry"


def has_map_entries(text: str) -> bool:
    """Whether a text has messages for maps."""
    return _STATEMENT.search(text) is not None


def with_marks(text: str) -> str:
    """Return the text with a reserved name, which protoc accepts, for each such option."""
    return _STATEMENT.sub(f'reserved "{_MARK}";', text)


def set_map_entries(file: FileDescriptorProto) -> None:
    """Set the option of the messages that have the mark, and remove the marks."""
    for message in file.message_type:
        _set_map_entries(message)


def _set_map_entries(message: DescriptorProto) -> None:
    if _MARK in message.reserved_name:
        message.reserved_name.remove(_MARK)
        message.options.map_entry = True
    for nested in message.nested_type:
        _set_map_entries(nested)
