"""Compares Protobuf schemas by Confluent's rules. Pure.

The names of the differences and their messages are Confluent's. A message type is compared with the
type of the same name, a field with the field of the same number, and an enum value with the value
of the same number.

Stricter than Confluent, so that the reader accepts every record of the writer:

- ``bytes`` to ``string`` is `FIELD_SCALAR_KIND_CHANGED`, because bytes may be invalid UTF-8.
- A required field whose number is optional, repeated or in a oneof of the writer is
  `REQUIRED_FIELD_ADDED`, for all types. Confluent only compares the labels of numeric fields.
- A numeric field that becomes repeated, or no longer is, is `FIELD_NUMERIC_LABEL_CHANGED` without
  regard to the label's spelling. Confluent ignores fields of proto3 without a label.
- A required enum whose values in the writer are not all values in the reader, is
  `FIELD_SCALAR_KIND_CHANGED`. A parser keeps an unknown value as an unknown field, so the required
  field is missing. Confluent compares the values only as `ENUM_CONST_REMOVED`, which is compatible.
- A group, or a field with the delimited encoding, is compared with its fields, and differs in kind
  from a message with a length. Confluent ignores groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from odradek.registry.compatibility.proto_differences import (
    Path,
    ProtoDifference,
    ProtoDifferenceKind,
)
from odradek.registry.compatibility.proto_oneofs import compare_oneofs, removed_oneofs
from odradek.registry.compatibility.proto_types import (
    EnumValues,
    Field,
    FieldKind,
    MessageType,
    ScalarGroup,
    Types,
)
from odradek.registry.request_budget import Spend, unlimited
from odradek.registry.schemas.protobuf import ParsedProtobuf


def check(reader: ParsedProtobuf, writer: ParsedProtobuf, spend: Spend = unlimited) -> list[str]:
    """Return the reasons why `reader` cannot read data of `writer`. Empty: it can.

    A reason contains ``%s`` for the role of the reader, and then for the role of the writer.
    `spend` is called once, because the work is proportional to the size of the schemas.
    """
    spend(1)
    return [str(each) for each in differences(reader, writer) if not each.kind.is_compatible]


def differences(reader: ParsedProtobuf, writer: ParsedProtobuf) -> list[ProtoDifference]:
    """Return all differences, compatible ones included, in the order of the writer's types."""
    return _ProtoComparison(Types(writer.files()), Types(reader.files())).run()


_Pair = tuple[str, str]
"""The full names of the writer's and the reader's message type."""


@dataclass(frozen=True, slots=True)
class _Use:
    """The comparison of `owner` depends on the comparison of `used`.

    `path` is the field whose type is used. A nested type has no path, and neither has the type of a
    field that is declared in both schemas' own files, because the type's difference is enough.
    """

    owner: _Pair
    used: _Pair
    path: Path | None


