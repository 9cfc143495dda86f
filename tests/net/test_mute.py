"""Muting a connection: responses are sent, no request starts, and no other connection waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from odradek.net.server import Server
from tests.net.support import Peer, frame, iterations, on_both_loops, run, serving, until

LONG_S = 3600.0
SHORT_S = 0.01


class Muting:
    """A dispatcher that echoes, and mutes for the seconds of each entry of `pauses_s`."""

    def __init__(self, *pauses_s: float) -> None:
        self.pauses_s = list(pauses_s)
        self.seen: list[bytes] = []
        self.connections: list[Any] = []

    def __call__(self, connection: Any, view: memoryview) -> list[bytes]:
        self.seen.append(bytes(view))
        self.connections.append(connection)
        if self.pauses_s:
            connection.mute(self.pauses_s.pop(0))
        return [bytes(view)]


@asynccontextmanager
async def muted(pause_s: float) -> AsyncIterator[tuple[Server, Peer, Any]]:
    """Yield a client that has one response, and its connection, muted for `pause_s` since then."""
    muting = Muting(pause_s)
    async with serving(muting) as server:
        peer = await Peer.connect(server)
        await peer.send(frame(b"one"))
        assert await peer.read_frame() == b"one"
        yield server, peer, muting.connections[0]


@on_both_loops
def test_the_response_is_sent_immediately_and_the_next_request_waits_for_the_end(loop: str) -> None:
    async def scenario() -> None:
        muting = Muting(SHORT_S)
        async with serving(muting) as server:
            peer = await Peer.connect(server)
            began = asyncio.get_running_loop().time()
            await peer.send(frame(b"one") + frame(b"two"))
            assert await peer.read_frame() == b"one"
            assert await peer.read_frame() == b"two"
            assert asyncio.get_running_loop().time() - began >= SHORT_S * 0.5
            assert muting.seen == [b"one", b"two"]

    run(scenario(), loop)


def test_a_muted_connection_starts_no_request_and_others_continue() -> None:
    async def scenario() -> None:
        muting = Muting(LONG_S)
        async with serving(muting) as server:
            peer, other = await Peer.connect(server), await Peer.connect(server)
            await peer.send(frame(b"one"))
            assert await peer.read_frame() == b"one"
            await peer.send(frame(b"two") + frame(b"three"))
            await other.send(frame(b"other"))
            assert await other.read_frame() == b"other"
            await iterations()
            assert muting.seen == [b"one", b"other"]

    run(scenario())


def test_a_muted_connection_closes_after_a_large_response_whose_peer_has_ended_its_stream() -> None:
    def dispatch(connection: Any, view: memoryview) -> list[bytes]:
        connection.mute(LONG_S)
        return [bytes(5_000_000)]

    async def scenario() -> None:
        async with serving(dispatch) as server:
            peer = await Peer.connect(server, receive_buffer=8_192)
            await peer.send(frame(b"x"))
            peer.sock.shutdown(1)
            assert len(await peer.read_frame()) == 5_000_000
            assert await peer.ended()
            peer.close()

    run(scenario())


def test_the_longest_of_several_pauses_counts() -> None:
    async def scenario() -> None:
        async with muted(SHORT_S) as (_, peer, connection):
            began = asyncio.get_running_loop().time()
            connection.mute(SHORT_S * 5)
            connection.mute(0)
            await peer.send(frame(b"two"))
            assert await peer.read_frame() == b"two"
            assert asyncio.get_running_loop().time() - began >= SHORT_S * 3

    run(scenario())


def test_a_stop_does_not_wait_for_the_end_of_a_pause() -> None:
    async def scenario() -> None:
        async with muted(LONG_S) as (_, peer, connection):
            await peer.send(frame(b"two"))
            await until(lambda: connection._receive.kept)
            connection.stop()
            assert await peer.read_frame() == b"two"
            assert await peer.ended()

    run(scenario())


def test_a_client_that_disconnects_is_forgotten() -> None:
    async def scenario() -> None:
        async with muted(SHORT_S) as (server, peer, connection):
            peer.reset()
            await until(lambda: not server.connections)
            await until(lambda: not connection._mutes)
            assert connection.closed

    run(scenario())
