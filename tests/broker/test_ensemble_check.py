"""Which servers of ZooKeeper the check of an ensemble accepts, by scripted responses to `srvr`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from odradek.broker.ensemble_check import check_is_one_ensemble
from odradek.environment.sockets import SocketNetwork
from odradek.errors import ErrorCode, KafkaError
from testkit.peer.server import free_ports

HOST = "127.0.0.1"
RESPONSE = "Zookeeper version: 3.9.2\nZxid: 0x5\nMode: {mode}\nNode count: 5\n"
NOT_SERVING = "This ZooKeeper instance is not currently serving requests\n"


@asynccontextmanager
async def _server(response: str) -> AsyncIterator[str]:
    """A server that sends the response to `srvr` in two parts, and closes the connection."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(4) == b"srvr"
        for part in (response[:20], response[20:]):
            writer.write(part.encode())
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(respond, HOST) as server:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"


def _check(*responses: str, absent: int = 0) -> None:
    async def check() -> None:
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(_server(each)) for each in responses]
            servers += [f"{HOST}:{port}" for port in free_ports(absent)]
            await check_is_one_ensemble(SocketNetwork(), servers)

    asyncio.run(check())


def _modes(*modes: str) -> list[str]:
    return [RESPONSE.format(mode=mode) for mode in modes]


@pytest.mark.parametrize("modes", [("standalone", "standalone"), ("standalone",) * 3])
def test_several_standalone_servers_are_refused(modes: tuple[str, ...]) -> None:
    with pytest.raises(KafkaError, match="are standalone, so each has nodes of its own") as raised:
        _check(*_modes(*modes))
    assert raised.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "modes", [("leader", "follower"), ("observer", "standalone", "standalone"), ("standalone",)]
)
def test_an_ensemble_and_a_single_server_are_accepted(modes: tuple[str, ...]) -> None:
    _check(*_modes(*modes))


def test_servers_of_an_unknown_mode_are_accepted() -> None:
    _check(NOT_SERVING, "", *_modes("standalone"), absent=1)


def test_standalone_servers_are_refused_when_another_one_does_not_respond() -> None:
    with pytest.raises(KafkaError, match="are standalone"):
        _check(*_modes("standalone", "standalone"), absent=1)
