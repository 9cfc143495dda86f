"""Dispatch of frames: responses, errors that close the connection, and pending responses."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers import list_offsets
from odradek.broker.requests.apis import API_BY_KEY
from odradek.broker.requests.dispatch import WITH_REGIONS, Dispatcher
from odradek.broker.requests.quotas import ClientQuotas
from odradek.net.connection import CloseConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.messages.list_offsets_request import ListOffsetsRequest
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.registry import response_class
from odradek.protocol.spec import StructSpec, find
from odradek.result_tasks import in_task, wait, wait_executed
from odradek.results import PendingResult, Result
from odradek.slicing import ELEMENTS_PER_SLICE


def frame(api_key: int, version: int, body: bytes = b"", *, flexible: bool = False) -> memoryview:
    header = struct.pack(">hhih", api_key, version, 7, 2) + b"me" + (b"\0" if flexible else b"")
    return memoryview(bytearray(header + body))


def list_offsets_frame() -> memoryview:
    return frame(ApiKey.LIST_OFFSETS, 1, encode(ListOffsetsRequest(-1), 1))


@pytest.fixture
def connection() -> Any:
    return SimpleNamespace(remembered=None, fetch_shape=None, session=None)


@pytest.fixture
def dispatch() -> Any:
    services: Any = SimpleNamespace(quotas=ClientQuotas(11, 1000), cluster=None)
    return Dispatcher(services).dispatch


def respond_with(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the handler of ListOffsets return `result(services, context, request)`."""
    monkeypatch.setattr(list_offsets, "handle", result)


def holds_records(struct: StructSpec) -> bool:
    return any(
        field.kind == "records" or (field.struct is not None and holds_records(field.struct))
        for field in struct.fields
    )


def test_only_responses_with_records_may_hold_regions_of_files() -> None:
    with_records = {
        key for key in API_BY_KEY if holds_records(find(response_class(key).__name__).body)
    }
    assert with_records == WITH_REGIONS


def test_unknown_version_of_api_versions_gets_kafkas_response(
    dispatch: Any, connection: Any
) -> None:
    chunks = dispatch(connection, frame(ApiKey.API_VERSIONS, 99, flexible=True))
    assert b"".join(chunks).hex() == "00000007002300000001001200000004"


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(ApiKey.PRODUCE, 2), (ApiKey.PRODUCE, 14), (ApiKey.FETCH, 3), (ApiKey.METADATA, 99), (999, 0)],
)
def test_unsupported_apis_and_versions_close_the_connection(
    dispatch: Any, connection: Any, api_key: int, version: int
) -> None:
    with pytest.raises(CloseConnection, match="unsupported"):
        dispatch(connection, frame(api_key, version, flexible=version > 12))


@pytest.mark.parametrize("size", range(18))
def test_torn_request_closes_the_connection(dispatch: Any, connection: Any, size: int) -> None:
    with pytest.raises(CloseConnection, match="malformed"):
        dispatch(connection, list_offsets_frame()[:size])


def test_handlers_bug_is_logged_and_closes_the_connection(
    dispatch: Any,
    connection: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("oops")

    respond_with(broken, monkeypatch)
    with pytest.raises(CloseConnection, match="LIST_OFFSETS"):
        dispatch(connection, list_offsets_frame())
    assert "ZeroDivisionError: oops" in caplog.text


def test_pending_response_is_encoded_when_it_is_known(
    dispatch: Any, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending: PendingResult[ListOffsetsResponse] = PendingResult()
    respond_with(lambda *_: pending, monkeypatch)
    reply = dispatch(connection, list_offsets_frame())
    assert (reply.executed, reply.done) == (True, False)
    pending.complete(ListOffsetsResponse())
    assert b"".join(reply.get())[:4] == (7).to_bytes(4, "big")


def test_closed_connection_cancels_the_delayed_operation(
    dispatch: Any, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[bool] = []
    pending: PendingResult[ListOffsetsResponse] = PendingResult(
        on_cancel=lambda: released.append(True)
    )
    respond_with(lambda *_: pending, monkeypatch)
    dispatch(connection, list_offsets_frame()).cancel()
    assert released


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), CloseConnection("enough")])
def test_late_error_closes_the_connection(
    dispatch: Any, connection: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    pending: PendingResult[ListOffsetsResponse] = PendingResult()
    respond_with(lambda *_: pending, monkeypatch)
    reply = dispatch(connection, list_offsets_frame())
    pending.fail(error)
    with pytest.raises(CloseConnection):
        reply.get()


def test_response_that_cannot_be_encoded_closes_the_connection(
    dispatch: Any,
    connection: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pending: PendingResult[Any] = PendingResult()
    respond_with(lambda *_: pending, monkeypatch)
    reply = dispatch(connection, list_offsets_frame())
    pending.complete("no response")
    with pytest.raises(CloseConnection, match="LIST_OFFSETS"):
        reply.get()
    assert "bug in LIST_OFFSETS" in caplog.text


def test_response_known_at_execution_is_encoded_before_the_next_request(
    dispatch: Any, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a client that pipelines requests has many long responses encoded at once."""

    async def main() -> None:
        executing: PendingResult[ListOffsetsResponse] = PendingResult(executed=False)
        respond_with(lambda *_: executing, monkeypatch)
        reply = dispatch(connection, list_offsets_frame())
        partitions = [ListOffsetsPartitionResponse() for _ in range(2 * ELEMENTS_PER_SLICE)]
        executing.complete(ListOffsetsResponse(0, [ListOffsetsTopicResponse("t", partitions)]))
        assert not reply.executed
        await wait_executed(reply)
        assert reply.completed

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["message", "none", "pending", "bug"])
def test_coroutine_ends_in_any_kind_of_result(
    dispatch: Any, connection: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async def main() -> None:
        pending: PendingResult[Any] = PendingResult()
        results = {"message": Result(ListOffsetsResponse()), "none": Result(None)}

        @in_task
        async def work(*_: Any) -> Result[Any]:
            await asyncio.sleep(0)
            if kind == "bug":
                raise ZeroDivisionError
            return results.get(kind, pending)

        respond_with(work, monkeypatch)
        reply = dispatch(connection, list_offsets_frame())
        assert not reply.executed
        await wait_executed(reply)
        assert reply.done is (kind != "pending")
        if kind == "bug":
            with pytest.raises(CloseConnection):
                reply.get()
            return
        if kind == "pending":
            pending.complete(ListOffsetsResponse())
        assert (await wait(reply) == []) == (kind == "none")

    asyncio.run(main())
