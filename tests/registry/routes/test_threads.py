"""Requests parse and compare schemas in threads, never on the event loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from starlette.testclient import TestClient

from odradek.registry.app import create_app
from odradek.registry.compatibility.levels import (
    CompatibilityLevel,
    EarlierVersion,
    incompatibilities,
)
from odradek.registry.decisions import parsing
from odradek.registry.decisions.resolution import Resolved, resolve
from odradek.registry.decisions.tools import SchemaTools
from odradek.registry.schemas.parsed import ParsedSchema, ResolvedReference, SchemaKind
from odradek.registry.schemas.parsers import Parsers
from tests.registry.routes.memory_registry import (
    INVALID,
    LINE,
    ORDER_1,
    ORDER_2,
    MemoryRegistry,
    fill,
    order_reference,
    schema_body,
)

T = TypeVar("T")


class ThreadedRegistry(MemoryRegistry):
    """A registry that records parser calls and comparisons outside of its threads."""

    def __init__(self) -> None:
        super().__init__()
        self.is_in_thread = False
        self.in_thread: list[str] = []
        self.on_loop: list[str] = []
        self._parsers = Parsers()
        self.tools = SchemaTools(self, self._incompatibilities)

    def parse(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        stored: bool = False,
    ) -> ParsedSchema:
        self._called("parse")
        return self._parsers.parse(kind, text, references, stored=stored)

    def digest(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        resolved: bool = False,
    ) -> bytes | None:
        self._called("digest")
        return self._parsers.digest(kind, text, references, resolved=resolved)

    async def parse_off_loop(self, call: Callable[[], T]) -> T:
        self.is_in_thread = True
        try:
            return call()
        finally:
            self.is_in_thread = False

    def _incompatibilities(
        self,
        level: CompatibilityLevel,
        schema: ParsedSchema,
        earlier: Iterable[EarlierVersion],
        *,
        validate_fields: bool = False,
    ) -> list[str]:
        self._called("compare")
        return incompatibilities(level, schema, earlier, validate_fields=validate_fields)

    def _called(self, name: str) -> None:
        (self.in_thread if self.is_in_thread else self.on_loop).append(name)


@pytest.mark.parametrize("text", [ORDER_1, ORDER_2, INVALID, '{"type": "unknown"}'])
@pytest.mark.parametrize(
    "path",
    [
        "/subjects/orders",
        "/subjects/orders?format=resolved",
        "/subjects/orders/versions?normalize=true",
        "/subjects/new/versions",
        "/compatibility/subjects/orders/versions",
        "/compatibility/subjects/orders/versions?verbose=true",
        "/compatibility/subjects/orders/versions/1",
    ],
)
def test_no_schema_is_parsed_or_compared_on_the_event_loop(path: str, text: str) -> None:
    registry = ThreadedRegistry()
    client = TestClient(create_app(registry))
    fill(client)
    registry.in_thread.clear()

    response = client.post(path, content=json.dumps(schema_body(text)))

    assert response.status_code in (200, 404, 422)
    assert registry.on_loop == []
    assert "parse" in registry.in_thread


@pytest.mark.parametrize(
    "path",
    [
        "/schemas/ids/1?format=resolved",
        "/schemas/ids/1/schema?format=resolved",
        "/subjects/orders/versions/1?format=resolved",
        "/subjects/orders/versions/1/schema?format=resolved",
        "/subjects/contracts/metadata?key=owner&value=team&format=resolved",
    ],
)
def test_no_schema_is_formatted_on_the_event_loop(path: str) -> None:
    registry = ThreadedRegistry()
    client = TestClient(create_app(registry))
    fill(client)
    registry.in_thread.clear()

    assert client.get(path).status_code == 200
    assert registry.on_loop == []
    assert registry.in_thread == ["parse"]


def test_a_registration_compares_in_a_thread() -> None:
    registry = ThreadedRegistry()
    fill(TestClient(create_app(registry)))
    assert "compare" in registry.in_thread


def test_references_are_resolved_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = ThreadedRegistry()
    client = TestClient(create_app(registry))
    fill(client)

    def resolve_and_record(*arguments: Any, **options: Any) -> Resolved:
        registry._called("resolve")
        return resolve(*arguments, **options)

    monkeypatch.setattr(parsing, "resolve", resolve_and_record)
    body = json.dumps(schema_body(LINE, references=order_reference()))
    response = client.post("/compatibility/subjects/lines/versions", content=body)

    assert response.json() == {"is_compatible": True}
    assert registry.on_loop == []
    assert registry.in_thread.count("resolve") == 2


def test_an_error_that_precedes_the_schema_is_returned_first(client: TestClient) -> None:
    missing = client.post(
        "/compatibility/subjects/orders/versions/9", content=json.dumps(schema_body(INVALID))
    )
    reserved = client.post("/subjects/__GLOBAL/versions", content=json.dumps(schema_body(INVALID)))
    assert missing.json()["error_code"] == 40402
    assert reserved.json()["error_code"] == 42208
