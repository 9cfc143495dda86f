"""The ensemble in memory: timeouts of sessions, ends of processes, and runs that a seed repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from odradek.metadata.store.interface import (
    NoNodeError,
    SessionLostError,
    SessionState,
    StoreError,
    StoreFailure,
    UnknownOutcomeError,
)
from odradek.metadata.store.memory import MemoryStore
from tests.helpers.manual_timers import SteppedTimers
from tests.helpers.seeded_randomness import SeededRandomness
from tests.helpers.virtual_loop import run_virtually
from tests.metadata.store.store_machine import Session

TIMEOUT_MS = 10_000


class Timed:
    """An ensemble whose time the test moves."""

    def __init__(self) -> None:
        self.timers = SteppedTimers(ManualClock())
        conditions = EnsembleConditions(session_timeout_ms=TIMEOUT_MS)
        self.ensemble = MemoryEnsemble(conditions, timers=self.timers)

    async def session(self) -> Session:
        session = Session(MemoryStore(self.ensemble))
        await session.store.open()
        return session

    def has(self, path: str) -> bool:
        return self.ensemble.tree.find(path) is not None


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_a_blocked_session_expires_after_its_timeout() -> None:
    async def scenario() -> None:
        timed = Timed()
        session = await timed.session()
        session_id = session.store.session_id
        await session.store.create("/1", ephemeral=True)
        timed.ensemble.block(session_id)
        await session.reached(SessionState.SUSPENDED)
        timed.timers.advance(TIMEOUT_MS - 1)
        assert timed.has("/1")
        timed.timers.advance(1)
        assert not timed.has("/1")
        timed.ensemble.unblock(session_id)
        with pytest.raises(SessionLostError):
            await session.store.connected()

    run(scenario())


def test_a_session_that_connects_in_time_does_not_expire() -> None:
    async def scenario() -> None:
        timed = Timed()
        session = await timed.session()
        await session.store.create("/1", ephemeral=True)
        for _ in range(3):
            timed.ensemble.block(session.store.session_id)
            await session.reached(SessionState.SUSPENDED)
            timed.timers.advance(TIMEOUT_MS - 1)
            timed.ensemble.unblock(session.store.session_id)
            await session.store.connected()
        timed.timers.advance(10 * TIMEOUT_MS)
        assert timed.has("/1")
        await session.store.close()
        assert not timed.has("/1")

    run(scenario())


def test_the_session_of_a_process_that_ended_expires_after_its_timeout() -> None:
    async def scenario() -> None:
        timed = Timed()
        session = await timed.session()
        await session.store.create("/1", ephemeral=True)
        assert isinstance(session.store, MemoryStore)
        session.store.abandon()
        again = await timed.session()
        assert timed.has("/1")
        timed.timers.advance(TIMEOUT_MS)
        with pytest.raises(NoNodeError):
            await again.store.get("/1")
        await again.store.close()

    run(scenario())


@pytest.mark.parametrize("in_time", [True, False])
def test_the_session_of_a_suspended_process_expires_unless_it_continues_in_time(
    in_time: bool,
) -> None:
    async def scenario() -> None:
        timed = Timed()
        session = await timed.session()
        session_id = session.store.session_id
        await session.store.create("/1", ephemeral=True)
        timed.ensemble.pause(session_id)
        timed.timers.advance(TIMEOUT_MS - in_time)
        timed.ensemble.resume(session_id)
        timed.timers.advance(TIMEOUT_MS)
        assert timed.has("/1") == in_time
        if not in_time:
            await session.reached(SessionState.LOST)
        await session.store.close()

    run(scenario())


def trace(seed: int) -> list[str]:
    """Return what three sessions observe under random conditions."""
    conditions = EnsembleConditions(
        servers=3,
        session_timeout_ms=500,
        lag_ms=(0, 100),
        latency_ms=(0, 20),
        notice_ms=(0, 200),
        reconnect_ms=(0, 400),
        requests_lost_per_mille=100,
        responses_lost_per_mille=100,
    )
    lines: list[str] = []

    async def work(store: MemoryStore, name: str) -> None:
        store.subscribe(lambda state: lines.append(f"{name} {state}"))
        await store.open()
        for number in range(15):
            try:
                await store.exists("/a", lambda event: lines.append(f"{name} {event}"))
                await store.create("/a", ephemeral=number % 3 == 0)
                await store.delete("/a")
            except UnknownOutcomeError:
                lines.append(f"{name} unknown")
            except SessionLostError:
                await store.close()
                await store.open()
            except (StoreError, StoreFailure) as error:
                lines.append(f"{name} {error!r}")
            await asyncio.sleep(0.02)

    async def main() -> None:
        ensemble = MemoryEnsemble(
            conditions, randomness=SeededRandomness(seed), timers=LoopTimers()
        )
        await asyncio.gather(*(work(MemoryStore(ensemble), f"s{n}") for n in range(3)))

    run_virtually(main())
    return lines


def test_a_seed_repeats_a_run() -> None:
    traces = [trace(seed) for seed in range(20)]
    assert traces == [trace(seed) for seed in range(20)]
    observed = " ".join(line for lines in traces for line in lines)
    for each in ("LOST", "SUSPENDED", "unknown", "DISCONNECTED", "DELETED", "NodeExistsError"):
        assert each in observed
