"""From a frame to chunks: what is answered, what closes the connection, and how late answers
come."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis import APIS
from odradek.broker.dispatch import Dispatcher
from odradek.broker.handlers import list_offsets
from odradek.net.connection import CloseConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.list_offsets_request import ListOffsetsRequest
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse


def frame(api_key: int, version: int, body: bytes = b"", *, flexible: bool = False) -> memoryview:
    header = struct.pack(">hhih", api_key, version, 7, 2) + b"me" + (b"\0" if flexible else b"")
    return memoryview(bytearray(header + body))


def list_offsets_frame() -> memoryview:
    return frame(ApiKey.LIST_OFFSETS, 1, encode(ListOffsetsRequest(-1), 1))


@pytest.fixture
def connection() -> Any:
    return SimpleNamespace(client_software=None, on_close=[])


@pytest.fixture
def dispatch() -> Any:
    return Dispatcher(SimpleNamespace()).dispatch  # type: ignore[arg-type]


def answer(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets ListOffsets answer `result(services, context, request)`."""
    monkeypatch.setattr(list_offsets, "handle", result)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_come_from_the_table(dispatch: Any, connection: Any, version: int) -> None:
    body = encode(ApiVersionsRequest("me", "1.0"), version)
    chunks = dispatch(connection, frame(ApiKey.API_VERSIONS, version, body, flexible=version >= 3))
    data = b"".join(chunks)
    assert data[:4] == (7).to_bytes(4, "big")
    response = decode(ApiVersionsResponse, version, data, 4)
    assert response.error_code == 0
    found = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert found == {
        int(api.key): (api.min_version if api.advertised_min is None else 0, api.max_version)
        for api in APIS
    }
    assert found[ApiKey.PRODUCE] == (0, 13)


def test_unknown_version_of_api_versions_gets_kafkas_answer(dispatch: Any, connection: Any) -> None:
    chunks = dispatch(connection, frame(ApiKey.API_VERSIONS, 99, flexible=True))
    assert b"".join(chunks).hex() == "00000007002300000001001200000004"


@pytest.mark.parametrize(
    "body",
    [ApiVersionsRequest("", "1"), ApiVersionsRequest("me", "-1"), ApiVersionsRequest("m e", "1")],
)
def test_client_software_must_be_well_formed(
    dispatch: Any, connection: Any, body: ApiVersionsRequest
) -> None:
    chunks = dispatch(connection, frame(ApiKey.API_VERSIONS, 3, encode(body, 3), flexible=True))
    assert decode(ApiVersionsResponse, 3, b"".join(chunks), 4).error_code == 42
    assert connection.client_software is None


def test_client_software_is_remembered(dispatch: Any, connection: Any) -> None:
    body = encode(ApiVersionsRequest("me", "1.0"), 3)
    dispatch(connection, frame(ApiKey.API_VERSIONS, 3, body, flexible=True))
    assert connection.client_software == "me 1.0"


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
