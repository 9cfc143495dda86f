"""The compiled codec compared with `kio`, an independent codec in Rust for the same messages."""

from __future__ import annotations

import datetime
import enum
import io
import uuid
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from odradek.protocol.codec import Message, encode
from odradek.protocol.spec import FieldSpec, load, snake_case
from tests.protocol.building import Builder, all_classes, versions

KINDS = ("request", "response", "header", "data")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def find_kio_class(cls: type[Message], version: int) -> Any:
    """Return kio's class of this message and version, or None."""
    kind = load(cls.SPEC).kind
    folder = snake_case(cls.__name__.removesuffix("Request").removesuffix("Response"))
    if kind == "header":
        folder = snake_case(cls.__name__)
    try:
        module = import_module(
            f"kio.schema.{folder}.v{version}.{kind if kind in KINDS else 'data'}"
        )
    except ModuleNotFoundError:
        return None
    return getattr(module, cls.__name__)


PAIRS = [
    pytest.param(cls, version, kio_class, id=f"{cls.__name__}-{version}")
    for cls in all_classes()
    for version in versions(cls)
    if (kio_class := find_kio_class(cls, version)) is not None
]


class TameBuilder(Builder):
    """Builds only the error codes and times that kio accepts as enum, datetime and timedelta."""

    own_fields = False

    def scalar(self, field: FieldSpec) -> Any:
        if field.attribute.endswith("error_code"):
            return self.random.randint(-1, 100)
        is_time = "time" in field.attribute or field.attribute.endswith("_ms")
        if is_time and field.kind.startswith("int"):
            return self.random.randint(0, 10_000)
        return super().scalar(field)


def convert(value: Any) -> Any:
    """Convert kio's value to this codec's types: milliseconds, integers, 16 bytes."""
    match value:
        case enum.Enum():
            return value.value
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case datetime.timedelta():
            return value // MILLISECOND
        case uuid.UUID():
            return value.bytes
        case _:
            return value


def assert_equal(ours: Any, theirs: Any) -> None:
    """Compare field by field. A field that kio does not have is not in this version."""
    for field in fields(theirs):
        # kio calls `timeout_ms` `timeout`, because it is a timedelta, and `id` `id_`.
        name = field.name.rstrip("_")
        name = name if hasattr(ours, name) else f"{name}_ms"
        our_value, their_value = getattr(ours, name), getattr(theirs, field.name)
        if isinstance(our_value, list):
            assert len(our_value) == len(their_value)
            pairs = list(zip(our_value, their_value, strict=True))
        else:
            pairs = [(our_value, their_value)]
        for our_element, their_element in pairs:
            assert_value_equal(our_element, their_element)


def assert_value_equal(ours: Any, theirs: Any) -> None:
    if hasattr(type(theirs), "__version__"):
        if ours is not None:
            assert_equal(ours, theirs)
    elif theirs is None:
        assert ours is None or ours == bytes(16)
    else:
        assert ours == convert(theirs)


def write(write_entity: Callable[[io.BytesIO, Any], None], entity: Any) -> bytes:
    buffer = io.BytesIO()
    write_entity(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize(("cls", "version", "kio_class"), PAIRS)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=True))
def test_kio_reads_written_messages_and_writes_the_same_bytes(
    cls: type[Message], version: int, kio_class: Any, random: Random
) -> None:
    message = TameBuilder(cls, version, random).struct(load(cls.SPEC).body)
    data = encode(message, version)
    entity, size = entity_reader(kio_class)(data, 0)
    assert size == len(data)
    assert_equal(message, entity)
    assert write(entity_writer(kio_class), entity) == data


def test_kio_has_most_messages() -> None:
    assert len(PAIRS) > 500
