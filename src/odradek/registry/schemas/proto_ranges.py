"""Writes reserved numbers and names, and the numbers for extensions. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
)

from odradek.registry.schemas.proto_layout import in_brackets
from odradek.registry.schemas.proto_literals import quoted
from odradek.registry.schemas.proto_options import OptionWriter, Style

FIELD_NUMBER_MAX = 536_870_911
"""The highest number of a field."""

ENUM_NUMBER_MAX = 2_147_483_647
"""The highest number of an enum value. The numbers of a message set end before it."""


def reserved_lines(
    declared: DescriptorProto | EnumDescriptorProto, file: FileDescriptorProto, style: Style
) -> list[str]:
    """Return one statement for each reserved range, then one for each reserved name."""
    if isinstance(declared, EnumDescriptorProto):
        ranges = [(each.start, each.end) for each in declared.reserved_range]
        highest = ENUM_NUMBER_MAX
    else:
        ranges = [(each.start, each.end - 1) for each in declared.reserved_range]
        highest = _highest(declared)
    names = list(declared.reserved_name)
    if style.normalize:
        ranges, names = sorted(ranges), sorted(names)
    are_identifiers = file.syntax == "editions"
    written = [name if are_identifiers else quoted(name) for name in names]
    return [f"reserved {each};" for each in [*_ranges(ranges, highest), *written]]


def extension_lines(message: DescriptorProto, options: OptionWriter, style: Style) -> list[str]:
    """Return one statement for each range of numbers for extensions."""
    if style.ignore_extensions:
        return []
    ranges = list(message.extension_range)
    if style.normalize:
        ranges.sort(key=lambda each: each.start)
    written = _ranges([(each.start, each.end - 1) for each in ranges], _highest(message))
    lines: list[str] = []
    for numbers, each in zip(written, ranges, strict=True):
        assignments = [option.text for option in options.options(each.options)]
        lines += f"extensions {numbers}{in_brackets(assignments)};".split("\n")
    return lines


def _ranges(ranges: Iterable[tuple[int, int]], highest: int) -> list[str]:
    """Return ranges, whose ends are inclusive, as text. A highest end is written as `max`."""
    texts = []
    for start, end in ranges:
        if start == end:
            texts.append(str(start))
        else:
            texts.append(f"{start} to {'max' if end >= highest else end}")
    return texts


def _highest(message: DescriptorProto) -> int:
    """Return the last number of a message's fields. A message set has more than other messages."""
    return ENUM_NUMBER_MAX - 1 if message.options.message_set_wire_format else FIELD_NUMBER_MAX
