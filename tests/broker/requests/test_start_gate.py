"""Requests that arrive before a broker has joined its cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.requests.apis import APIS, INTER_BROKER_APIS
from odradek.broker.requests.start_gate import StartGate
from odradek.protocol.api_keys import ApiKey
from odradek.result_tasks import wait
from odradek.results import Result

AT_ONCE = {ApiKey.API_VERSIONS, *(api.key for api in INTER_BROKER_APIS)}
ALL = [api.key for api in (*APIS, *INTER_BROKER_APIS)]


def frame(key: int) -> memoryview:
    return memoryview(key.to_bytes(2, "big") + b"rest")


class Dispatcher:
    """Records the frames, and returns a reply of each form."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.frames: list[bytes] = []

    def dispatch(self, _connection: object, found: memoryview) -> Any:
        self.frames.append(bytes(found))
        return self.reply


@pytest.mark.parametrize("key", ALL)
def test_only_requests_of_brokers_and_api_versions_are_executed_before_the_start(
    key: ApiKey,
) -> None:
    async def test() -> None:
        dispatcher = Dispatcher([b"chunk"])
        gate = StartGate(dispatcher.dispatch)
        reply = gate.dispatch(None, frame(key))  # type: ignore[arg-type]
        assert bool(dispatcher.frames) is (key in AT_ONCE)
        if key not in AT_ONCE:
            assert isinstance(reply, Result)
            assert not reply.executed, "the next request of the connection waits, too"
            await asyncio.sleep(0)
            assert not dispatcher.frames
            reply.cancel()

    asyncio.run(test())


@pytest.mark.parametrize("reply", [[b"chunk"], Result([b"chunk"]), b"\0\0\0\5chunk"])
def test_a_waiting_request_is_executed_when_the_gate_opens(reply: Any) -> None:
    async def test() -> None:
        dispatcher = Dispatcher(reply)
        gate = StartGate(dispatcher.dispatch)
        waiting = gate.dispatch(None, frame(ApiKey.METADATA))  # type: ignore[arg-type]
        assert isinstance(waiting, Result)
        await asyncio.sleep(0)
        gate.open()
        assert await wait(waiting) == [b"chunk"]
        assert dispatcher.frames == [bytes(frame(ApiKey.METADATA))]
        assert gate.dispatch(None, frame(ApiKey.METADATA)) is reply  # type: ignore[arg-type]

    asyncio.run(test())


def test_a_cancelled_request_is_never_executed() -> None:
    async def test() -> None:
        dispatcher = Dispatcher([b"chunk"])
        gate = StartGate(dispatcher.dispatch)
        waiting = gate.dispatch(None, frame(ApiKey.PRODUCE))  # type: ignore[arg-type]
        assert isinstance(waiting, Result)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        gate.open()
        await asyncio.sleep(0)
        assert not dispatcher.frames

    asyncio.run(test())
