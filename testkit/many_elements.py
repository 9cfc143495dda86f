"""Requests of any API with any number of elements, generated from the definition of the API."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from odradek.broker.requests.apis import APIS, Api
from odradek.protocol.registry import request_class
from odradek.protocol.spec import FieldSpec, StructSpec, load

_TOP_LEVEL = {
    "acks": 1,
    "timeout_ms": 1000,
    "max_wait_ms": 0,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
}
_SMALL_RANGE = 100


def long_requests(elements: int) -> Iterator[tuple[Api, str, Any]]:
    """Yield (API, name of the array, request in the newest version) for each array of each API.

    There are two requests for an array: one in which it has many elements, and one in which it has
    one element with many elements.
    """
    for api in APIS:
        version = api.max_version
        body = load(request_class(api.key).SPEC).body
        for field in body.present(version):
            if not field.is_array or field.tagged.has(version):
                continue
            yield api, field.attribute, _request(api, field, (elements,))
            if field.struct and any(each.is_array for each in field.struct.present(version)):
                name = f"{field.attribute}[0]"
                yield api, name, _request(api, field, (1, elements))


def _request(api: Api, array: FieldSpec, counts: Sequence[int]) -> Any:
    cls = request_class(api.key)
    values: dict[str, Any] = {}
    for field in load(cls.SPEC).body.present(api.max_version):
        if field is array:
            values[field.attribute] = _elements(cls.__module__, field, api.max_version, counts)
        elif field.attribute in _TOP_LEVEL:
            values[field.attribute] = _TOP_LEVEL[field.attribute]
        elif field.kind == "string" and not field.is_array:
            values[field.attribute] = None if field.is_nullable(api.max_version) else "g"
    return cls(**values)


def _elements(module: str, field: FieldSpec, version: int, counts: Sequence[int]) -> list[Any]:
    numbers = range(counts[0] if counts else 1)
    if field.struct is None:
        return [_value(field, number) for number in numbers]
    return [_struct(module, field.struct, version, counts[1:], number) for number in numbers]


def _struct(module: str, spec: StructSpec, version: int, counts: Sequence[int], number: int) -> Any:
    values: dict[str, Any] = {}
    for field in spec.present(version):
        if field.is_array:
            values[field.attribute] = _elements(module, field, version, counts)
        elif field.struct is None and not field.tagged.has(version):
            values[field.attribute] = _value(field, number)
    return getattr(sys.modules[module], spec.name)(**values)


def _value(field: FieldSpec, number: int) -> Any:
    if field.kind == "string":
        return f"n{number}"
    if field.kind == "uuid":
        return (number + 1).to_bytes(16, "big")
    if field.kind in ("bytes", "records"):
        return b""
    return number % _SMALL_RANGE if field.kind in ("int8", "int16") else number
