"""Generated pairs of Protobuf schemas: the reader reads each record of a compatible writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from odradek.registry.compatibility.protobuf import check
from odradek.registry.schemas.proto_options import is_list
from tests.registry.proto_instances import Instances, NoInstance
from tests.registry.proto_models import PROTO2, FieldModel, FileModel, Kind, parsed
from tests.registry.proto_pairs import ProtoPair, proto_pairs

INSTANCES = 6
"""Records of each message type of a compatible writer."""


def assert_compatible_readers_read_all(seed: int, pairs: int) -> Counter[str]:
    """Compare pairs of a seed. Return how many were of each verdict, and the number of records."""
    random = Random(seed)
    counts: Counter[str] = Counter()
    for number, pair in enumerate(proto_pairs(random, pairs)):
        if check(parsed(pair.reader), parsed(pair.writer)):
            counts["incompatible"] += 1
            continue
        counts["compatible"] += 1
        reader = Instances(random, pair.reader)
        for path, data, written in _records(random, pair.writer):
            counts["records"] += 1
            try:
                _read(pair, path, reader.empty(path), data, written)
            except Exception as error:
                raise AssertionError(f"seed {seed}, pair {number}, {path}: {pair}") from error
    return counts


def _records(random: Random, writer: FileModel) -> Iterator[tuple[str, bytes, Message]]:
    instances = Instances(random, writer)
    for path in writer.paths():
        for _ in range(INSTANCES):
            try:
                message = instances.message(path)
            except NoInstance:
                break
            yield path, message.SerializeToString(), message


def _read(pair: ProtoPair, path: str, message: Message, data: bytes, written: Message) -> None:
    """Fail if the reader refuses a record, or does not know a field that both schemas have."""
    message.ParseFromString(data)
    assert message.IsInitialized()
    _visit(message)
    fields, known = pair.writer.paths()[path].by_number(), pair.reader.paths()[path].by_number()
    unknown = {each.field_number for each in UnknownFieldSet(message)}
    for number in fields.keys() & known.keys():
        if number in unknown:
            assert _has_closed_enum(known[number], pair.reader), f"field {number} is not read"
        elif _same_type(fields[number], known[number]):
            before = getattr(written, fields[number].name)
            assert repr(getattr(message, known[number].name)) == repr(before)


def _visit(message: Message) -> None:
    """Read all values. A string of proto2 is decoded when it is read."""
    for _, value in message.ListFields():
        if isinstance(value, Message):
            _visit(value)
        elif hasattr(value, "items"):
            for each in value.values():
                if isinstance(each, Message):
                    _visit(each)
        elif is_list(value):
            for each in value:
                if isinstance(each, Message):
                    _visit(each)


def _has_closed_enum(field: FieldModel, file: FileModel) -> bool:
    """Whether unknown values of the field are kept as unknown fields."""
    return field.kind is Kind.ENUM and file.syntax == PROTO2


def _same_type(old: FieldModel, new: FieldModel) -> bool:
    return (
        old.kind is Kind.SCALAR is new.kind
        and old.type == new.type
        and old.map_key is None is new.map_key
        and (old.label == "repeated") == (new.label == "repeated")
    )
