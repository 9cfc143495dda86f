"""Every endpoint with its responses and its error codes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.registry.app import create_app, resource_table
from odradek.registry.routes.content_types import V1_JSON
from odradek.registry.routes.unsupported import UnsupportedRoutes
from tests.registry.routes.examples import EXAMPLES, Example
from tests.registry.routes.memory_registry import (
    ORDER_1,
    ORDER_2,
    MemoryRegistry,
    fill,
    schema_body,
)

READS = [example for example in EXAMPLES if example.method == "GET"]
WRITES = [example for example in EXAMPLES if example.method != "GET"]


@pytest.fixture(scope="module")
def shared_client() -> TestClient:
    """A client for requests that change nothing."""
    client = TestClient(create_app(MemoryRegistry()))
    fill(client)
    return client


def send(client: TestClient, example: Example) -> Any:
    content = None if example.body is None else json.dumps(example.body)
    return client.request(example.method, example.url, content=content)


def check(example: Example, response: Any) -> None:
    assert response.status_code == example.status, response.text
    if example.status == 204:
        assert response.content == b""
        return
    assert response.headers["content-type"] == V1_JSON.decode()
    if example.code is None:
        assert example.matches(response.json()), response.json()
    else:
        assert set(response.json()) == {"error_code", "message"}
        assert response.json()["error_code"] == example.code
        assert response.json()["message"]


@pytest.mark.parametrize("example", READS, ids=lambda example: example.name)
def test_read(shared_client: TestClient, example: Example) -> None:
    check(example, send(shared_client, example))


@pytest.mark.parametrize("example", WRITES, ids=lambda example: example.name)
def test_request_with_a_body_or_an_effect(client: TestClient, example: Example) -> None:
    check(example, send(client, example))


def test_each_endpoint_has_examples() -> None:
    table = resource_table(MemoryRegistry())
    unsupported = set(UnsupportedRoutes().resources())
    endpoints = {
        (path, method)
        for path, handlers in table.items()
        for method in handlers
        if path not in unsupported
    }
    examples = {(example.endpoint, example.method) for example in EXAMPLES}
    assert endpoints - examples == set()
    assert unsupported <= {path for path, _ in examples}


def test_texts_of_schemas_are_not_json_strings(client: TestClient) -> None:
    for url in ("/schemas/ids/1/schema", "/subjects/orders/versions/1/schema"):
        response = client.get(url)
        assert (response.status_code, response.text) == (200, ORDER_1)
        assert response.headers["content-type"] == V1_JSON.decode()
    assert client.get("/subjects/orders/versions/latest/schema").text == ORDER_2


def test_schema_by_id_names_a_subject_only_if_the_request_does(client: TestClient) -> None:
    assert not {"subject", "version"} & set(client.get("/schemas/ids/1").json())
    assert {"subject", "version"} <= set(client.get("/schemas/ids/1?subject=").json())


def test_schema_by_guid_names_no_subject(client: TestClient) -> None:
    guid = client.get("/schemas/ids/2").json()["guid"]
    body = client.get(f"/schemas/guids/{guid}").json()
    assert body["schema"] == ORDER_2
    assert not {"subject", "version", "id"} & set(body)


def test_list_of_schemas(client: TestClient) -> None:
    def listed(query: str) -> list[tuple[str, int]]:
        return [
            (each["subject"], each["version"]) for each in client.get("/schemas" + query).json()
        ]

    assert listed("?subjectPrefix=orders") == [("orders", 1), ("orders", 2), ("orders/eu", 1)]
    assert listed("?subjectPrefix=orders&latestOnly=true") == [("orders", 2), ("orders/eu", 1)]
    assert listed("?subjectPrefix=g") == []
    assert listed("?subjectPrefix=g&deleted=true") == [("gone", 1)]
    assert listed("?subjectPrefix=orders&offset=1&limit=1") == [("orders", 2)]
    assert listed("?subjectPrefix=:.sales:") == [(":.sales:invoices", 1), (":.sales:orders", 1)]
    assert len(listed("?subjectPrefix=:*:&lifecycle=NONE")) == 7
    assert len(listed("?subjectPrefix=:*:")) == 7


def test_references_are_qualified_on_request(client: TestClient) -> None:
    reference = {"name": "Order", "subject": "orders", "version": 1}
    body = schema_body(
        '{"type":"record","name":"L","fields":[{"name":"o","type":"Order"}]}',
        references=[reference],
    )
    url = "/contexts/.sales/subjects/lines/versions"
    schema_id = client.post(url, json=body).json()["id"]
    qualified = [{**reference, "subject": ":.sales:orders"}]
    for path in (
        f"/schemas/ids/{schema_id}?subject=:.sales:lines",
        "/subjects/:.sales:lines/versions/1",
    ):
        separator = "&" if "?" in path else "?"
        assert client.get(path).json()["references"] == [reference]
        asked = client.get(f"{path}{separator}referenceFormat=qualified")
        assert asked.json()["references"] == qualified


def test_alias_stands_for_its_subject(client: TestClient) -> None:
    client.put("/config/shop", json={"alias": "orders"})
    assert client.get("/subjects/shop/versions").json() == [1, 2]
    assert client.get("/schemas/ids/2?subject=shop").json()["subject"] == "orders"
    body = schema_body(ORDER_1)
    assert client.post("/subjects/shop", json=body).json()["subject"] == "orders"
    assert client.post("/subjects/shop/versions", json=body).json()["version"] == 1
    compatibility = client.post("/compatibility/subjects/shop/versions/2", json=body)
    assert compatibility.json() == {"is_compatible": True}
    assert client.delete("/subjects/shop/versions/2").json() == 2
    # A config belongs to the alias itself.
    assert client.get("/config/shop").json()["alias"] == "orders"
    assert client.get("/config/orders").json()["error_code"] == 40408
    aliased = client.get("/schemas?subjectPrefix=shop&aliases=true").json()
    assert [(each["subject"], each["aliases"]) for each in aliased] == [("orders", ["shop"])]


def test_compatibility_messages_only_if_verbose(client: TestClient) -> None:
    url = "/compatibility/subjects/orders/versions/1"
    body = schema_body('{"type":"record","name":"Order","fields":[{"name":"n","type":"int"}]}')
    assert client.post(url, json=body).json() == {"is_compatible": False}
    verbose = client.post(url + "?verbose=true", json=body).json()
    assert verbose["is_compatible"] is False
    assert verbose["messages"]


def test_import_mode_accepts_ids_and_versions(client: TestClient) -> None:
    client.put("/mode/:.copy:", json={"mode": "IMPORT"})
    body = schema_body(ORDER_1, id=77, version=5)
    registered = client.post("/subjects/:.copy:orders/versions", json=body).json()
    assert (registered["id"], registered["version"]) == (77, 5)
    assert client.get("/contexts/copy/schemas/ids/77").json()["schema"] == ORDER_1


def test_error_messages_are_confluents(client: TestClient) -> None:
    def message(url: str) -> str:
        text: str = client.get(url).json()["message"]
        return text

    assert message("/subjects/x%2Fy/versions") == "Subject 'x/y' not found."
    assert message("/subjects/orders/versions/7") == "Version 7 not found."
    assert message("/schemas/ids/77") == "Schema 77 not found"
    assert message("/nothing") == "HTTP 404 Not Found"
