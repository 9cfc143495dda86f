"""Responses that are encoded while they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from starlette.responses import StreamingResponse
from starlette.testclient import TestClient

from odradek.registry.json_value import JsonValue
from odradek.registry.routes.responses import ARRAY_CHUNK_BYTES, JsonArray, array_response


def chunks(array: JsonArray) -> list[bytes]:
    async def collect() -> list[bytes]:
        response = array_response(array)
        assert isinstance(response, StreamingResponse)
        return [bytes(each) async for each in response.body_iterator if isinstance(each, bytes)]

    return asyncio.run(collect())


@pytest.mark.parametrize(
    "elements", [[], [1], [{"a": "ü"}, [], None], ["x" * ARRAY_CHUNK_BYTES] * 3]
)
def test_chunks_are_one_array(elements: list[JsonValue]) -> None:
    assert json.loads(b"".join(chunks(JsonArray(elements)))) == elements


def test_an_element_is_encoded_when_the_earlier_ones_were_sent() -> None:
    encoded = 0

    def elements() -> Iterator[JsonValue]:
        nonlocal encoded
        for _ in range(100):
            encoded += 1
            yield "x" * ARRAY_CHUNK_BYTES

    async def first_chunk() -> None:
        response = array_response(JsonArray(elements()))
        assert isinstance(response, StreamingResponse)
        async for _ in response.body_iterator:
            break

    asyncio.run(first_chunk())
    assert encoded == 1


def test_list_of_schemas_is_sent_in_chunks(client: TestClient) -> None:
    response = client.get("/schemas?subjectPrefix=:*:")
    assert "content-length" not in response.headers
    assert {each["subject"] for each in response.json()} >= {"orders", ":.sales:orders"}
