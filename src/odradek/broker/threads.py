"""The threads of a broker: what would block the event loop runs here."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from functools import partial

from odradek.environment.thread_pool import ThreadPool
from odradek.environment.timers import Timers
from odradek.log.directories.log_manager import LogManager
from odradek.offloading import WorkRunner

logger = logging.getLogger(__name__)

IO_THREADS_MAX = 8
OPENED_BATCHES_MAX = 2
"""Batches that are checked or recompressed at the same time, each of them unpacked."""
TIMESTAMP_LOOKUPS_MAX = 2
"""Searches for timestamps at the same time, each with an unpacked batch."""
LOOKUP_PAUSE_S = 0.001
"""Between two slices of a search, so that searches take at most a third of the event loop."""


class BrokerThreads:
    """Owned by `BrokerServer`, used on its event loop.

    Attributes:
        executor: For fsync, cold reads, loading and deleting.
        opened_batches: For batches of clients that have to be opened. They have threads of their
            own, because a batch of a few KB may unpack to 10,000 times as much, and no fsync or
            cold read may wait for that.
        timestamp_lookups: For searches by time, for the same reason.
    """

    def __init__(self, timers: Timers) -> None:
        self._io = ThreadPool(IO_THREADS_MAX, "odradek-io")
        unpacking = OPENED_BATCHES_MAX + TIMESTAMP_LOOKUPS_MAX
        self._unpacker = ThreadPool(unpacking, "odradek-unpack")
        self._closer = ThreadPool(1, "odradek-close")
        slices = asyncio.Lock()
        self.executor: Executor = self._io
        self.opened_batches = WorkRunner(self._unpacker, OPENED_BATCHES_MAX, slices)
        self.timestamp_lookups = WorkRunner(
            self._unpacker,
            TIMESTAMP_LOOKUPS_MAX,
            slices,
            pause=partial(timers.sleep, LOOKUP_PAUSE_S),
        )

    async def close_logs(self, log_manager: LogManager, *, clean: bool, within_ms: float) -> None:
        """Close the logs on a thread of their own: those of the executor may wait for the disk.

        The directories stay locked until no thread of the executor can be working in them.
        """

        def unlock() -> None:
            self._io.shutdown(wait=True)
            log_manager.unlock()

        close = partial(log_manager.close, clean=clean, within_ms=within_ms, unlock=False)
        closed = asyncio.get_running_loop().run_in_executor(self._closer, close)
        self._closer.submit(unlock)  # by the same thread, when that is done
        await closed

    async def end(self, within_ms: float) -> None:
        """Let all threads end, and wait for so long for those that are busy."""
        self._unpacker.shutdown(wait=False, cancel_futures=True)
        pools = (self._io, self._unpacker, self._closer)
        for pool in pools:
            pool.shutdown(wait=False)

        def join() -> None:
            for pool in pools:
                pool.shutdown(wait=True)

        joiner = ThreadPool(1, "odradek-join")
        joined = asyncio.get_running_loop().run_in_executor(joiner, join)
        joiner.shutdown(wait=False)
        done, _ = await asyncio.wait([joined], timeout=within_ms / 1000)
        if done:
            joiner.shutdown(wait=True)
        else:
            logger.warning("threads that wait for the disk are left behind")
