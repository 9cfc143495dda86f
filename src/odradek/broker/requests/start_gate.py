"""The gate in front of the dispatcher of a broker that joins a cluster.

A broker accepts connections before it has caught up with the metadata, because the first broker of
a cluster receives its own metadata over the network. Until then it executes the requests of other
brokers, and ApiVersions. All other requests wait, and so do the later requests of their
connections.
"""

from __future__ import annotations

import asyncio

from odradek.broker.requests.apis import INTER_BROKER_APIS
from odradek.net.connection import Chunks, Connection, Dispatch, Reply, without_size
from odradek.protocol.api_keys import ApiKey
from odradek.result_tasks import run
from odradek.results import Result

EXECUTED_AT_ONCE = frozenset({ApiKey.API_VERSIONS, *(api.key for api in INTER_BROKER_APIS)})


class StartGate:
    """Owned by the event loop. `dispatch` is the function that connections call.

    Args:
        dispatch: The function that executes requests.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Execute the requests that wait, and all further ones."""
        self._opened.set()

    def dispatch(self, connection: Connection, frame: memoryview) -> Reply:
        if self._opened.is_set() or int.from_bytes(frame[:2], "big") in EXECUTED_AT_ONCE:
            return self._dispatch(connection, frame)
        return run(self._wait(connection, frame))

    async def _wait(self, connection: Connection, frame: memoryview) -> Result[Chunks]:
        await self._opened.wait()
        reply = without_size(self._dispatch(connection, frame))
        return reply if isinstance(reply, Result) else Result(reply)
