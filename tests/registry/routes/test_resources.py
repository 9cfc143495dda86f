"""Methods, media types, bodies and their errors, which are the same for all endpoints."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.testclient import TestClient

from odradek.registry.app import create_app
from odradek.registry.errors import RegistryError
from odradek.registry.json_value import JsonValue
from odradek.registry.routes import requests
from odradek.registry.routes.content_types import V1_JSON
from odradek.registry.routes.requests import BODY_BYTES_MAX, RegistryRequest
from tests.registry.routes.memory_registry import ORDER_1, MemoryRegistry, schema_body

VERSIONS = "/subjects/orders/versions"


def error_code(response_json: dict[str, JsonValue]) -> JsonValue:
    assert set(response_json) == {"error_code", "message"}
    return response_json["error_code"]


def test_head_is_a_get_without_a_body(client: TestClient) -> None:
    head, get = client.head("/schemas/ids/1"), client.get("/schemas/ids/1")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]
    assert client.head("/schemas/ids/99").status_code == 404


def test_options_returns_the_methods(client: TestClient) -> None:
    response = client.options(VERSIONS)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["allow"] == "GET, POST, HEAD, OPTIONS"


def test_other_methods_are_405(client: TestClient) -> None:
    response = client.patch("/config")
    assert (response.status_code, error_code(response.json())) == (405, 405)
    assert response.headers["allow"] == "GET, PUT, DELETE, HEAD, OPTIONS"
    assert response.json()["message"] == "HTTP 405 Method Not Allowed"


@pytest.mark.parametrize("path", ["/nothing", "/subjects/a/nothing", "/schemas/ids", "/v1"])
def test_unknown_path_is_404_in_confluents_form(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert (response.status_code, response.json()) == (
        404,
        {"error_code": 404, "message": "HTTP 404 Not Found"},
    )
    assert response.headers["content-type"] == V1_JSON.decode()


def test_media_type_of_a_response_is_the_accepted_one(client: TestClient) -> None:
    for path in ("/schemas/ids/1", "/schemas/ids/99", "/config"):
        response = client.get(path, headers={"accept": "application/json"})
        assert response.headers["content-type"] == "application/json"
    refused = client.get("/config", headers={"accept": "text/html"})
    assert (refused.status_code, error_code(refused.json())) == (406, 406)


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json",
        "application/octet-stream",
        "application/vnd.schemaregistry+json",
        "application/vnd.schemaregistry.v1+json; charset=utf-8",
    ],
)
def test_media_types_of_requests(client: TestClient, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    content = json.dumps(schema_body(ORDER_1))
    assert client.post(VERSIONS, content=content, headers=headers).json()["id"] == 1


@pytest.mark.parametrize(
    ("content", "content_type", "code"),
    [
        (b"", "application/json", 422),
        (b"  \n", "application/json", 422),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 200_000, "application/json", 400),
        (b'{"schema": NaN}', "application/json", 400),
        (b"null", "application/json", 400),
        (b'"text"', "application/json", 400),
        (b'{"schema": {}}', "application/json", 400),
        (b'{"schema": "\\ud800"}', "application/json", 400),
        (b'{"references": ["a"]}', "application/json", 400),
        (b"schema=1", "application/x-www-form-urlencoded", 415),
    ],
)
def test_malformed_bodies(client: TestClient, content: bytes, content_type: str, code: int) -> None:
    response = client.post(VERSIONS, content=content, headers={"content-type": content_type})
    assert (response.status_code, error_code(response.json())) == (code, code)


def test_body_above_the_limit_is_413(client: TestClient) -> None:
    content = b" " * (BODY_BYTES_MAX + 1)
    whole = client.post(VERSIONS, content=content)
    chunked = client.post(VERSIONS, content=(content[n::2] for n in range(2)))
    assert [each.status_code for each in (whole, chunked)] == [413, 413]
    assert error_code(whole.json()) == error_code(chunked.json()) == 413


def test_segment_that_is_not_utf8_is_400(client: TestClient) -> None:
    response = client.get("/subjects/%FF/versions")
    assert (response.status_code, error_code(response.json())) == (400, 400)


def test_text_and_subject_without_ascii_are_returned_as_they_were_sent(client: TestClient) -> None:
    text = '{"type":"enum","name":"Size","doc":"größer 😀","symbols":["A"]}'
    name = "straße/größe 😀"
    url = "/subjects/stra%C3%9Fe%2Fgr%C3%B6%C3%9Fe%20%F0%9F%98%80/versions"
    assert client.post(url, json=schema_body(text)).status_code == 200
    version = client.get(f"{url}/1").json()
    assert (version["subject"], version["schema"]) == (name, text)
    assert client.get(f"{url}/1/schema").text == text
    assert name in client.get("/subjects").json()


class Broken(MemoryRegistry):
    """A registry with a defect."""

    async def write(self, *_: object) -> JsonValue:
        raise ZeroDivisionError


def test_defect_is_500_without_details() -> None:
    client = TestClient(create_app(Broken()), raise_server_exceptions=False)
    response = client.put("/config", json={"compatibility": "FULL"})
    assert (response.status_code, error_code(response.json())) == (500, 500)
    assert "ZeroDivisionError" in response.json()["message"]


class Refusing(MemoryRegistry):
    """A registry without a writer."""

    async def write(self, *_: object) -> JsonValue:
        raise RegistryError(50004, "Leader not known.")


def test_code_of_five_digits_begins_with_the_status() -> None:
    client = TestClient(create_app(Refusing()))
    response = client.put("/config", json={"compatibility": "FULL"})
    assert response.status_code == 500
    assert response.json() == {"error_code": 50004, "message": "Leader not known."}


def test_write_is_forwardable_as_the_client_sent_it(
    client: TestClient, registry: MemoryRegistry
) -> None:
    body = json.dumps(schema_body(ORDER_1)).encode()
    client.post(
        "/contexts/sales/subjects/a%2Fb/versions?normalize=true",
        content=body,
        headers={"authorization": "Basic YTpi", "x-request-id": "7", "x-other": "no"},
    )
    (request,) = registry.requests
    assert request.method == "POST"
    assert request.target == "/contexts/sales/subjects/a%2Fb/versions?normalize=true"
    assert request.body == body
    assert request.headers == {"authorization": "Basic YTpi", "x-request-id": "7"}
    assert (request.is_forwarded, request.may_skip_writer) == (False, True)


def test_response_to_a_forwarded_request_has_the_offset(
    client: TestClient, registry: MemoryRegistry
) -> None:
    response = client.put("/config", json={"compatibility": "FULL"}, headers={"x-forward": "true"})
    assert response.headers["x-odradek-offset"] == str(registry.state.offset)
    assert registry.requests[-1].is_forwarded
    assert "x-odradek-offset" not in client.get("/config").headers


def test_a_body_that_does_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_TIMEOUT_S", 0.0)

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def read() -> None:
        scope = {"type": "http", "method": "PUT", "headers": [], "query_string": b""}
        with pytest.raises(RegistryError) as raised:
            await RegistryRequest(scope, receive).json()
        assert raised.value.status == 408

    asyncio.run(read())
