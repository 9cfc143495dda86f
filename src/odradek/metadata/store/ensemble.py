"""The servers of a metadata store in memory: replicas that lag, and sessions that expire.

A write is executed on the leader's tree and gets a number. Each server applies the writes in their
order, possibly later. A session is connected to one server and reads from it, so its reads may be
stale. A write of the session, and a `sync`, first bring its server up to date. A watch fires when
the session's server applies the write.

`EnsembleConditions` says what may happen by chance. All choices come from one source of randomness,
and all delays from the timers that were given. Without timers nothing is delayed and no session
ends by itself. Tests and the simulator cause faults by `expire`, `block` and `unblock`, and by the
faults of `MemoryStore`.

All sessions use the ensemble on one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from odradek.environment.randomness import Randomness
from odradek.environment.timers import Timer, Timers
from odradek.metadata.store.interface import (
    MULTI_BYTES_MAX,
    Delete,
    Operation,
    Performed,
    SessionLostError,
    Written,
    changes_in,
)
from odradek.metadata.store.tree import Tree

Range = tuple[int, int]


class EnsembleConditions(NamedTuple):
    """Properties of an ensemble, and the events that may happen by chance.

    A range is the lowest and the highest number of milliseconds. A value per mille is the
    probability for one write.
    """

    servers: int = 1
    multi_bytes_max: int | None = MULTI_BYTES_MAX
    session_timeout_ms: int = 18_000
    lag_ms: Range = (0, 0)
    """Time until a server applies a write of a session that is connected to another one."""
    latency_ms: Range = (0, 0)
    """Time of one message between a session and its server."""
    notice_ms: Range = (0, 0)
    """Time until a session notices that its connection is broken."""
    reconnect_ms: Range = (0, 0)
    """Time between that notice and the next connection."""
    requests_lost_per_mille: int = 0
    """The connection breaks before the write is executed."""
    responses_lost_per_mille: int = 0
    """The connection breaks after the write was executed."""


class Client(Protocol):
    """A session's side of its connection, as the ensemble uses it."""

    def notify(self, operations: Sequence[Operation], results: Sequence[Written]) -> None:
        """Send the watches that a write fires."""

    def disconnect(self) -> None:
        """Break the connection."""

    def reconnect(self) -> None:
        """Connect again."""


class Commit(NamedTuple):
    """A write that was executed."""

    operations: Sequence[Operation]
    results: Sequence[Written]
    session_id: int
    zxid: int


class CommitLog:
    """The writes that not every server has applied yet, by their zxid."""

    __slots__ = ("_commits", "_dropped", "end")

    def __init__(self) -> None:
        self._commits: deque[Commit] = deque()
        self._dropped = 0
        self.end = 0
        """The zxid of the last write."""

    def append(self, commit: Commit) -> None:
        self._commits.append(commit)
        self.end = commit.zxid

    def __getitem__(self, zxid: int) -> Commit:
        return self._commits[zxid - self._dropped - 1]

    def drop_until(self, zxid: int) -> None:
        """Drop the writes up to and including that number."""
        while self._dropped < zxid:
            self._commits.popleft()
            self._dropped += 1


class Server:
    """A replica of the tree, with the sessions that are connected to it."""

    __slots__ = ("_log", "_shares_tree", "applied", "clients", "tree")

    def __init__(self, log: CommitLog, tree: Tree | None) -> None:
        """Create a server. With `tree`, it shares the tree of the leader and never lags."""
        self.tree = tree or Tree()
        self.applied = 0
        """The zxid of the last write that this server has applied."""
        self.clients: dict[int, Client] = {}
        self._shares_tree = tree is not None
        self._log = log

    def catch_up(self, zxid: int) -> None:
        """Apply the writes up to that number, and fire their watches."""
        while self.applied < zxid:
            self.applied += 1
            commit = self._log[self.applied]
            if not self._shares_tree:
                self.tree.apply(commit.operations, commit.session_id, commit.zxid)
            for client in self.clients.values():
                client.notify(commit.operations, commit.results)


class _Session:
    """The ensemble's state of a session."""

    __slots__ = ("client", "expiry", "seen", "server")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.server: Server | None = None
        self.seen = 0
        self.expiry: Timer | None = None


