"""The client of a registry: repetition, several instances, references, names and credentials."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from odradek.registry import client as client_module
from odradek.registry.client import (
    RETRY_WAITS_S,
    Credentials,
    RegistryClient,
    RegistryRefusal,
    RegistryUnavailable,
    StoredSchema,
    UnexpectedResponse,
    open_client,
    parse_urls,
    without_credentials,
)
from odradek.registry.schemas.parsed import Reference, ResolvedReference
from tests.helpers.fake_registry import FakeRegistry


def answering(*responses: httpx.Response | Exception) -> tuple[RegistryClient, list[str], Any]:
    """Return a client, the lines that it reports, and the waits between its requests."""
    pending = list(responses)
    lines: list[str] = []
    waits: list[float] = []

    def handle(_request: httpx.Request) -> httpx.Response:
        response = pending.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    http = httpx.Client(transport=httpx.MockTransport(handle))
    return RegistryClient(["http://a:1"], http, lines.append, waits.append), lines, waits


def error(status: int, code: int) -> httpx.Response:
    return httpx.Response(status, json={"error_code": code, "message": "no"})


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout(""),
        error(503, 503),
        error(429, 429),
        error(500, 50003),
        error(500, 50004),
        httpx.Response(502, text="<html>bad gateway</html>"),
    ],
)
def test_request_is_repeated_with_one_line(failure: httpx.Response | Exception) -> None:
    client, lines, waits = answering(failure, failure, httpx.Response(200, json=["a"]))
    assert client.subjects() == ["a"]
    assert waits == list(RETRY_WAITS_S[:2])
    [line] = lines
    assert line.endswith("The request is sent again.")


@pytest.mark.parametrize("failure", [httpx.ReadTimeout(""), error(500, 50002), error(500, 50003)])
def test_a_repeated_deletion_may_find_the_version_deleted(
    failure: httpx.Response | Exception,
) -> None:
    client, _, waits = answering(failure, error(404, 40406))
    client.delete_version("a", 1)
    assert len(waits) == 1


def test_a_first_deletion_of_a_deleted_version_is_an_error() -> None:
    client, _, _ = answering(error(404, 40406))
    with pytest.raises(RegistryRefusal):
        client.delete_version("a", 1)


def test_repetition_has_a_limit() -> None:
    client, _, waits = answering(*[httpx.ConnectError("refused")] * 10)
    with pytest.raises(RegistryUnavailable, match=r"No registry responds at http://a:1 \(refused"):
        client.subjects()
    assert waits == list(RETRY_WAITS_S)


@pytest.mark.parametrize(("status", "code"), [(404, 40401), (409, 409), (422, 42201), (500, 50001)])
def test_refusal_is_not_repeated(status: int, code: int) -> None:
    client, lines, waits = answering(error(status, code))
    with pytest.raises(RegistryRefusal) as caught:
        client.subjects()
    assert (caught.value.status, caught.value.code, caught.value.message) == (status, code, "no")
    assert (lines, waits) == ([], [])


def test_refusal_may_have_another_body() -> None:
    client, _, _ = answering(httpx.Response(403, text="Forbidden  by\nproxy"))
    with pytest.raises(RegistryRefusal, match=r"Forbidden by proxy \(error 403\)"):
        client.subjects()


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"a": 1}),
        httpx.Response(200, json=5),
    ],
)
def test_response_of_another_form_is_an_error(response: httpx.Response) -> None:
    client, _, _ = answering(response)
    with pytest.raises(UnexpectedResponse):
        client.subjects()


def test_next_instance_is_used_after_a_failed_connection() -> None:
    hosts: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        if request.url.host == "a":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json=[])

    http = httpx.Client(transport=httpx.MockTransport(handle))
    client = RegistryClient(["http://a:1", "http://b:1"], http, lambda _: None, lambda _: None)
    client.subjects()
    client.subjects()
    assert hosts == ["a", "b", "b"]


@pytest.mark.parametrize("subject", ["orders/eu", ":.sales:orders", "..", ".", "a b%", "é?x=1#y"])
def test_any_subject_is_one_segment_of_the_path(subject: str) -> None:
    fake = FakeRegistry()
    fake.add(subject, '"string"')
    client = fake.client()
    assert client.versions(subject) == [1]
    assert client.version(subject, "latest").id == 1
    assert client.config(subject) is None


def test_schema_has_all_properties_of_the_response() -> None:
    body = {
        "schema": "{}",
        "schemaType": "JSON",
        "references": [{"name": "n", "subject": "s", "version": 2}],
        "metadata": {"properties": {"owner": "x"}},
        "ruleSet": {"domainRules": []},
        "subject": "a",
        "version": 3,
        "id": 4,
        "guid": "g",
        "unknown": 5,
    }
    schema = StoredSchema.from_json(body)
    assert schema.references == (Reference("n", "s", 2),)
    request = schema.to_request()
    assert request == {name: body[name] for name in request}
    assert set(request) == {"schema", "schemaType", "references", "metadata", "ruleSet"}
    assert (schema.subject, schema.version, schema.id, schema.guid) == ("a", 3, 4, "g")


def test_schema_without_a_kind_is_avro() -> None:
    assert StoredSchema.from_json({"schema": '"int"'}).kind == "AVRO"


@pytest.mark.parametrize(
    "body", [{}, {"schema": 5}, [], {"schema": "x", "references": [{"name": "n"}]}]
)
def test_response_without_a_schema_is_refused(body: object) -> None:
    with pytest.raises(UnexpectedResponse):
        StoredSchema.from_json(body)


def reference(name: str, subject: str, version: int = 1) -> dict[str, object]:
    return {"name": name, "subject": subject, "version": version}


def test_references_are_in_the_order_of_dependency() -> None:
    fake = FakeRegistry()
    fake.add("c", '"c"')
    fake.add("b", '"b"', references=[reference("C", "c")])
    fake.add("a", '"a"', references=[reference("C", "c"), reference("B", "b")])
    client = fake.client()
    found = client.resolve(client.version("a", 1))
    assert found == (ResolvedReference("C", '"c"'), ResolvedReference("B", '"b"'))


def test_reference_without_a_context_belongs_to_the_context_of_its_schema() -> None:
    fake = FakeRegistry()
    fake.add(":.sales:b", '"b"')
    fake.add(":.sales:a", '"a"', references=[reference("B", "b")])
    client = fake.client()
    assert client.resolve(client.version(":.sales:a", 1)) == (ResolvedReference("B", '"b"'),)


def test_cyclic_references_end() -> None:
    fake = FakeRegistry()
    fake.add("a", '"a"', references=[reference("B", "b")])
    fake.add("b", '"b"', references=[reference("A", "a")])
    client = fake.client()
    names = {each.name for each in client.resolve(client.version("a", 1))}
    assert names == {"A", "B"}


def test_number_of_references_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "REFERENCES_MAX", 2)
    fake = FakeRegistry()
    for name in "bcd":
        fake.add(name, f'"{name}"')
    fake.add("a", '"a"', references=[reference(name, name) for name in "bcd"])
    client = fake.client()
    with pytest.raises(UnexpectedResponse, match="more than 2 references"):
        client.resolve(client.version("a", 1))


def test_mode_that_does_not_exist_is_removed_without_an_error() -> None:
    fake = FakeRegistry()
    fake.client().set_mode("a", None)
    assert fake.requests == ["DELETE /mode/a"]


def test_config_is_set_in_the_form_in_which_it_is_returned() -> None:
    fake = FakeRegistry()
    config = {"compatibilityLevel": "FULL", "normalize": True}
    fake.client().set_config("a", config)
    assert fake.client().config("a") == config
    assert fake.client().config("b", effective=True) == {"compatibilityLevel": "BACKWARD"}


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("http://a:1", ["http://a:1"]),
        ("http://a:1/, https://b/registry", ["http://a:1", "https://b/registry"]),
    ],
)
def test_addresses_are_separated_by_commas(text: str, urls: list[str]) -> None:
    assert parse_urls(text) == urls


@pytest.mark.parametrize("text", ["", " , ", "localhost:8081", "ftp://a", "http://", "http://a:x"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_urls(text)


def test_credentials_are_not_shown() -> None:
    assert without_credentials("http://user:secret@a:1/x") == "http://a:1/x"
    assert "secret" not in repr(Credentials("user", "secret"))
    with pytest.raises(ValueError, match="ftp://a") as caught:
        parse_urls("ftp://user:secret@a")
    assert "secret" not in str(caught.value)


def test_credentials_are_sent() -> None:
    client = open_client(["http://a:1"], Credentials("user", "secret"), lambda _: None)
    request = client._http.build_request("GET", "http://a:1")
    flow = client._http.auth
    assert flow is not None
    sent = next(flow.auth_flow(request))
    assert sent.headers["Authorization"] == "Basic dXNlcjpzZWNyZXQ="
    client.close()
