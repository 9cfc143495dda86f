"""Writes an enum. Pure."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import (
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FileDescriptorProto,
)

from odradek.registry.schemas.proto_layout import block, in_brackets
from odradek.registry.schemas.proto_options import OptionWriter, Style
from odradek.registry.schemas.proto_ranges import reserved_lines
from odradek.registry.schemas.proto_structure import visibility


def enum_lines(
    enum: EnumDescriptorProto, file: FileDescriptorProto, options: OptionWriter, style: Style
) -> list[str]:
    """Return the lines of an enum: reserved values, options and values without lines between."""
    values = list(enum.value)
    if style.normalize:
        values.sort(key=lambda each: (each.number, each.name))
    lines = reserved_lines(enum, file, style)
    for option in options.options(enum.options):
        lines += f"option {option.text};".split("\n")
    for value in values:
        lines += _value(value, options)
    return block(f"{visibility(enum)}enum {enum.name}", [lines])


def _value(value: EnumValueDescriptorProto, options: OptionWriter) -> list[str]:
    assignments = [option.text for option in options.options(value.options)]
    return f"{value.name} = {value.number}{in_brackets(assignments)};".split("\n")