class _ProtoComparison:
    """One comparison of an original schema (the writer's) with an update (the reader's).

    The types of fields wait in a queue, because a chain of types may be longer than Python's stack.
    """

    def __init__(self, original: Types, update: Types) -> None:
        self._original = original
        self._update = update
        self._found: list[ProtoDifference] = []
        self._compared: set[_Pair] = set()
        self._broken: set[_Pair] = set()
        self._uses: list[_Use] = []
        self._queue: deque[_Pair] = deque()

    def run(self) -> list[ProtoDifference]:
        if self._original.package != self._update.package:
            self._add(ProtoDifferenceKind.PACKAGE_CHANGED, (), None)
        self._compare_messages(self._original.messages, self._update.messages, (), None)
        self._compare_enums(self._original.enums, self._update.enums, ())
        while self._queue:
            original, update = self._queue.popleft()
            self._compare_message(self._original.message(original), self._update.message(update))
        self._add_changed_types()
        return self._found

    def _add(self, kind: ProtoDifferenceKind, path: Path, owner: _Pair | None) -> None:
        self._found.append(ProtoDifference(kind, path))
        if owner is not None and not kind.is_compatible:
            self._broken.add(owner)

    def _add_changed_types(self) -> None:
        """Add FIELD_NAMED_TYPE_CHANGED to fields whose type is incompatible, and to their users."""
        users: dict[_Pair, list[_Use]] = {}
        for use in self._uses:
            users.setdefault(use.used, []).append(use)
        pending = deque(sorted(self._broken))
        while pending:
            for use in users.pop(pending.popleft(), ()):
                if use.path is not None:
                    self._add(ProtoDifferenceKind.FIELD_NAMED_TYPE_CHANGED, use.path, use.owner)
                pending.append(use.owner)

    # Types

    def _compare_messages(
        self,
        original: Mapping[str, MessageType],
        update: Mapping[str, MessageType],
        path: Path,
        owner: _Pair | None,
    ) -> None:
        positions = {name: at for at, name in enumerate(update)}
        for position, (name, message) in enumerate(original.items()):
            other = update.get(name)
            if other is None:
                self._add(ProtoDifferenceKind.MESSAGE_REMOVED, (*path, name), owner)
                continue
            if owner is not None:
                self._uses.append(_Use(owner, (message.full_name, other.full_name), None))
            self._compare_message(message, other)
            if position != positions[name]:
                self._add(ProtoDifferenceKind.MESSAGE_MOVED, (*path, name), owner)
        for name in sorted(update.keys() - original.keys()):
            self._add(ProtoDifferenceKind.MESSAGE_ADDED, (*path, name), owner)

    def _compare_enums(
        self, original: Mapping[str, EnumValues], update: Mapping[str, EnumValues], path: Path
    ) -> None:
        for name in sorted(original.keys() | update.keys()):
            if name not in update:
                self._add(ProtoDifferenceKind.ENUM_REMOVED, (*path, name), None)
            elif name not in original:
                self._add(ProtoDifferenceKind.ENUM_ADDED, (*path, name), None)
            else:
                self._compare_enum(original[name], update[name], (*path, name))

    def _compare_enum(self, original: EnumValues, update: EnumValues, path: Path) -> None:
        for number in sorted(original.keys() | update.keys()):
            at = (*path, str(number))
            if number not in update:
                self._add(ProtoDifferenceKind.ENUM_CONST_REMOVED, at, None)
            elif number not in original:
                self._add(ProtoDifferenceKind.ENUM_CONST_ADDED, at, None)
            elif original[number] != update[number]:
                self._add(ProtoDifferenceKind.ENUM_CONST_CHANGED, at, None)

    def _compare_message(self, original: MessageType, update: MessageType) -> None:
        """Add the differences of two types, unless these types have been compared before."""
        pair = (original.full_name, update.full_name)
        if pair in self._compared:
            return
        self._compared.add(pair)
        path = tuple(original.local_name.split("."))
        self._compare_fields(original.fields, update.fields, path, pair)
        self._compare_messages(original.nested, update.nested, path, pair)
        self._compare_enums(original.enums, update.enums, path)

    # Fields

    def _compare_fields(
        self, old: Mapping[int, Field], new: Mapping[int, Field], path: Path, owner: _Pair
    ) -> None:
        for kind, name in compare_oneofs(old, new):
            self._add(kind, (*path, name), owner)
        removed = removed_oneofs(old, new)
        for number in sorted(old.keys() | new.keys()):
            before, after = old.get(number), new.get(number)
            at = _field_path(path, after or before, number)
            if before is not None and after is not None:
                self._compare_field(before, after, at, owner)
            elif before is not None:
                if before.oneof not in removed:
                    self._add(_removal(before), at, owner)
            elif after is not None:
                self._add(_addition(after), at, owner)

    def _compare_field(self, old: Field, new: Field, path: Path, owner: _Pair) -> None:
        if old.oneof is not None and new.oneof is None:
            self._add(ProtoDifferenceKind.ONEOF_FIELD_MOVED_TO_TOP_LEVEL, path, owner)
        if old.name != new.name:
            self._add(ProtoDifferenceKind.FIELD_NAME_CHANGED, path, owner)
        if new.is_required and not old.is_required:
            self._add(ProtoDifferenceKind.REQUIRED_FIELD_ADDED, path, owner)
        self._compare_types(old, new, path, owner)
        if old.group is not None and old.group is new.group and _label_changed(old, new):
            is_text = old.group is ScalarGroup.STRING_OR_BYTES
            kind = (
                ProtoDifferenceKind.FIELD_STRING_OR_BYTES_LABEL_CHANGED
                if is_text
                else ProtoDifferenceKind.FIELD_NUMERIC_LABEL_CHANGED
            )
            self._add(kind, path, owner)

    def _compare_types(self, old: Field, new: Field, path: Path, owner: _Pair) -> None:
        if old.kind is not new.kind:
            self._add(ProtoDifferenceKind.FIELD_KIND_CHANGED, path, owner)
        elif old.entry is not None and new.entry is not None:
            for before, after in zip(old.entry, new.entry, strict=True):
                self._compare_types(before, after, path, owner)
        elif old.kind is FieldKind.SCALAR:
            if not _reads_scalar(old, new) or not self._has_all_values(old, new):
                self._add(ProtoDifferenceKind.FIELD_SCALAR_KIND_CHANGED, path, owner)
        else:
            self._compare_named(old, new, path, owner)

    def _has_all_values(self, old: Field, new: Field) -> bool:
        """Whether the new field, if it is a required enum, has a name for each old value."""
        if not new.is_required or new.keyword != "enum":
            return True
        known = self._update.enum_values(new.type_name)
        return old.keyword == "enum" and (
            self._original.enum_values(old.type_name).keys() <= known.keys()
        )

    def _compare_named(self, old: Field, new: Field, path: Path, owner: _Pair) -> None:
        original = self._original.message(old.type_name)
        update = self._update.message(new.type_name)
        if original.local_name != update.local_name:
            self._add(ProtoDifferenceKind.FIELD_NAMED_TYPE_CHANGED, path, owner)
            return
        pair = (original.full_name, update.full_name)
        both_in_root = original.in_root and update.in_root
        self._uses.append(_Use(owner, pair, None if both_in_root else path))
        self._queue.append(pair)


def _field_path(path: Path, field: Field | None, number: int) -> Path:
    if field is None or field.oneof is None:
        return (*path, str(number))
    return (*path, field.oneof, str(number))


def _removal(field: Field) -> ProtoDifferenceKind:
    if field.oneof is not None:
        return ProtoDifferenceKind.ONEOF_FIELD_REMOVED
    if field.is_required:
        return ProtoDifferenceKind.REQUIRED_FIELD_REMOVED
    return ProtoDifferenceKind.FIELD_REMOVED


def _addition(field: Field) -> ProtoDifferenceKind:
    if field.oneof is not None:
        return ProtoDifferenceKind.ONEOF_FIELD_ADDED
    if field.is_required:
        return ProtoDifferenceKind.REQUIRED_FIELD_ADDED
    return ProtoDifferenceKind.FIELD_ADDED


def _reads_scalar(old: Field, new: Field) -> bool:
    """Whether a value of the old type is a value of the new type, in bytes."""
    return old.group is new.group and (old.keyword, new.keyword) != ("bytes", "string")


def _label_changed(old: Field, new: Field) -> bool:
    """Whether one field is repeated, or one is required. A member of a oneof has no label."""
    if old.is_repeated is not new.is_repeated:
        return True
    has_label = old.oneof is None and new.oneof is None
    return has_label and old.is_required is not new.is_required
