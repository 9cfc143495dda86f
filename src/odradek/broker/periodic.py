"""What a broker does from time to time: retention, checkpoints, flush by age, expiry of producer
ids, a look at transactions that hang.

The intervals are Kafka's configs. The environment's clock decides whether something is due. Its
timers only say when to look. Work on files runs in the executor, one task of a kind at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odradek.broker.transactions.late_transactions import LateTransactionWatch

if TYPE_CHECKING:
    from odradek.broker.requests.context import Services

logger = logging.getLogger(__name__)

# How often the disk's upkeep is looked after: flush.ms, checkpoints and removals become due by it.
MAINTENANCE_INTERVAL_MS = 1_000
# How often late transactions are looked for; they are minutes late then.
LATE_TRANSACTIONS_INTERVAL_MS = 10_000


class PeriodicTasks:
    """The tasks of one broker, started and stopped together."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks: list[asyncio.Task[None]] = []
        self._late_transactions = LateTransactionWatch()

    def start(self) -> None:
        """Starts them; each waits for its interval before it works for the first time."""
        config = self._services.config
        self._every(config.get_int("log.retention.check.interval.ms"), self.delete_old_segments)
        self._every(MAINTENANCE_INTERVAL_MS, self.maintain)
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

    def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._repeat(interval_ms, work)))

    async def _repeat(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        """Work every `interval_ms`. A failure is logged and does not end it."""
        while True:
            await self._services.timers.sleep(interval_ms / 1000)
            try:
                await work()
            except Exception:
                logger.exception("%s failed", getattr(work, "__name__", work))

    async def stop(self) -> None:
        """Ends the waiting; work that has begun is finished first."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def delete_old_segments(self) -> None:
        """Retention by time and by size, and expiry of producers; the logs belong to the loop."""
        services = self._services
        manager, now_ms = services.log_manager, services.clock.time_ms()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(services.executor, manager.load_for_retention, now_ms)
        await asyncio.shield(work)
        manager.retain(now_ms, wait=False)

    async def expire_offsets(self) -> None:
        """Removes committed offsets that are past their retention, and groups left empty."""
        groups = self._services.coordinators.made_groups
        if groups is not None:
            await groups.offsets.expire()

    async def abort_timed_out_transactions(self) -> None:
        """Transactions that are open for longer than their producers said."""
        transactions = self._services.coordinators.made_transactions
        if transactions is not None:
            transactions.abort_timed_out()

    async def remove_expired_transactional_ids(self) -> None:
        """Transactional ids that nobody has used for long."""
        transactions = self._services.coordinators.made_transactions
        if transactions is not None:
            transactions.remove_expired()

    async def warn_of_late_transactions(self) -> None:
        """A line in the log for each partition whose open transaction nobody ends."""
        services = self._services
        now_ms = services.clock.time_ms()
        max_timeout_ms = services.config.get_int("transaction.max.timeout.ms")
        late = services.replica_manager.late_transactions(now_ms, max_timeout_ms)
        self._late_transactions.warn(late, now_ms)

    async def maintain(self) -> None:
        """Flushes by age, checkpoints and removals: what waits for the disk."""
        services = self._services
        loop = asyncio.get_running_loop()
        now_ms = services.clock.time_ms()
        work = loop.run_in_executor(services.executor, services.log_manager.maintain, now_ms)
        await asyncio.shield(work)
