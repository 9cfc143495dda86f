"""The threads of a broker, which run work that would block the event loop."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from functools import partial

from odradek.environment.executors import Executors
from odradek.environment.timers import Timers
from odradek.log.directories.log_manager import LogManager
from odradek.offloading import WorkRunner

logger = logging.getLogger(__name__)

IO_THREADS_MAX = 8
DECOMPRESSIONS_MAX = 2
"""Maximum number of batches that are checked or recompressed at the same time. Each of them is
decompressed in memory.
"""
TIMESTAMP_LOOKUPS_MAX = 2
"""Maximum number of concurrent searches for timestamps. Each has a decompressed batch in memory."""
LOOKUP_PAUSE_S = 0.001
"""Pause between two slices of a search. It limits searches to a third of the event loop's time."""


class BrokerThreads:
    """The thread pools of a broker. Owned by `BrokerServer`, used on its event loop.

    Attributes:
        executor: Runs fsync, cold reads, loading and deleting.
        decompression: Runs the work on client batches that have to be decompressed. It has its own
            threads, because a batch of a few KB may decompress to 10,000 times its size, and fsync
            and cold reads must not wait for that.
        timestamp_lookups: Runs searches by timestamp, separate from `executor` for the same reason.
    """

    def __init__(self, executors: Executors, timers: Timers) -> None:
        self._io = executors.pool(IO_THREADS_MAX, "odradek-io")
        unpacking = DECOMPRESSIONS_MAX + TIMESTAMP_LOOKUPS_MAX
        self._unpacker = executors.pool(unpacking, "odradek-unpack")
        self._closer = executors.pool(1, "odradek-close")
        slices = asyncio.Lock()
        self.executor: Executor = self._io
        self.decompression = WorkRunner(self._unpacker, DECOMPRESSIONS_MAX, slices)
        self.timestamp_lookups = WorkRunner(
            self._unpacker,
            TIMESTAMP_LOOKUPS_MAX,
            slices,
            pause=partial(timers.sleep, LOOKUP_PAUSE_S),
        )

    async def close_logs(
        self, log_manager: LogManager, *, clean: bool, within_ms: float, broker_epoch: int = -1
    ) -> None:
        """Close the logs on a separate thread, because those of the executor may wait for the disk.

        The directories stay locked until every thread of the executor has ended.

        Args:
            log_manager: The owner of the logs.
            clean: Whether to write the mark that lets the next start skip recovery.
            within_ms: The time for syncing the logs, in milliseconds.
            broker_epoch: The broker epoch in the mark. -1 for a single broker.
        """

        close = partial(
            log_manager.close,
            clean=clean,
            within_ms=within_ms,
            unlock=False,
            broker_epoch=broker_epoch,
        )
        closed = asyncio.get_running_loop().run_in_executor(self._closer, close)
        self._closer.shutdown(wait=False)
        self._closer.ended.add_done_callback(lambda _: self._unlock_later(log_manager))
        await closed

    def _unlock_later(self, log_manager: LogManager) -> None:
        """Unlock the directories when the last call of the executor has ended."""
        self._io.ended.add_done_callback(lambda _: log_manager.unlock())

    async def end(self, within_ms: float) -> None:
        """End all threads. Wait at most `within_ms` milliseconds for busy ones."""
        self._unpacker.shutdown(wait=False, cancel_futures=True)
        pools = (self._io, self._unpacker, self._closer)
        for pool in pools:
            pool.shutdown(wait=False)
        ended = [asyncio.wrap_future(pool.ended) for pool in pools]
        _, busy = await asyncio.wait(ended, timeout=within_ms / 1000)
        if busy:
            logger.warning(
                "%d of %d thread pools still wait for the disk. The broker stops without them. "
                "Check the disk",
                len(busy),
                len(pools),
            )
        else:
            for pool in pools:
                pool.shutdown(wait=True)
