"""The metadata store of a simulated cluster: one ensemble, and the sessions of the brokers.

The ensemble runs beside all brokers, on the virtual time of the scheduler. It has several servers,
which lag, so reads may be stale and watches late. Connections of sessions break, also after a write
was executed. A session ends when its broker was silent for the timeout.

A process that was killed does not close its session: its ephemeral nodes stay until the timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.environment.randomness import version_4
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from odradek.metadata.store.interface import NO_SESSION, Operation, Performed, SessionLostError
from odradek.metadata.store.memory import MemoryStore
from tests.simulation.scheduler import SECOND, Event, Scheduler

if TYPE_CHECKING:
    from odradek.ids import Uuid

SESSION_TIMEOUT_MS = 2_000
SERVERS = 3
LOST_PER_MILLE_MAX = 5
"""Highest rate of writes whose request, or whose response, is lost."""


class SimulatedRandomness:
    """`Randomness` of one component."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._rng = scheduler.stream(f"randomness {name}")

    def uuid(self) -> Uuid:
        while True:
            candidate = version_4(self._rng.randbytes(16))
            if candidate is not None:
                return candidate

    def between(self, low: int, high: int) -> int:
        return self._rng.randint(low, high)


class SchedulerTimers:
    """Timers of the scheduler's own time, which no broker can pause."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Event:
        return self._scheduler.after(int(delay_s * SECOND), callback, *args)

    async def sleep(self, delay_s: float) -> None:
        raise NotImplementedError("the ensemble has no coroutines")


class SimulatedEnsemble(MemoryEnsemble):
    """The ensemble of one simulation.

    Attributes:
        on_commit: Called after each write that was executed, with its operations, results and
            session.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        rng = scheduler.stream("ensemble conditions")
        conditions = EnsembleConditions(
            servers=SERVERS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            lag_ms=(0, rng.choice((1, 5, 50))),
            latency_ms=(0, rng.choice((1, 5))),
            notice_ms=(0, rng.choice((1, 20, 300))),
            reconnect_ms=(0, rng.choice((10, 200))),
            requests_lost_per_mille=rng.randint(0, LOST_PER_MILLE_MAX),
            responses_lost_per_mille=rng.randint(0, LOST_PER_MILLE_MAX),
        )
        super().__init__(
            conditions,
            randomness=SimulatedRandomness(scheduler, "ensemble"),
            timers=SchedulerTimers(scheduler),
        )
        self.expirations = 0
        self.on_commit: Callable[[Sequence[Operation], Sequence[Performed], int], None] = (
            lambda *_: None
        )

    def expire(self, session_id: int) -> None:
        if session_id in self._sessions:
            self.expirations += 1
        super().expire(session_id)

    def _commit(self, operations: Sequence[Operation], session_id: int) -> list[Performed]:
        performed = super()._commit(operations, session_id)
        self.on_commit(operations, performed, session_id)
        return performed

    def is_alive(self, session_id: int) -> bool:
        return session_id in self._sessions


class SimulatedSession:
    """`MetadataStore` of one process: a session on the ensemble.

    It is no `MemoryStore`, beside which a broker never closes its logs cleanly.
    """

    def __init__(self, ensemble: SimulatedEnsemble) -> None:
        self.ensemble = ensemble
        self._session = MemoryStore(ensemble)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    @property
    def session_id(self) -> int:
        return self._session.session_id

    def end(self) -> None:
        """The process is dead. Its session lasts until the timeout."""
        self._session._listeners.clear()
        self._session.abandon()

    # -- faults ------------------------------------------------------------------------------------

    def pause(self) -> None:
        """The process sends no pings."""
        if self.ensemble.is_alive(self.session_id):
            self.ensemble.pause(self.session_id)

    def resume(self) -> None:
        if self.ensemble.is_alive(self.session_id):
            self.ensemble.resume(self.session_id)

    def expire(self) -> bool:
        alive = self.ensemble.is_alive(self.session_id)
        if alive:
            self.ensemble.expire(self.session_id)
        return alive

    def block(self) -> Callable[[], None] | None:
        """Cut the session off. Return the call that ends this, or None without a session."""
        session_id = self.session_id
        if session_id == NO_SESSION or session_id in self.ensemble._blocked:
            return None
        try:
            self.ensemble.block(session_id)
        except SessionLostError:
            return None
        return lambda: self._unblock(session_id)

    def _unblock(self, session_id: int) -> None:
        def unblock() -> None:
            if session_id in self.ensemble._blocked and self.session_id == session_id:
                self.ensemble.unblock(session_id)

        if self.session_id == session_id:
            self._session._running_loop().call_soon(unblock)

    def disconnect(self) -> None:
        self._session.disconnect()

    def lose_next_response(self) -> None:
        self._session.lose_next_response()
