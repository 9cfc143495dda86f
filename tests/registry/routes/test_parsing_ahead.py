"""Requests parse schemas in threads. The event loop finds the results and the errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import pytest
from starlette.testclient import TestClient

from odradek.registry.app import create_app
from odradek.registry.compatibility.levels import incompatibilities
from odradek.registry.decisions.tools import SchemaTools
from odradek.registry.schemas.parsed import ParsedSchema, ResolvedReference, SchemaKind
from odradek.registry.schemas.parsers import Parsers
from tests.registry.routes.memory_registry import (
    INVALID,
    ORDER_1,
    ORDER_2,
    MemoryRegistry,
    fill,
    schema_body,
)

T = TypeVar("T")


class RecordingParsers(Parsers):
    """Parsers that record the texts of calls outside a thread that were not cached before."""

    def __init__(self) -> None:
        super().__init__()
        self.is_in_thread = False
        self.seen: set[object] = set()
        self.on_loop: list[str] = []

    def parse(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        stored: bool = False,
    ) -> ParsedSchema:
        key = (kind, text, references, stored)
        if not self.is_in_thread and key not in self.seen:
            self.on_loop.append(text)
        parsed = super().parse(kind, text, references, stored=stored)
        self.seen.add(key)
        return parsed


class ThreadedRegistry(MemoryRegistry):
    """A registry whose parsers know which calls come from `parse_off_loop`."""

    def __init__(self) -> None:
        super().__init__()
        self.parsers = RecordingParsers()
        self.tools = SchemaTools(self.parsers, incompatibilities)

    async def parse_off_loop(self, call: Callable[[], T]) -> T:
        self.parsers.is_in_thread = True
        try:
            return call()
        finally:
            self.parsers.is_in_thread = False


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
def test_no_schema_is_parsed_on_the_event_loop(path: str, text: str) -> None:
    registry = ThreadedRegistry()
    client = TestClient(create_app(registry))
    fill(client)
    registry.parsers.seen.clear()
    registry.parsers.on_loop.clear()

    response = client.post(path, content=json.dumps(schema_body(text)))

    assert response.status_code in (200, 404, 422)
    assert registry.parsers.on_loop == []


def test_an_error_that_precedes_the_schema_is_returned_first(client: TestClient) -> None:
    missing = client.post(
        "/compatibility/subjects/orders/versions/9", content=json.dumps(schema_body(INVALID))
    )
    reserved = client.post("/subjects/__GLOBAL/versions", content=json.dumps(schema_body(INVALID)))
    assert missing.json()["error_code"] == 40402
    assert reserved.json()["error_code"] == 42208
