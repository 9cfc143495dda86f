"""Random Protobuf schemas, and pairs of them in which one is a mutation of the other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from odradek.registry.schemas.parsed import InvalidSchema
from odradek.registry.schemas.proto_options import pool_of
from tests.registry.proto_models import (
    MAP_KEYS,
    PROTO2,
    PROTO3,
    SCALARS,
    FieldModel,
    FileModel,
    Kind,
    MessageModel,
    descriptor,
    repair,
)

PACKAGE = "shop"
MESSAGES = ("Order", "Line", "Client", "Price")
NESTED = ("Note", "Tag")
ENUMS = ("Status", "Color")
NUMBER_MAX = 12
FIELDS_MAX = 6
MUTATIONS_MAX = 3


@dataclass(frozen=True, slots=True)
class ProtoPair:
    reader: FileModel
    writer: FileModel


def proto_pairs(random: Random, count: int) -> Iterator[ProtoPair]:
    """Yield pairs of valid schemas. Most readers or writers have one to three mutations."""
    made = 0
    while made < count:
        first = SchemaMaker(random).file()
        second = copy.deepcopy(first)
        for _ in range(random.randint(0, MUTATIONS_MAX)):
            random.choice(MUTATIONS)(random, second)
            repair(second)
        if is_valid(first) and is_valid(second):
            made += 1
            reader, writer = random.sample([first, second], 2)
            yield ProtoPair(reader, writer)


def is_valid(file: FileModel) -> bool:
    try:
        pool_of([descriptor(file)])
    except InvalidSchema:
        return False
    return True


class SchemaMaker:
    """Makes one random file."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._file = FileModel(random.choice([PROTO2, PROTO3, PROTO3]), PACKAGE)

    def file(self) -> FileModel:
        random, file = self._random, self._file
        for name in ENUMS[: random.randint(0, len(ENUMS))]:
            file.enums[name] = [0, *sorted(random.sample(range(1, 9), random.randint(0, 4)))]
        for name in MESSAGES[: random.randint(1, len(MESSAGES))]:
            message = MessageModel(name)
            if random.random() < 0.4:
                message.nested.append(MessageModel(random.choice(NESTED)))
            file.messages.append(message)
        for message in file.paths().values():
            numbers = random.sample(range(1, NUMBER_MAX + 1), random.randint(0, FIELDS_MAX))
            message.fields = [new_field(random, file, number) for number in numbers]
        repair(file)
        return file


def new_field(random: Random, file: FileModel, number: int) -> FieldModel:
    """Return a random field. Its name contains its number, so that names differ."""
    made = FieldModel(f"f{number}", number)
    set_type(random, file, made)
    if random.random() < 0.15 and made.kind is not Kind.GROUP:
        made.map_key = random.choice(MAP_KEYS)
    made.label = random.choice(["", "", "optional", "repeated", "required"])
    if made.can_be_in_oneof and random.random() < 0.25:
        made.oneof = random.choice(["choice", "other"])
    return made


def set_type(random: Random, file: FileModel, field: FieldModel) -> None:
    """Give a field a random type."""
    chance = random.random()
    field.body = None
    if chance < 0.25:
        field.kind, field.type = Kind.MESSAGE, random.choice(list(file.paths()))
    elif chance < 0.4 and file.enums:
        field.kind, field.type = Kind.ENUM, random.choice(list(file.enums))
    elif chance < 0.45 and file.syntax == PROTO2 and field.map_key is None:
        field.kind = Kind.GROUP
        field.body = MessageModel("", [FieldModel("inner", 1, type=random.choice(SCALARS))])
    else:
        field.kind, field.type = Kind.SCALAR, random.choice(SCALARS)


def _any_message(random: Random, file: FileModel) -> MessageModel:
    return random.choice(file.bodies())


def _any_field(random: Random, file: FileModel) -> FieldModel:
    fields = [each for message in file.bodies() for each in message.fields]
    return random.choice(fields) if fields else FieldModel("none", 1)


def _remove_field(random: Random, file: FileModel) -> None:
    message = _any_message(random, file)
    if message.fields:
        message.fields.remove(random.choice(message.fields))


def _add_field(random: Random, file: FileModel) -> None:
    message = _any_message(random, file)
    free = [each for each in range(1, NUMBER_MAX + 4) if each not in message.by_number()]
    message.fields.append(new_field(random, file, random.choice(free)))


def _rename_field(random: Random, file: FileModel) -> None:
    field = _any_field(random, file)
    field.name = f"g{field.number}"


def _change_type(random: Random, file: FileModel) -> None:
    set_type(random, file, _any_field(random, file))


def _change_scalar(random: Random, file: FileModel) -> None:
    field = _any_field(random, file)
    if field.kind is Kind.SCALAR:
        near = {"string": "bytes", "bytes": "string", "int32": "int64", "bool": "uint32"}
        field.type = near.get(field.type, random.choice(SCALARS))


def _change_label(random: Random, file: FileModel) -> None:
    field = _any_field(random, file)
    field.label = random.choice(["", "optional", "repeated", "required"])


def _toggle_map(random: Random, file: FileModel) -> None:
    field = _any_field(random, file)
    if field.kind is not Kind.GROUP:
        field.map_key = None if field.map_key else random.choice(MAP_KEYS)


def _move_to_oneof(random: Random, file: FileModel) -> None:
    message = _any_message(random, file)
    movable = [each for each in message.fields if each.can_be_in_oneof]
    for field in random.sample(movable, min(len(movable), random.randint(1, 3))):
        field.oneof = random.choice(["choice", "choice", "new"])


def _move_from_oneof(random: Random, file: FileModel) -> None:
    _any_field(random, file).oneof = None


def _remove_oneof(random: Random, file: FileModel) -> None:
    message = _any_message(random, file)
    message.fields = [each for each in message.fields if each.oneof is None]


def _remove_message(random: Random, file: FileModel) -> None:
    if len(file.messages) > 1:
        file.messages.remove(random.choice(file.messages))


def _add_message(random: Random, file: FileModel) -> None:
    file.messages.insert(random.randint(0, len(file.messages)), MessageModel("Added"))


def _reverse_messages(random: Random, file: FileModel) -> None:
    file.messages.reverse()


def _change_package(random: Random, file: FileModel) -> None:
    file.package = "store"


def _change_enum(random: Random, file: FileModel) -> None:
    if file.enums:
        numbers = file.enums[random.choice(list(file.enums))]
        if len(numbers) > 1 and random.random() < 0.5:
            numbers.pop()
        elif 9 not in numbers:
            numbers.append(9)


def _toggle_enum(random: Random, file: FileModel) -> None:
    name = random.choice(ENUMS)
    if file.enums.pop(name, None) is None:
        file.enums[name] = [0, 1]


def _switch_syntax(random: Random, file: FileModel) -> None:
    file.syntax = PROTO3 if file.syntax == PROTO2 else PROTO2


def _swap_group(random: Random, file: FileModel) -> None:
    field = _any_field(random, file)
    if field.kind is Kind.GROUP:
        field.kind, field.type, field.body = Kind.MESSAGE, file.messages[0].name, None


Mutation = Callable[[Random, FileModel], None]

MUTATIONS: list[Mutation] = [
    *(_remove_field, _add_field, _rename_field, _change_type, _change_scalar, _change_scalar),
    *(_change_label, _change_label, _toggle_map, _move_to_oneof, _move_from_oneof),
    *(_remove_oneof, _remove_message, _add_message, _reverse_messages, _change_package),
    *(_change_enum, _toggle_enum, _switch_syntax, _swap_group),
]
