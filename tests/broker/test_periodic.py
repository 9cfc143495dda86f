"""Periodic tasks of a broker run at Kafka's intervals, and again after a failure."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.periodic import NEW_LOGS_INTERVAL_MS, PeriodicTasks
from odradek.config.broker import BrokerConfig
from odradek.config.log_config import LogConfig
from odradek.environment.timers import LoopTimers
from odradek.ids import TopicPartition
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import NOW_MS, TOPIC_ID, append, open_manager

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


class OneRound:
    """Timers that end the first wait of each task immediately and never the second."""

    def __init__(self) -> None:
        self.asked_ms: dict[object, int] = {}

    async def sleep(self, delay_s: float) -> None:
        task = asyncio.current_task()
        if task in self.asked_ms:
            await asyncio.Event().wait()
        self.asked_ms[task] = round(delay_s * 1000)


@pytest.mark.parametrize(
    ("config", "expected"),
    [({}, KAFKAS), (CONFIGS, dict(zip(KAFKAS, range(1, 5), strict=True)))],
    ids=["by default", "as configured"],
)
def test_each_task_is_repeated_at_its_interval(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, str], expected: dict[str, int]
) -> None:
    timers = OneRound()
    begun: dict[str, int] = {}
    for name in (*KAFKAS, "maintain", "sync_new_logs", "warn_of_late_transactions"):

        async def work(_: PeriodicTasks, name: str = name) -> None:
            begun[name] = timers.asked_ms[asyncio.current_task()]

        monkeypatch.setattr(PeriodicTasks, name, work)

    async def run() -> None:
        services: Any = SimpleNamespace(
            config=BrokerConfig.from_properties(config),
            timers=timers,
            cluster=None,
            log_manager=SimpleNamespace(log_dirs=[]),
        )
        tasks = PeriodicTasks(services)
        tasks.start()
        await asyncio.sleep(0)
        await tasks.stop()

    asyncio.run(run())
    assert {each: begun[each] for each in expected} == expected
    assert set(begun) - set(expected) == {"maintain", "sync_new_logs", "warn_of_late_transactions"}


class NewLogTimers:
    """Timers that end the pauses between two syncs of new logs, and no other wait."""

    def __init__(self) -> None:
        self.pauses = 0
        self.paused = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        if round(delay_s * 1000) != NEW_LOGS_INTERVAL_MS:
            await asyncio.Event().wait()
        self.pauses += 1
        self.paused.set()


def test_logs_are_synced_when_they_are_created_so_that_a_roll_makes_no_fsync(
    tmp_path: Path,
) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, LogConfig(), files)

    async def run() -> None:
        timers = NewLogTimers()
        with ThreadPoolExecutor(1) as executor:
            services: Any = SimpleNamespace(
                config=BrokerConfig.from_properties({}),
                timers=timers,
                cluster=None,
                log_manager=manager,
                executor=executor,
            )
            tasks = PeriodicTasks(services)
            tasks.start()
            await timers.paused.wait()
            for number in range(3):
                timers.paused.clear()
                log = manager.create(TopicPartition("t", number), TOPIC_ID)
                append(log, [b"1"])
                await timers.paused.wait()
                files.fail_fsync = OSError("an fsync on the event loop")
                log.roll(NOW_MS)
                append(log, [b"2"])
                assert files.fail_fsync is not None
                files.fail_fsync = None
            assert timers.pauses == 4, "no pass without a new log"
            await tasks.stop()
            append(manager.create(TopicPartition("t", 3), TOPIC_ID), [b"1"])

    asyncio.run(run())
    manager.close()


def test_a_failed_task_is_repeated() -> None:
    tries: list[int] = []
    again = asyncio.Event()

    async def work() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no space left")
        again.set()

    async def run() -> None:
        services: Any = SimpleNamespace(timers=LoopTimers())
        task = asyncio.get_running_loop().create_task(PeriodicTasks(services)._repeat(0, work))
        await again.wait()
        task.cancel()

    asyncio.run(run())