class MemoryEnsemble:
    """The servers, and the sessions by id."""

    def __init__(
        self,
        conditions: EnsembleConditions | None = None,
        *,
        randomness: Randomness | None = None,
        timers: Timers | None = None,
    ) -> None:
        self.conditions = conditions or EnsembleConditions()
        self.tree = Tree()
        self.change_count = 0
        self._randomness = randomness
        self._timers = timers
        self._log = CommitLog()
        shared = self.tree if self.conditions.servers == 1 else None
        self._servers = [Server(self._log, shared) for _ in range(self.conditions.servers)]
        self._sessions: dict[int, _Session] = {}
        self._blocked: dict[int, Client] = {}
        self._sessions_begun = 0

    # --- choices ---

    def delay_ms(self, within: Range) -> int:
        """Return a random delay. Without timers, or for the range (0, 0), it is 0."""
        if self._timers is None or within == (0, 0):
            return 0
        return self.between(*within)

    def after(self, delay_ms: int, call: Callable[..., None], *arguments: object) -> None:
        """Call on the ensemble's side after the delay, which is from `delay_ms`."""
        if delay_ms == 0:
            call(*arguments)
            return
        assert self._timers is not None
        self._timers.call_later(delay_ms / 1000, call, *arguments)

    def happens(self, per_mille: int) -> bool:
        return per_mille > 0 and self.between(1, 1000) <= per_mille

    def between(self, low: int, high: int) -> int:
        """Return a random number from `low` to `high`, both included."""
        if low == high:
            return low
        assert self._randomness is not None, "random conditions need a source of randomness"
        return self._randomness.between(low, high)

    # --- sessions ---

    def begin_session(self, client: Client) -> int:
        self._sessions_begun += 1
        self._sessions[self._sessions_begun] = _Session(client)
        return self._sessions_begun

    def connect(self, session_id: int) -> Server | None:
        """Connect a session to a server that is not behind what the session has seen.

        Returns:
            The server. None if the session is blocked.

        Raises:
            SessionLostError: The session has ended.
        """
        if session_id in self._blocked:
            return None
        session = self._session(session_id)
        candidates = [server for server in self._servers if server.applied >= session.seen]
        server = candidates[self.between(0, len(candidates) - 1)]
        session.server = server
        server.clients[session_id] = session.client
        self._hear(session)
        return server

    def disconnected(self, session_id: int) -> None:
        """Note that a session's connection is broken. It expires unless it connects in time."""
        session = self._sessions.get(session_id)
        if session is None or session.server is None:
            return
        session.seen = max(session.seen, session.server.applied)
        del session.server.clients[session_id]
        session.server = None
        self._expire_later(session_id, session)

    def end_session(self, session_id: int) -> None:
        """Delete the ephemeral nodes of the session. It can no longer write."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._hear(session)
        if session.server is not None:
            del session.server.clients[session_id]
        paths = self.tree.ephemerals_of(session_id)
        if paths:
            self._commit([Delete(path) for path in paths], session_id)

    def _session(self, session_id: int) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionLostError("the session has expired")
        return session

    def _expire_later(self, session_id: int, session: _Session) -> None:
        if self._timers is not None and session.expiry is None:
            delay_s = self.conditions.session_timeout_ms / 1000
            session.expiry = self._timers.call_later(delay_s, self.expire, session_id)

    def _hear(self, session: _Session) -> None:
        """Keep a session, because its client was heard."""
        expiry, session.expiry = session.expiry, None
        if expiry is not None:
            expiry.cancel()

    # --- faults ---

    def expire(self, session_id: int) -> None:
        """End a session as after its timeout: it is disconnected first, and then LOST."""
        session = self._sessions.get(session_id)
        self.end_session(session_id)
        if session is not None:
            session.client.disconnect()

    def block(self, session_id: int) -> None:
        """Cut a session off from all servers until `unblock`."""
        session = self._session(session_id)
        self._blocked[session_id] = session.client
        session.client.disconnect()

    def unblock(self, session_id: int) -> None:
        """Let a session connect again. It is LOST if it has expired in the meantime."""
        self._blocked.pop(session_id).reconnect()

    def pause(self, session_id: int) -> None:
        """Stop the pings of a session, as when its process is suspended."""
        self._expire_later(session_id, self._session(session_id))

    def resume(self, session_id: int) -> None:
        """Let a session send pings again. If it has expired, it notices that it is LOST."""
        session = self._sessions.get(session_id)
        if session is not None and session.server is not None:
            self._hear(session)

    # --- requests ---

    def write(self, operations: Sequence[Operation], session_id: int) -> list[Performed]:
        """Execute a write of the session. Its server has applied it when this returns."""
        session = self._session(session_id)
        performed = self._commit(operations, session_id)
        if session.server is not None:
            session.server.catch_up(self._log.end)
        return performed

    def synchronise(self, session_id: int) -> None:
        """Bring the server of the session up to date."""
        server = self._session(session_id).server
        if server is not None:
            server.catch_up(self._log.end)

    def _commit(self, operations: Sequence[Operation], session_id: int) -> list[Performed]:
        zxid = self._log.end + 1
        performed = self.tree.apply(operations, session_id, zxid)
        self.change_count += changes_in(operations)
        results = [each.written for each in performed]
        self._log.append(Commit(operations, results, session_id, zxid))
        for server in self._servers:
            self.after(self.delay_ms(self.conditions.lag_ms), server.catch_up, zxid)
        self._log.drop_until(min(server.applied for server in self._servers))
        return performed
