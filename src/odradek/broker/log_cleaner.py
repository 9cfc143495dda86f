"""Compaction as it runs in a broker: from time to time the filthiest logs, until none is due.

Every `log.cleaner.backoff.ms` the compacted logs are looked through, on the event loop, where they
belong. Only when one is due does a worker process start; it ends when nothing is left to do, so an
idle broker has neither the process nor its memory. `log.cleaner.threads` workers may run at once
and share `log.cleaner.dedupe.buffer.size` and the other budgets evenly. What a worker reports is
swapped in on the loop; what blocks (the pipe, fsync) is on the threads of one pass.

A log that cannot be cleaned (a corrupt batch) is named in the broker's log and left alone until the
next start, as in Kafka; a worker that dies takes nothing with it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from odradek.environment.thread_pool import ThreadPool
from odradek.errors import KafkaError
from odradek.log.cleaner import segment_swap as swap
from odradek.log.cleaner.selection import (
    Budget,
    LogToClean,
    examine,
    filthiest,
    job_for,
    load_timestamps,
)
from odradek.log.cleaner.worker_protocol import (
    CleanedGroup,
    CleaningDone,
    CleaningFailed,
    CleaningJob,
    Report,
)
from odradek.log.file_pool import NO_DESCRIPTOR_ERRNOS, NO_SPACE_ERRNOS
from odradek.log.residency import NotResident

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig
    from odradek.environment.clock import Clock
    from odradek.environment.timers import Timers
    from odradek.log.cleaner.process import CleanerProcess
    from odradek.log.directories.log_manager import LogManager
    from odradek.log.segments.log_segment import LogSegment
    from odradek.log.unified_log import UnifiedLog

# How often it is looked whether the log that is being cleaned is still there.
WATCH_S = 1.0
BUFFER_BYTES_MAX = 2**31 - 1
BUFFER_BYTES_MIN = 1 << 20
LOAD_FACTOR_MIN, LOAD_FACTOR_MAX = 0.01, 0.95
WORKERS_MAX = 3
"""So many workers may die of one log, one after the other: then it is the log."""
MEBIBYTE = 1 << 20

logger = logging.getLogger(__name__)
T = TypeVar("T")


class _CleaningEnded(Exception):
    """The cleaning has come to an end that was dealt with; the worker is of no more use."""


class LogCleaner:
    """See the module. Used on the event loop only."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, timers: Timers, log_manager: LogManager
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._manager = log_manager
        self._uncleanable: WeakSet[UnifiedLog] = WeakSet()
        self._put_off: WeakSet[UnifiedLog] = WeakSet()
        self._died_of: WeakKeyDictionary[UnifiedLog, int] = WeakKeyDictionary()
        self._processes: set[CleanerProcess] = set()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._lock = asyncio.Lock()
        self._threads: ThreadPool | None = None

    # --- life ---

    def start(self) -> None:
        """Begins to look for work, unless `log.cleaner.enable` is false."""
        if self._config.get_bool("log.cleaner.enable"):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends the workers at once; a swap that has begun is finished."""
        self._stopping = True
        for process in self._processes:
            process.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        async with self._lock:
            pass

    async def _run(self) -> None:
        while True:
            await self._timers.sleep(self._config.get_int("log.cleaner.backoff.ms") / 1000)
            try:
                await asyncio.shield(self.clean())
            except Exception:
                logger.exception("the log cleaner failed")

    # --- one pass ---

    async def clean(self) -> int:
        """Cleans logs until none is due, then applies retention to them; how many were cleaned."""
        async with self._lock:
            count = 0
            self._put_off.clear()
            threads = self._config.get_int("log.cleaner.threads")
            self._threads = ThreadPool(max(threads, 1), "odradek-cleaner")
            try:
                if not self._stopping:
                    counts = await asyncio.gather(*(self._work(threads) for _ in range(threads)))
                    count = sum(counts)
                await self._retain()
            finally:
                self._threads.shutdown(wait=True)
                self._threads = None
            return count

    async def _filthiest(self) -> LogToClean | None:
        manager, now_ms = self._manager, self._clock.time_ms()
        found = []
        for log in manager.all_logs():
            if not log.config.cleanup_compact or len(log.segments) < 2:
                continue
            if log.topic_partition in manager.cleaning:
                continue
            if log in self._uncleanable or log in self._put_off:
                continue
            if log.log_dir.offline:
                continue
            try:
                to_clean = await self._examine(log, now_ms)
            except OSError as error:
                if not log.closed:
                    log.log_dir.fail(error, f"looking at {log.topic_partition}")
                continue
            if to_clean is not None:
                found.append(to_clean)
        # Another worker may have chosen in the meantime.
        cleaning = manager.cleaning
        return filthiest([each for each in found if each.log.topic_partition not in cleaning])

    async def _examine(self, log: UnifiedLog, now_ms: int) -> LogToClean | None:
        """What there is to clean; what has to be read from the disk is read on a thread first."""
        manager = self._manager
        while not log.closed:
            checkpoint = manager.cleaned_offset(log)
            try:
                return examine(log, checkpoint, manager.flushed_offset(log), now_ms, wait=False)
            except NotResident:
                await self._in_thread(partial(load_timestamps, log, checkpoint))
        return None

    async def _retain(self) -> None:
        """What lies before the log start, and with compact,delete what is too old, goes now."""
        now_ms = self._clock.time_ms()
        for log in self._manager.all_logs():
            if not log.config.cleanup_compact or len(log.segments) < 2 or log.log_dir.offline:
                continue
            try:
                await self._in_thread(partial(log.load_for_retention, now_ms))
                log.delete_old_segments(now_ms, wait=False)
            except NotResident:
                logger.debug("retention of %s is put off", log.topic_partition)
            except KafkaError as error:
                logger.warning("retention of %s: %s", log.topic_partition, error)

    async def _work(self, threads: int) -> int:
        """One worker's life: log after log; how many it cleaned."""
        from odradek.log.cleaner.process import CleanerProcess, WorkerEnded

        process: CleanerProcess | None = None
        chosen: LogToClean | None = None
        count = 0
        try:
            while not self._stopping and (chosen := await self._filthiest()) is not None:
                self._manager.cleaning.add(chosen.log.topic_partition)
                try:
                    if process is None:
                        process = await self._in_thread(CleanerProcess)
                        self._processes.add(process)
                    if self._stopping:
                        break
                    job = job_for(chosen, self._budget(threads), self._clock.time_ms())
                    count += await self._clean_log(process, chosen, job)
                finally:
                    self._manager.cleaning.discard(chosen.log.topic_partition)
        except _CleaningEnded:
            pass
        except WorkerEnded as error:
            if not self._stopping:
                logger.warning("a cleaning was cut short: %s", error)
                if chosen is not None:
                    self._worker_died(chosen.log)
        except OSError as error:
            logger.warning("no worker for the log cleaner: %s", error)
        finally:
            if process is not None:
                self._processes.discard(process)
                process.kill()
                await self._in_thread(process.close)
        return count

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _budget(self, threads: int) -> Budget:
        """What one of so many workers may use."""
        config = self._config
        rate = config.get("log.cleaner.io.max.bytes.per.second")
        load = config.get("log.cleaner.io.buffer.load.factor")
        assert isinstance(rate, (int, float)) and isinstance(load, (int, float))
        buffer_bytes = config.get_int("log.cleaner.dedupe.buffer.size") // threads
        return Budget(
            dedupe_buffer_bytes=min(max(buffer_bytes, BUFFER_BYTES_MIN), BUFFER_BYTES_MAX),
            load_factor=min(max(load, LOAD_FACTOR_MIN), LOAD_FACTOR_MAX),
            io_buffer_bytes=config.get_int("log.cleaner.io.buffer.size") // threads // 2,
            bytes_per_second=None if rate >= sys.float_info.max else max(rate / threads, 1),
        )

    # --- one log ---

    async def _clean_log(
        self, process: CleanerProcess, chosen: LogToClean, job: CleaningJob
    ) -> bool:
        """Follows the worker through one job; whether the log is clean now.

        _Abandoned when the worker is of no more use.
        """
        log = chosen.log
        await self._in_thread(lambda: process.start(job))
        try:
            while True:
                report = await self._report(process, log)
                if isinstance(report, CleaningDone):
                    return await self._done(chosen, report)
                if isinstance(report, CleaningFailed):
                    self._failed(log, report)
                    self._remove_cleaned(log)
                    return False
                if not await self._swap(log, report):
                    raise _CleaningEnded
                await self._in_thread(process.go_on)
        except BaseException:
            process.kill()
            await self._in_thread(process.close)
            self._remove_cleaned(log)
            raise

    async def _report(self, process: CleanerProcess, log: UnifiedLog) -> Report:
        """The worker's next word; a worker whose log is gone is killed."""
        waiting = asyncio.ensure_future(self._in_thread(process.report))
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=WATCH_S)
            if log.closed or log.log_dir.offline or self._stopping:
                process.kill()
        return waiting.result()

    async def _swap(self, log: UnifiedLog, group: CleanedGroup) -> bool:
        bases = set(group.bases)
        old = [segment for segment in log.segments if segment.base_offset in bases]
        if log.closed or len(old) != len(bases):
            return False
        try:
            if not swap.begin_swap(log, old):
                return False
            await self._in_thread(lambda: swap.prepare_swap(log, old))
            done = swap.finish_swap(
                log, old, group.size, self._clock.time_ms(), has_aborted=group.has_aborted
            )
            if done:
                await self._in_thread(lambda: log.log_dir.files.fsync_dir(log.directory))
            return done
        except OSError as error:
            if not log.closed:
                self._swap_failed(log, old, error)
            return False

    def _swap_failed(self, log: UnifiedLog, old: list[LogSegment], error: OSError) -> None:
        """Without a descriptor nothing has been swapped yet: it is tried again."""
        what = f"swapping in a cleaned segment of {log.topic_partition}"
        if error.errno not in NO_DESCRIPTOR_ERRNOS:
            log.log_dir.fail(error, what)
            return
        logger.warning("%s is put off: %s", what, error)
        try:
            swap.take_back(log, old)
        except OSError as later:
            log.log_dir.fail(later, what)

    async def _done(self, chosen: LogToClean, done: CleaningDone) -> bool:
        log = chosen.log
        if done.end_offset <= chosen.first_dirty_offset and chosen.cleanable_bytes:
            self._give_up(log, "nothing of it fits into the dedupe buffer")
            return False
        try:
            await self._in_thread(lambda: self._manager.write_cleaned_offset(log, done.end_offset))
        except OSError as error:
            if error.errno in NO_SPACE_ERRNOS or error.errno in NO_DESCRIPTOR_ERRNOS:
                self._put_off.add(log)  # it is cleaned once more: nothing is lost by that
                logger.warning("writing the cleaner's checkpoint is put off: %s", error)
            else:
                log.log_dir.fail(error, "writing the cleaner's checkpoint")
            return False
        self._died_of.pop(log, None)
        _report_cleaned(chosen, done)
        return True

    def _failed(self, log: UnifiedLog, failed: CleaningFailed) -> None:
        """A log that was deleted meanwhile is no failure; after a full disk it is tried again."""
        if log.closed:
            return
        if not failed.errno or failed.errno == errno.ENOENT:
            self._give_up(log, failed.reason)
        elif failed.errno in NO_SPACE_ERRNOS or failed.errno in NO_DESCRIPTOR_ERRNOS:
            # Until the next pass: the others may need less, and make room.
            self._put_off.add(log)
            logger.warning("cleaning %s is put off: %s", log.topic_partition, failed.reason)
        else:
            error = OSError(failed.errno, failed.reason)
            log.log_dir.fail(error, f"cleaning {log.topic_partition}")

    def _worker_died(self, log: UnifiedLog) -> None:
        """A log that no worker survives (the memory of the machine is too small for it) must not
        keep all others from being cleaned.
        """
        if log.closed or log.log_dir.offline:
            return
        died = self._died_of[log] = self._died_of.get(log, 0) + 1
        if died == WORKERS_MAX:
            self._give_up(log, f"{died} workers have died of it")

    def _give_up(self, log: UnifiedLog, reason: str) -> None:
        self._uncleanable.add(log)
        logger.error(
            "%s cannot be compacted, and will not be until the next start: %s",
            log.topic_partition,
            reason,
        )

    def _remove_cleaned(self, log: UnifiedLog) -> None:
        """Frees the space of what was not swapped in; what is left goes at the next start."""
        if log.closed or log.log_dir.offline:
            return
        files = log.log_dir.files
        try:
            swap.remove_cleaned(files, log.directory, files.listdir(log.directory))
        except OSError as error:
            logger.warning("removing an unfinished cleaning of %s: %s", log.topic_partition, error)


def _report_cleaned(chosen: LogToClean, done: CleaningDone) -> None:
    stats = done.stats
    logger.info(
        "compacted %s up to %d (dirty from %d): %.1f MB to %.1f MB, %d records to %d, in %.1f s",
        chosen.log.topic_partition,
        done.end_offset,
        chosen.first_dirty_offset,
        stats["bytes_read"] / MEBIBYTE,
        stats["bytes_written"] / MEBIBYTE,
        stats["records_read"],
        stats["records_written"],
        done.elapsed_s,
    )
    if stats["keyless"]:
        logger.warning("%d records had no key, and are gone", stats["keyless"])
