"""The suite of the registry's clients: recorded requests, and the page that is made from them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from conformance.harness import Context, Outcome
from conformance.known import KNOWN
from conformance.schema_registry import cases, page, record, released, versions
from conformance.schema_registry.endpoints import (
    UNSUPPORTED,
    Call,
    call_of,
    is_unsupported,
    supported,
    unexpected,
)
from conformance.schema_registry.exchanges import Conversation, Exchange
from conformance.schema_registry.programs import CLIENTS, FORMATS, SCENARIOS, Client
from conformance.schema_registry.recorder import Recorder
from hypothesis import given
from hypothesis import strategies as st

from odradek.testing import Broker

REQUESTS = (
    b"GET /subjects HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /subjects/a/versions?normalize=true HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
    b"HEAD /subjects HTTP/1.1\r\nHost: a\r\n\r\n",
    b"DELETE /contexts/.a HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PUT /mode HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
)
RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 409 Conflict\r\nContent-Length: 18\r\n\r\n"
    b'{"error_code":409}',
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 422 Unprocessable\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'14\r\n{"error_code":42204}\r\n0\r\n\r\n',
)
EXCHANGES = [
    Exchange("GET", "/subjects", 200),
    Exchange("POST", "/subjects/a/versions?normalize=true", 409, 409),
    Exchange("HEAD", "/subjects", 200),
    Exchange("DELETE", "/contexts/.a", 204),
    Exchange("PUT", "/mode", 422, 42204),
]
CUTS = st.sets(st.integers(1, 80)).map(sorted)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if data[begin:end]:
            yield data[begin:end]


# --- exchanges ---


@given(CUTS, CUTS)
def test_exchanges_do_not_depend_on_the_pieces_in_which_bytes_arrive(
    request_cuts: list[int], response_cuts: list[int]
) -> None:
    found: list[Exchange] = []
    conversation = Conversation(found.append)
    for request, response in zip(REQUESTS, RESPONSES, strict=True):
        for piece in pieces(request, request_cuts):
            conversation.from_client(piece)
        for piece in pieces(response, response_cuts):
            conversation.from_server(piece)
    assert found == EXCHANGES


def test_requests_that_arrive_together_have_their_own_responses() -> None:
    found: list[Exchange] = []
    conversation = Conversation(found.append)
    conversation.from_client(b"".join(REQUESTS))
    conversation.from_server(b"".join(RESPONSES))
    assert found == EXCHANGES


def test_the_proxy_forwards_bytes_and_records_the_exchange() -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Recorder(f"http://127.0.0.1:{server.server_port}") as recorder, httpx.Client() as web:
            for body in (b"a" * 200_000, b"b"):
                assert web.post(f"{recorder.url}/a?b=c", content=body).content == body
        server.shutdown()
    assert recorder.exchanges == [Exchange("POST", "/a?b=c", 200)] * 2
    assert recorder.failures == []


def test_a_registry_that_is_not_reached_is_a_failure_of_the_proxy() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    with Recorder(f"http://127.0.0.1:{port}") as recorder, httpx.Client() as web:
        with pytest.raises(httpx.RemoteProtocolError):
            web.get(recorder.url)
    [failure] = recorder.failures
    assert failure.startswith("the registry accepts no connection")


# --- endpoints ---


@pytest.mark.parametrize(
    ("target", "endpoint", "parameters", "has_prefix"),
    [
        ("/subjects", "GET /subjects", [], False),
        ("/subjects/?deleted=&limit=1", "GET /subjects", ["deleted", "limit"], False),
        (
            "/subjects/a%2Fb/versions/latest",
            "GET /subjects/{subject}/versions/{version}",
            [],
            False,
        ),
        ("/contexts/.a/subjects/b", "GET /subjects/{subject}", [], True),
        ("/contexts/.a", "GET /contexts/{context}", [], False),
        ("/contexts", "GET /contexts", [], False),
        (
            "/associations/resources/-/orders",
            "GET /associations/resources/{namespace}/{name}",
            [],
            False,
        ),
        ("//dek-registry/v1/keks?deleted=true", "GET /dek-registry/v1/keks", ["deleted"], False),
        ("/unknown/a", "GET /unknown/a", [], False),
    ],
)
def test_a_request_belongs_to_its_endpoint(
    target: str, endpoint: str, parameters: list[str], has_prefix: bool
) -> None:
    expected = Call(endpoint, frozenset(parameters), has_prefix)
    assert call_of(Exchange("GET", target, 200)) == expected


@pytest.mark.parametrize(
    ("exchange", "is_unexpected"),
    [
        (Exchange("GET", "/subjects", 200), False),
        (Exchange("GET", "/subjects/a/versions", 404, 40401), False),
        (Exchange("POST", "/subjects/a/versions", 409, 409), False),
        (Exchange("GET", "/associations/resources/-/a", 404, 404), False),
        (Exchange("GET", "/subjects/a/versions", 404, 404), True),
        (Exchange("GET", "/subjects/a/versions", 404), True),
        (Exchange("GET", "/unknown", 404, 404), True),
        (Exchange("PATCH", "/subjects", 405, 405), True),
        (Exchange("POST", "/subjects/a", 415, 415), True),
        (Exchange("POST", "/subjects/a", 500, 50001), True),
        (Exchange("POST", "/subjects/a", 503, 503), True),
    ],
)
def test_refusals_of_the_registry_itself_are_unexpected(
    exchange: Exchange, is_unexpected: bool
) -> None:
    assert bool(unexpected([exchange])) == is_unexpected


# --- cases ---


def client(script: str) -> Client:
    return Client("a client", "py", lambda _: [sys.executable, "-c", script])


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("import sys; sys.exit('a wrong id')", "a wrong id"),
        (
            "import sys, httpx; httpx.get(f'{sys.argv[2]}/unknown')",
            "GET /unknown: 404 404",
        ),
        ("import sys, httpx; httpx.get(f'{sys.argv[2]}/subjects')", ""),
    ],
)
def test_a_case_fails_with_its_program_and_with_unexpected_responses(
    kafka: Broker, tmp_path: Path, script: str, failure: str
) -> None:
    calls = cases.Calls()
    case = cases._scenario(client(script), "lookups", calls)
    context = Context(kafka.bootstrap_servers, tmp_path)
    if failure:
        with pytest.raises(AssertionError, match=failure):
            case(context)
    else:
        case(context)
        assert list(calls.made["a client"]) == [Call("GET /subjects", frozenset(), False)]


def test_records_that_another_client_decodes_differently_fail_the_case(
    kafka: Broker, tmp_path: Path
) -> None:
    script = """if True:
        import json, sys
        if sys.argv[1] == "read":
            for number, note in ((1, None), (2, "a note")):
                order = {"id": f"py-{number}", "amount": number, "note": note}
                print(json.dumps({"topic": sys.argv[7], **order}))
            print(json.dumps({"topic": sys.argv[7], "id": "py-?", "amount": 0, "note": ""}))
    """
    one = client(script)
    case = cases._records((one,), (one,), "avro", cases.Calls())
    with pytest.raises(AssertionError, match=r"a client read .*'py-\?'.* instead of .*'py-ä€'"):
        case(Context(kafka.bootstrap_servers, tmp_path))


def test_each_client_has_cases_for_its_scenarios_and_formats() -> None:
    names = [each.name for each in cases.cases(cases.Calls())]
    assert len(set(names)) == len(names)
    for each in CLIENTS:
        assert set(each.scenarios) <= set(SCENARIOS)
        assert {*each.writes, *each.reads} <= set(FORMATS)
        expected = len(each.scenarios) + len({*each.writes, *each.reads})
        assert sum(name.startswith(f"{each.name}: ") for name in names) == expected
    assert [name for name in names if name.startswith("each client reads")] == [
        f"each client reads {title} of all" for title in FORMATS.values()
    ]


def test_each_released_test_has_a_result_with_the_message_of_its_failure() -> None:
    found = {
        "testResults": [
            {
                "name": "/a/schemaregistry-client.spec.js",
                "assertionResults": [
                    {"title": "one", "status": "passed", "duration": 1500, "failureMessages": []},
                    {
                        "title": "two",
                        "status": "failed",
                        "duration": None,
                        "failureMessages": ["x"],
                    },
                ],
            }
        ]
    }
    head = "@confluentinc/schemaregistry's schemaregistry-client: "
    assert list(released._outcomes(found)) == [
        Outcome(f"{head}one", "passed", 1.5),
        Outcome(f"{head}two", "failed", 0.0, "x"),
    ]
    output = "=== RUN TestClient\n--- FAIL: TestClient (1.18s)\n    a reason\nFAIL\n"
    assert released.RESULT.findall(output) == [("FAIL", "TestClient", "1.18")]


def test_known_failures_are_cases_of_released_tests() -> None:
    known = [name for suite, name in KNOWN if suite == "schema_registry"]
    assert len(known) == 2
    assert all(name.startswith("@confluentinc/schemaregistry's ") for name in known)


# --- page ---


@pytest.fixture(scope="module")
def recorded() -> page.Record:
    return record.load()


def test_the_page_is_the_one_of_the_recorded_calls(recorded: page.Record) -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(recorded)


def test_the_recorded_clients_are_the_pinned_ones(recorded: page.Record) -> None:
    assert recorded.versions == versions.versions()
    shorts = [each.short for each in CLIENTS]
    assert list(recorded.calls) == list(recorded.not_found) == shorts


def test_the_recorded_calls_are_of_known_endpoints(recorded: page.Record) -> None:
    for calls in recorded.calls.values():
        for endpoint in calls:
            call = Call(endpoint, frozenset(), False)
            assert endpoint in supported() or is_unsupported(call), endpoint
    for endpoints in recorded.not_found.values():
        assert {each.partition(" ")[2] for each in endpoints} <= set(UNSUPPORTED)


def test_each_client_registers_reads_and_looks_up(recorded: page.Record) -> None:
    for short, calls in recorded.calls.items():
        assert {
            "POST /subjects/{subject}/versions",
            "POST /subjects/{subject}",
            "GET /schemas/ids/{id}",
            "GET /subjects/{subject}/versions/{version}",
        } <= set(calls), short


def test_a_call_is_in_the_column_of_its_client() -> None:
    calls = cases.Calls()
    get, find = (
        Exchange("GET", "/subjects?limit=1", 200),
        Exchange("GET", "/associations", 404, 404),
    )
    calls.add(CLIENTS[2], [get, Exchange("GET", "/contexts/.a/mode", 200), find])
    pinned = {each.short: "1" for each in CLIENTS}
    made = page.record_of(calls, pinned, "c" * 40, "2026-11-27")
    text = page.page(made)
    cells = ["", "", "yes", "", "", "", ""]
    assert f"| `GET /subjects` | {' | '.join(cells)} | `limit` |" in text
    assert f"| {page.PREFIX} | {' | '.join(cells)} |  |" in text
    assert f"| `GET /associations` | {' | '.join(cells)} |" in text
    assert "- `GET /contexts`\n" in text and "- `GET /mode`\n" not in text
    assert "on 2026-11-27, for the code of `ccccccc`" in text
