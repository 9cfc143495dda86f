"""Periodic tasks of a broker: retention, checkpoints, flush by age, expiry, hanging transactions.

Kafka's configs set the intervals. The environment's timers start a task at each interval, and the
environment's clock decides which work is due. Work on files runs in the executor. Each task runs at
most once at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.transactions.late_transactions import (
    LateTransactionWatch,
    finding_late_transactions,
)
from odradek.result_tasks import shielded
from odradek.slicing import in_slices

if TYPE_CHECKING:
    from odradek.broker.requests.context import Services

logger = logging.getLogger(__name__)

# Interval between checks for file work that is due: flush.ms, checkpoints and removals of files.
MAINTENANCE_INTERVAL_MS = 1_000
# Minimum interval between two syncs of new logs. A sync makes an fsync for each new log, and writes
# the recovery points of all logs.
NEW_LOGS_INTERVAL_MS = 100
# Interval between checks for late transactions, which are open for minutes too long by then.
LATE_TRANSACTIONS_INTERVAL_MS = 10_000


class PeriodicTasks:
    """The tasks of one broker, started and stopped together."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks: list[asyncio.Task[None]] = []
        self._late_transactions = LateTransactionWatch()
        self._has_new_logs = asyncio.Event()

    def start(self) -> None:
        """Start all tasks. Each waits for one interval before it runs for the first time."""
        config = self._services.config
        self._every(config.get_int("log.retention.check.interval.ms"), self.delete_old_segments)
        self._every(MAINTENANCE_INTERVAL_MS, self.maintain)
        self._every(NEW_LOGS_INTERVAL_MS, self.sync_new_logs)
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, self._has_new_logs.set)
        for log_dir in self._services.log_manager.log_dirs:
            log_dir.on_new_log(wake)
        self._every(config.get_int("offsets.retention.check.interval.ms"), self.expire_offsets)

        self._every(
            config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            self.abort_timed_out_transactions,
        )
        self._every(
            config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            self.remove_expired_transactional_ids,
        )
        self._every(LATE_TRANSACTIONS_INTERVAL_MS, self.warn_of_late_transactions)
        if self._services.cluster is not None:
            self._every(config.get_int("replica.lag.time.max.ms") // 2, self.check_followers)

    def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._repeat(interval_ms, work)))

    async def _repeat(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        """Call `work` every `interval_ms`. Log a failure and continue."""
        while True:
            await self._services.timers.sleep(interval_ms / 1000)
            try:
                await work()
            except Exception:
                logger.exception(
                    "periodic task %s failed. It runs again in %g s",
                    getattr(work, "__name__", work),
                    interval_ms / 1000,
                )

    async def stop(self) -> None:
        """Cancel the tasks. Work in the executor is not cancelled."""
        for log_dir in self._services.log_manager.log_dirs:
            log_dir.on_new_log(None)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def check_followers(self) -> None:
        """Remove followers that are out of sync from the ISR."""
        await in_slices(self._services.replica_manager.check_followers())

    async def delete_old_segments(self) -> None:
        """Apply retention by time and by size, and expire idle producers.

        Files are read in the executor. The logs are changed on the event loop, which owns them, in
        time slices: the segments of 10,000 partitions may expire at the same time.
        """
        services = self._services
        manager, now_ms = services.log_manager, services.clock.time_ms()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(services.executor, manager.load_for_retention, now_ms)
        await shielded(work, "reading logs for retention")
        await in_slices(manager.retain(now_ms, wait=False))

    async def expire_offsets(self) -> None:
        """Remove committed offsets that are past their retention, and groups left without any."""
        groups = self._services.coordinators.made_groups
        if groups is not None:
            await groups.offsets.expire()

    async def abort_timed_out_transactions(self) -> None:
        """Abort transactions that are open for longer than their timeout."""
        transactions = self._services.coordinators.made_transactions
        if transactions is not None:
            transactions.abort_timed_out()

    async def remove_expired_transactional_ids(self) -> None:
        """Remove transactional ids that have been unused for their expiration time."""
        transactions = self._services.coordinators.made_transactions
        if transactions is not None:
            transactions.remove_expired()

    async def warn_of_late_transactions(self) -> None:
        """Log a warning for each partition with an open transaction that no coordinator ends."""
        services = self._services
        now_ms = services.clock.time_ms()
        max_timeout_ms = services.config.get_int("transaction.max.timeout.ms")
        partitions = services.replica_manager.partitions()
        finding = finding_late_transactions(partitions, now_ms, max_timeout_ms)
        late = await in_slices(finding)
        self._late_transactions.warn(late, now_ms)

    async def sync_new_logs(self) -> None:
        """Wait until logs were created, and sync them in the executor before they roll."""
        await self._has_new_logs.wait()
        self._has_new_logs.clear()
        services = self._services
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(services.executor, services.log_manager.sync_new_logs)
        await shielded(work, "the sync of new logs")

    async def maintain(self) -> None:
        """Flush logs by age, write checkpoints and remove deleted files, in the executor."""
        services = self._services
        loop = asyncio.get_running_loop()
        now_ms = services.clock.time_ms()
        work = loop.run_in_executor(services.executor, services.log_manager.maintain, now_ms)
        await shielded(work, "the maintenance of the logs")
