"""The network server: listeners, connections, their limits, and an orderly stop."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Container, Iterable, KeysView, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from odradek.environment.clock import Clock
from odradek.environment.network import Network, StreamSocket, plain_address
from odradek.environment.sockets import SocketNetwork
from odradek.environment.timers import Timer, Timers
from odradek.net.budget import (
    MemoryBudget,
    MemoryOwner,
    QueuedResponses,
    ReceivedAhead,
    UnsentResponses,
)
from odradek.net.connection import Connection, Dispatch, Shared
from odradek.net.limits import PROGRESS_BYTES_MIN, NetLimits
from odradek.net.listener import Endpoint, Listener, bind
from odradek.net.receive import Scratch
from odradek.result_tasks import wait_executed

logger = logging.getLogger(__name__)

CANCELLED_WAIT_S = 0.5
"""Time for which a stop waits for requests that were cancelled during execution, in seconds."""

TICK_S = 1.0
"""Longest interval between two checks for idle connections, and the precision of the timeouts."""


Holders = dict[Connection, tuple[memoryview, int]]


@dataclass(slots=True)
class _MemoryWait:
    """The connection that waits longest for request memory, and the holders at that time.

    `holders` has the buffer and the received bytes of each connection that held request memory.
    """

    owner: MemoryOwner
    since_ms: float
    holders: Holders


def _idle_holders(
    holders: Holders, before: Holders, waiting: Container[MemoryOwner]
) -> list[Connection]:
    """Return the holders that received fewer than `PROGRESS_BYTES_MIN` bytes since `before`.

    Holders that wait for memory themselves are not returned. If all holders wait for one another,
    return the connection with the most received bytes.
    """
    idle = []
    for holder, (view, received) in holders.items():
        view_before, received_before = before.get(holder, (None, 0))
        progress = received - received_before if view is view_before else PROGRESS_BYTES_MIN
        if holder not in waiting and progress < PROGRESS_BYTES_MIN:
            idle.append(holder)
    if not idle and all(holder in waiting for holder in holders):
        return sorted(holders, key=lambda holder: holders[holder][1])[-1:]
    return idle


class Server:
    """A server of `dispatch` on any number of endpoints, on the event loop that runs `start`.

    `executor` reads log files that are not in the page cache. None is the loop's own executor.

    At `connections_max` new connections wait. Those of the listener `protected_listener` do not. As
    in Kafka, each of them replaces the connection of another listener that is idle for the longest
    time.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        *,
        clock: Clock,
        timers: Timers,
        network: Network | None = None,
        limits: NetLimits | None = None,
        executor: Executor | None = None,
        protected_listener: str | None = None,
    ) -> None:
        self.limits = limits or NetLimits()
        self.budget = MemoryBudget(self.limits.request_bytes_queued_max)
        self._clock = clock
        self._timers = timers
        self._network: Network = network or SocketNetwork()
        self._dispatch = dispatch
        self._executor = executor
        self._protected_listener = protected_listener
        self._replaced: dict[Connection, None] = {}
        self._listeners: list[Listener] = []
        self._accepted: set[asyncio.Task[None]] = set()
        self._per_ip: Counter[str] = Counter()
        self._count = 0
        self._stopping = False
        self._empty: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        self._memory_wait: _MemoryWait | None = None

    async def start(self, endpoints: Iterable[Endpoint]) -> None:
        """Listen on all `endpoints`, or on none, and accept connections: `bind` and `accept`."""
        await self.bind(endpoints)
        self.accept()

    async def bind(self, endpoints: Iterable[Endpoint]) -> None:
        """Listen on all `endpoints`, or on none. Connections wait until `accept`.

        Raises:
            BindError: One of them cannot be bound. The message is one line for the user.
        """
        self._loop = asyncio.get_running_loop()
        self._shared = Shared(
            loop=self._loop,
            monotonic_ms=self._clock.monotonic_ms,
            timers=self._timers,
            dispatch=self._dispatch,
            limits=self.limits,
            budget=self.budget,
            queued=QueuedResponses(self.limits.response_bytes_queued_total_max),
            unsent=UnsentResponses(self.limits.response_bytes_unsent_max),
            ahead=ReceivedAhead(self.limits.received_ahead_bytes_max),
            scratch=Scratch(self.limits.lent_bytes_max),
            executor=self._executor,
            on_lost=self._on_lost,
        )
        try:
            for endpoint in endpoints:
                protected = endpoint.name == self._protected_listener
                bound = await bind(endpoint, self._network, self.limits, is_protected=protected)
                for sock in bound:
                    self._listeners.append(Listener(endpoint, sock, self._accept, self._timers))
        except BaseException:
            self._close_listeners()
            raise

    def accept(self) -> None:
        """Accept connections from now on."""
        for listener in self._listeners:
            listener.resume()
        self._schedule_tick()

    def serve(self, dispatch: Dispatch) -> None:
        """Call `dispatch` with each further request, also of open connections."""
        self._shared.dispatch = dispatch
        for connection in self._shared.connections:
            connection.serve(dispatch, self.limits.request_bytes_max)

    def set_limits(self, limits: NetLimits) -> None:
        """Apply other limits to new and to idle connections. The memory limits do not change."""
        self.limits = limits

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The endpoints that it listens on, with the ports that were bound."""
        return [listener.endpoint for listener in self._listeners]

    @property
    def connections(self) -> KeysView[Connection]:
        """The open connections."""
        return self._shared.connections.keys()

    async def stop(self, grace_s: float = 1.0) -> None:
        """Stop accepting and reading, send pending responses within `grace_s`, close the rest."""
        self._stopping = True
        self._close_listeners()
        if self._timer is not None:
            self._timer.cancel()
        if not hasattr(self, "_shared"):
            return
        for connection in list(self._shared.connections):
            connection.stop()
        if self._count:
            self._empty = self._loop.create_future()
            await asyncio.wait([self._empty], timeout=grace_s)
            if self._count:
                logger.warning(
                    "closed %d connections. Their responses were not sent within %g s",
                    self._count,
                    grace_s,
                )
            for connection in list(self._shared.connections):
                connection.abort(None)
            await self._empty
        await self._cancel_executing()

    async def _cancel_executing(self) -> None:
        """Cancel the requests that are still being executed after their connections are closed."""
        executing = list(self._shared.executing)
        for result in executing:
            result.cancel()
        if executing:
            waits = [asyncio.ensure_future(wait_executed(result)) for result in executing]
            await asyncio.wait(waits, timeout=CANCELLED_WAIT_S)
            endless = [wait for wait in waits if not wait.done()]
            for wait in endless:
                wait.cancel()
            if endless:
                logger.error(
                    "%d cancelled requests did not end within %g s. The broker stops without them",
                    len(endless),
                    CANCELLED_WAIT_S,
                )

    def tick(self) -> None:
        """Close connections that were idle or closing for too long, or that keep memory idle."""
        now = self._clock.monotonic_ms()
        for connection in list(self._shared.connections):
            connection.tick(now, self.limits)
        self._relieve_memory(now)

    def _relieve_memory(self, now: float) -> None:
        """Close idle holders of request memory when a connection has waited for it too long."""
        waiting = self.budget.waiting
        owner = next(iter(waiting), None)
        if owner is None:
            self._memory_wait = None
            return
        holders = {c: receiving for c in self._shared.connections if (receiving := c.receiving)}
        mark = self._memory_wait
        if mark is not None and mark.owner is owner:
            if now - mark.since_ms < self.limits.request_bytes_wait_ms:
                return
            for holder in _idle_holders(holders, mark.holders, waiting):
                holder.abort(
                    "other connections wait for request memory, and it holds some without sending "
                    f"its frame: {holders[holder][1]} bytes have been received"
                )
        self._memory_wait = _MemoryWait(owner, now, holders)

    def _schedule_tick(self) -> None:
        idle_s = self.limits.connections_max_idle_ms / 1000
        self._timer = self._timers.call_later(min(TICK_S, max(idle_s / 4, 0.01)), self._run_tick)

    def _run_tick(self) -> None:
        self._schedule_tick()
        self.tick()

    def _accept(self, endpoint: Endpoint, sock: StreamSocket) -> None:
        """Take over an accepted socket. Pause the listeners for which there is no further room."""
        try:
            host = plain_address(sock.getpeername())[0]
        except OSError:  # the peer has disconnected already
            sock.close()
            return
        limit = self.limits.connections_max_per_ip_overrides.get(
            host, self.limits.connections_max_per_ip
        )
        if self._per_ip[host] >= limit:
            logger.warning(
                "rejected a connection from %s: max.connections.per.ip allows %d", host, limit
            )
            sock.close()
            return
        self._per_ip[host] += 1
        self._count += 1
        task = self._loop.create_task(self._connect(endpoint, host, sock))
        self._accepted.add(task)
        task.add_done_callback(self._accepted.discard)
        if self._count >= self.limits.connections_max:
            for listener in self._listeners:
                if listener.endpoint.name != self._protected_listener:
                    listener.pause()
            if endpoint.name == self._protected_listener:
                self._replace_connections()

    def _replace_connections(self) -> None:
        """Close connections of other listeners, so that the limit holds again."""
        excess = self._count - self.limits.connections_max - len(self._replaced)
        candidates = [
            connection
            for connection in self._shared.connections
            if connection.listener_name != self._protected_listener
            and connection not in self._replaced
        ]
        candidates.sort(key=lambda connection: connection.used_ms)
        for connection in candidates[: max(0, excess)]:
            self._replaced[connection] = None
            connection.abort(
                f"max.connections allows {self.limits.connections_max}, and another broker connects"
            )

    async def _connect(self, endpoint: Endpoint, host: str, sock: StreamSocket) -> None:
        connection = Connection(
            self._shared,
            endpoint.name,
            sock,
            security_protocol=endpoint.security_protocol,
            transport_kind=endpoint.transport_kind,
        )
        connection.counted_as = host
        try:
            await self._network.attach(sock, connection)
        except OSError as error:
            logger.debug("a connection from %s was lost immediately: %s", host, error)
            sock.close()
            if connection not in self._shared.connections and not connection.closed:
                self._uncount(host)
        if self._stopping:
            connection.stop()

    def _on_lost(self, connection: Connection) -> None:
        self._replaced.pop(connection, None)
        self._uncount(connection.counted_as)

    def _uncount(self, host: str) -> None:
        self._count -= 1
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]
        if self._stopping:
            if not self._count and self._empty is not None and not self._empty.done():
                self._empty.set_result(None)
        elif self._count < self.limits.connections_max:
            for listener in self._listeners:
                listener.resume()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
