"""From a frame to chunks: what is answered, what closes the connection, and how late answers
come."""

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
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.registry import response_class
from odradek.protocol.spec import StructSpec, find


def frame(api_key: int, version: int, body: bytes = b"", *, flexible: bool = False) -> memoryview:
    header = struct.pack(">hhih", api_key, version, 7, 2) + b"me" + (b"\0" if flexible else b"")
    return memoryview(bytearray(header + body))


def list_offsets_frame() -> memoryview:
    return frame(ApiKey.LIST_OFFSETS, 1, encode(ListOffsetsRequest(-1), 1))


@pytest.fixture
def connection() -> Any:
    return SimpleNamespace(client_software=None, on_close=[], closed=False, memory=None)


@pytest.fixture
def dispatch() -> Any:
    services: Any = SimpleNamespace(quotas=ClientQuotas(11, 1000))
    return Dispatcher(services).dispatch


def answer(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets ListOffsets answer `result(services, context, request)`."""
    monkeypatch.setattr(list_offsets, "handle", result)


def holds_records(struct: StructSpec) -> bool:
    return any(
        field.kind == "records" or (field.struct is not None and holds_records(field.struct))
        for field in struct.fields
    )


def test_answers_that_may_hold_regions_of_files_are_those_with_records() -> None:
    with_records = {
        key for key in API_BY_KEY if holds_records(find(response_class(key).__name__).body)
    }
    assert with_records == WITH_REGIONS


def test_unknown_version_of_api_versions_gets_kafkas_answer(dispatch: Any, connection: Any) -> None:
    chunks = dispatch(connection, frame(ApiKey.API_VERSIONS, 99, flexible=True))
    assert b"".join(chunks).hex() == "00000007002300000001001200000004"


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(ApiKey.PRODUCE, 2), (ApiKey.PRODUCE, 14), (ApiKey.FETCH, 3), (ApiKey.METADATA, 99), (999, 0)],
)
def test_what_is_not_served_closes_the_connection(
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

    answer(broken, monkeypatch)
    with pytest.raises(CloseConnection, match="LIST_OFFSETS"):
        dispatch(connection, list_offsets_frame())
    assert "ZeroDivisionError: oops" in caplog.text


def test_future_is_answered_when_it_is_done(
    dispatch: Any, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer(lambda *_: future, monkeypatch)
        reply = dispatch(connection, list_offsets_frame())
        assert not reply.done()
        future.set_result(ListOffsetsResponse())
        assert b"".join(await reply)[:4] == (7).to_bytes(4, "big")

    asyncio.run(main())


def test_answer_that_nobody_wants_cancels_the_wait(
    dispatch: Any, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer(lambda *_: future, monkeypatch)
        dispatch(connection, list_offsets_frame())
        (abandon,) = connection.on_close
        abandon()
        await asyncio.sleep(0)
        assert future.cancelled()
        assert connection.on_close == []

    asyncio.run(main())


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), CloseConnection("enough")])
def test_late_error_closes_the_connection(
    dispatch: Any, connection: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def main() -> None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer(lambda *_: future, monkeypatch)
        reply = dispatch(connection, list_offsets_frame())
        future.set_exception(error)
        with pytest.raises(CloseConnection):
            await reply

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["message", "none", "future", "bug"])
def test_coroutine_ends_in_any_kind_of_answer(
    dispatch: Any, connection: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async def main() -> None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(ListOffsetsResponse())

        async def work(*_: Any) -> Any:
            await asyncio.sleep(0)
            if kind == "bug":
                raise ZeroDivisionError
            return {"message": ListOffsetsResponse(), "none": None, "future": future}[kind]

        answer(work, monkeypatch)
        running = dispatch(connection, list_offsets_frame())
        if kind == "bug":
            with pytest.raises(CloseConnection):
                await running
            return
        reply = await running
        if asyncio.isfuture(reply):
            reply = await reply
        assert (reply is None) == (kind == "none")

    asyncio.run(main())
