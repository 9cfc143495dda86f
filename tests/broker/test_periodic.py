"""What a broker does from time to time: at Kafka's intervals, and again after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker import periodic
from odradek.broker.periodic import PeriodicTasks
from odradek.config.broker import BrokerConfig

KAFKAS = {
    "delete_old_segments": 300_000,
    "expire_offsets": 600_000,
    "abort_timed_out_transactions": 10_000,
    "remove_expired_transactional_ids": 3_600_000,
}
CONFIGS = {
    "log.retention.check.interval.ms": "1",
    "offsets.retention.check.interval.ms": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "4",
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [({}, KAFKAS), (CONFIGS, dict(zip(KAFKAS, range(1, 5), strict=True)))],
    ids=["by default", "as configured"],
)
def test_each_work_is_repeated_at_its_interval(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, str], expected: dict[str, int]
) -> None:
    begun: dict[str, int] = {}

    async def repeat(interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        begun[work.__name__] = interval_ms

    async def run() -> None:
        services: Any = SimpleNamespace(config=BrokerConfig.from_properties(config))
        tasks = PeriodicTasks(services)
        tasks.start()
        await asyncio.sleep(0)
        await tasks.stop()

    monkeypatch.setattr(periodic, "_repeat", repeat)
    asyncio.run(run())
    assert {each: begun[each] for each in expected} == expected
    assert set(begun) - set(expected) == {"maintain", "warn_of_late_transactions"}


def test_work_that_failed_is_done_again() -> None:
    tries: list[int] = []
    again = asyncio.Event()

    async def work() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no space left")
        again.set()

    async def run() -> None:
        task = asyncio.get_running_loop().create_task(periodic._repeat(0, work))
        await again.wait()
        task.cancel()

    asyncio.run(run())
