"""The check that the servers of `zookeeper.connect` are one ensemble.

Standalone servers have nodes of their own. Brokers that connect to different ones would each begin
a cluster, or not find the nodes that they have created.

The command ``srvr`` returns a line such as ``Mode: standalone``, ``Mode: leader`` or ``Mode:
follower``. ZooKeeper permits it by default. A server that does not respond, or has no quorum, has
an unknown mode. The check then leaves the report to the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from odradek.environment.network import Network
from odradek.errors import ErrorCode, KafkaError

ASK_TIMEOUT_S = 1.0
"""A start waits so long for servers that do not respond, unless one is part of an ensemble."""
RESPONSE_BYTES_MAX = 16_384
COMMAND = b"srvr"
MODE = "Mode: "
STANDALONE = "standalone"


async def check_is_one_ensemble(network: Network, servers: Sequence[str]) -> None:
    """Return when one server is part of an ensemble, or when at most one is standalone.

    Args:
        network: Connects to the servers.
        servers: ``HOST:PORT`` of each server. One server is not asked.

    Raises:
        KafkaError: INVALID_CONFIG. Several servers are standalone.
    """
    if len(servers) < 2:
        return
    asked = {server: asyncio.ensure_future(_mode(network, server)) for server in servers}
    try:
        for response in asyncio.as_completed(asked.values()):
            if await response not in (None, STANDALONE):
                return
    finally:
        for each in asked.values():
            each.cancel()
        await asyncio.gather(*asked.values(), return_exceptions=True)
    alone = [server for server, mode in asked.items() if mode.result() == STANDALONE]
    if len(alone) > 1:
        reason = (
            f"the ZooKeeper servers {', '.join(alone)} are standalone, so each has nodes of its "
            "own. Configure them as one ensemble, or name one server only"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)


async def _mode(network: Network, server: str) -> str | None:
    """Return the mode that a server reports. None: it is unknown."""
    host, _, port = server.rpartition(":")
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            transport, response = await network.connect(host.strip("[]"), int(port), _Response)
            try:
                transport.write(COMMAND)
                return mode_of(await response.ended)
            finally:
                transport.abort()
    except (OSError, ValueError, TimeoutError):  # ValueError: the name of the host is malformed
        return None


def mode_of(response: bytes) -> str | None:
    """Return the mode in a response to ``srvr``. None: the server does not serve."""
    lines = response.decode("utf-8", "replace").splitlines()
    return next((line.removeprefix(MODE) for line in lines if line.startswith(MODE)), None)


class _Response(asyncio.Protocol):
    """Collects a response until the server closes the connection."""

    def __init__(self) -> None:
        self._received = bytearray()
        self.ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > RESPONSE_BYTES_MAX:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(bytes(self._received))
