"""The log cleaner of a broker: it compacts the filthiest logs, until no log is due.

Every ``log.cleaner.backoff.ms`` a pass examines the compacted logs on the event loop, which owns
them. A worker starts only if a log is due, and ends when no log is due, so an idle broker has
neither the worker's process nor its memory. Up to ``log.cleaner.threads`` workers run at the same
time and share ``log.cleaner.dedupe.buffer.size`` and the other budgets evenly. The event loop swaps
in the segments that a worker reports. Blocking calls (the worker's, fsync) run on the threads of
the pass.

If a log cannot be cleaned, for example because of a corrupt batch, the broker logs an error and
skips the log until the next start, as in Kafka. The death of a worker loses no data.
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
    WorkerEnded,
)
from odradek.log.file_pool import NO_DESCRIPTOR_ERRNOS, NO_SPACE_ERRNOS
from odradek.log.old_segments import delete_old_segments
from odradek.log.residency import NotResident
from odradek.result_tasks import shielded
from odradek.slicing import ELEMENTS_PER_SLICE, end_slice, in_slices

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig
    from odradek.environment.clock import Clock
    from odradek.environment.executors import Executors, Pool
    from odradek.environment.timers import Timers
    from odradek.log.cleaner.worker_protocol import CleanerWorker
    from odradek.log.directories.log_manager import LogManager
    from odradek.log.segments.log_segment import LogSegment
    from odradek.log.unified_log import UnifiedLog

# Interval between checks that the log being cleaned still exists.
WATCH_S = 1.0
BUFFER_BYTES_MAX = 2**31 - 1
BUFFER_BYTES_MIN = 1 << 20
LOAD_FACTOR_MIN, LOAD_FACTOR_MAX = 0.01, 0.95
WORKER_DEATHS_MAX = 3
"""After so many workers in succession have died while they cleaned a log, the log is skipped."""
MEBIBYTE = 1 << 20

logger = logging.getLogger(__name__)
T = TypeVar("T")


class _CleaningEnded(Exception):
    """The cleaning of a log has ended early and was handled. The worker cannot be used again."""


def start_process() -> CleanerWorker:
    """Start a worker in a process. Blocks, so it runs on a thread."""
    from odradek.log.cleaner.process import CleanerProcess

    return CleanerProcess()


class LogCleaner:
    """The scheduler of compaction; see the module docstring. Used on the event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        executors: Executors,
        log_manager: LogManager,
        start_worker: Callable[[], CleanerWorker],
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._manager = log_manager
        self._uncleanable: WeakSet[UnifiedLog] = WeakSet()
        self._postponed: WeakSet[UnifiedLog] = WeakSet()
        self._worker_deaths: WeakKeyDictionary[UnifiedLog, int] = WeakKeyDictionary()
        self._executors = executors
        self._start_worker = start_worker
        self._workers: dict[CleanerWorker, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._lock = asyncio.Lock()
        self._threads: Pool | None = None

    # --- start and stop ---

    def start(self) -> None:
        """Start the periodic passes, unless ``log.cleaner.enable`` is false."""
        if self._config.get_bool("log.cleaner.enable"):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Kill the workers, and wait until a swap that has begun is complete."""
        self._stopping = True
        for worker in self._workers:
            worker.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        async with self._lock:
            pass

    async def _run(self) -> None:
        while True:
            await self._timers.sleep(self._config.get_int("log.cleaner.backoff.ms") / 1000)
            try:
                await shielded(asyncio.ensure_future(self.clean()), "a pass of the log cleaner")
            except Exception:
                logger.exception("a pass of the log cleaner failed. The next pass begins as usual")

    # --- one pass ---

    async def clean(self) -> int:
        """Clean logs until none is due, then apply retention. Return how many were cleaned."""
        async with self._lock:
            count = 0
            self._postponed.clear()
            threads = self._config.get_int("log.cleaner.threads")
            pool = self._threads = self._executors.pool(max(threads, 1), "odradek-cleaner")
            try:
                if not self._stopping:
                    counts = await asyncio.gather(*(self._work(threads) for _ in range(threads)))
                    count = sum(counts)
                await self._retain()
            finally:
                self._threads = None
                pool.shutdown(wait=False)
                await asyncio.wrap_future(pool.ended)
            return count

    async def _filthiest(self) -> LogToClean | None:
        manager, now_ms = self._manager, self._clock.time_ms()
        found = []
        for count, log in enumerate(manager.assigned_logs(), 1):
            if not count % ELEMENTS_PER_SLICE:
                await end_slice()
            if log is None or not log.config.cleanup_compact or len(log.segments) < 2:
                continue
            if log.topic_partition in manager.cleaning:
                continue
            if log in self._uncleanable or log in self._postponed:
                continue
            if log.log_dir.offline or log.is_truncating:
                continue
            try:
                to_clean = await self._examine(log, now_ms)
            except OSError as error:
                if not log.closed:
                    self._postponed.add(log)
                    what = f"examining {log.topic_partition} for cleaning"
                    problem = log.log_dir.io_failed(error, what)
                    logger.warning("%s. The next pass tries again", problem)
                continue
            if to_clean is not None:
                found.append(to_clean)
        # Another worker may have started to clean one of them in the meantime.
        cleaning = manager.cleaning
        return filthiest([each for each in found if each.log.topic_partition not in cleaning])

    async def _examine(self, log: UnifiedLog, now_ms: int) -> LogToClean | None:
        """Return what has to be cleaned in the log, or None. Read from the disk on a thread."""
        manager = self._manager
        while not log.closed and not log.is_truncating:
            checkpoint = manager.cleaned_offset(log)
            try:
                return examine(log, checkpoint, manager.flushed_offset(log), now_ms, wait=False)
            except NotResident:
                await self._in_thread(partial(load_timestamps, log, checkpoint))
        return None

    async def _retain(self) -> None:
        """Delete the segments that retention no longer keeps.

        These are the segments below the log start offset and, with the cleanup policy
        ``compact,delete``, those past their retention.
        """
        now_ms = self._clock.time_ms()
        for count, log in enumerate(self._manager.assigned_logs(), 1):
            if not count % ELEMENTS_PER_SLICE:
                await end_slice()
            if log is None or log.log_dir.offline:
                continue
            if not log.config.cleanup_compact or len(log.segments) < 2:
                continue
            try:
                await self._in_thread(partial(log.load_for_retention, now_ms))
                await in_slices(delete_old_segments(log, now_ms, _may_retain, wait=False))
            except NotResident:
                logger.debug("retention of %s is postponed to the next pass", log.topic_partition)
            except KafkaError as error:
                logger.warning(
                    "retention of %s failed: %s. The next pass tries again",
                    log.topic_partition,
                    error,
                )

    async def _work(self, threads: int) -> int:
        """Run one worker until no log is due. Return how many logs it cleaned."""
        worker: CleanerWorker | None = None
        chosen: LogToClean | None = None
        count = 0
        try:
            while not self._stopping and (chosen := await self._filthiest()) is not None:
                self._manager.begin_cleaning(chosen.log.topic_partition)
                try:
                    if worker is None:
                        worker = await self._in_thread(self._start_worker)
                        self._workers[worker] = None
                    if self._stopping:
                        break
                    job = job_for(chosen, self._budget(threads), self._clock.time_ms())
                    count += await self._clean_log(worker, chosen, job)
                finally:
                    self._manager.end_cleaning(chosen.log.topic_partition)
        except _CleaningEnded:
            pass
        except WorkerEnded as error:
            if not self._stopping:
                logger.warning(
                    "a worker of the log cleaner ended as it compacted %s: %s. No record is lost",
                    chosen.log.topic_partition if chosen is not None else "no log",
                    error,
                )
                if chosen is not None:
                    self._worker_died(chosen)
        except OSError as error:
            logger.warning(
                "cannot start a worker of the log cleaner: %s. The next pass tries again", error
            )
        finally:
            if worker is not None:
                self._workers.pop(worker, None)
                worker.kill()
                await self._in_thread(worker.close)
        return count

    async def _in_thread(self, work: Callable[[], T]) -> T:
        assert self._threads is not None, "no pass is running"
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _budget(self, threads: int) -> Budget:
        """Return the budget of one of `threads` workers."""
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

    async def _clean_log(self, worker: CleanerWorker, chosen: LogToClean, job: CleaningJob) -> bool:
        """Have the worker clean one log, and swap in its segments.

        Returns:
            Whether the log is clean now.

        Raises:
            _CleaningEnded: The cleaning ended early. The worker cannot be used again.
            WorkerEnded: The worker died or was killed.
        """
        log = chosen.log
        if not chosen.is_current:
            return False
        await self._in_thread(lambda: worker.start(job))
        try:
            while True:
                report = await self._report(worker, log)
                if isinstance(report, CleaningDone):
                    return await self._done(chosen, report)
                if isinstance(report, CleaningFailed):
                    self._failed(chosen, report)
                    self._remove_cleaned(log)
                    return False
                if not await self._swap(chosen, report):
                    raise _CleaningEnded
                await self._in_thread(worker.resume)
        except BaseException:
            worker.kill()
            await self._in_thread(worker.close)
            self._remove_cleaned(log)
            raise

    async def _report(self, worker: CleanerWorker, log: UnifiedLog) -> Report:
        """Return the worker's next report. Kill the worker if its log no longer exists."""
        waiting = asyncio.ensure_future(self._in_thread(worker.report))
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=WATCH_S)
            if log.closed or log.log_dir.offline or self._stopping:
                worker.kill()
        return waiting.result()

    async def _swap(self, chosen: LogToClean, group: CleanedGroup) -> bool:
        log, bases = chosen.log, set(group.bases)
        if not chosen.is_current:
            return False  # the group may have records that a truncation has removed since
        old = [segment for segment in log.segments if segment.base_offset in bases]
        if log.closed or len(old) != len(bases):
            return False
        try:
            if not swap.begin_swap(log, old):
                return False
            await self._in_thread(lambda: swap.prepare_swap(log, old))
            if not chosen.is_current:
                swap.undo_swap(log, old)  # a truncation has removed the new files
                return False
            done = swap.finish_swap(
                log, old, group.size, self._clock.time_ms(), has_aborted=group.has_aborted
            )
            if done:
                await self._in_thread(lambda: log.log_dir.files.fsync_dir(log.directory))
            return done
        except OSError as error:
            if not log.closed:
                self._swap_failed(chosen, old, error)
            return False

    def _swap_failed(self, chosen: LogToClean, old: list[LogSegment], error: OSError) -> None:
        """Handle an error of a swap.

        Without free descriptors retry later, and undo the swap unless the segments were replaced
        already. The same applies to a file that a truncation has renamed in the meantime. Any other
        error fails the directory.
        """
        log = chosen.log
        what = f"swapping in a cleaned segment of {log.topic_partition}"
        if error.errno in NO_DESCRIPTOR_ERRNOS:
            log.log_dir.pool.make_room()
            logger.warning(
                "%s is postponed to the next pass: %s. Raise the limit of open files", what, error
            )
            if old[0].deleted:
                return
        elif chosen.is_current or not isinstance(error, FileNotFoundError):
            log.log_dir.fail(error, what)
            return
        try:
            swap.undo_swap(log, old)
        except OSError as later:
            log.log_dir.fail(later, what)

    async def _done(self, chosen: LogToClean, done: CleaningDone) -> bool:
        log = chosen.log
        if not chosen.is_current:
            return False
        if done.end_offset <= chosen.first_dirty_offset and chosen.cleanable_bytes:
            self._mark_uncleanable(
                log, "the dedupe buffer is too small, raise log.cleaner.dedupe.buffer.size"
            )
            return False
        try:
            write = self._manager.write_cleaned_offset
            await self._in_thread(partial(write, log, done.end_offset, chosen.truncations))
        except OSError as error:
            if error.errno in NO_SPACE_ERRNOS or error.errno in NO_DESCRIPTOR_ERRNOS:
                self._postponed.add(log)  # the next pass cleans it again, which loses nothing
                logger.warning(
                    "writing the cleaner's checkpoint is postponed: %s. The next pass compacts %s "
                    "again. Free disk space or file descriptors",
                    error,
                    log.topic_partition,
                )
            else:
                log.log_dir.fail(error, "writing the cleaner's checkpoint")
            return False
        self._worker_deaths.pop(log, None)
        _report_cleaned(chosen, done)
        return True

    def _failed(self, chosen: LogToClean, failed: CleaningFailed) -> None:
        """Handle the worker's report of a failure.

        Ignore it if the log was deleted in the meantime. Retry in the next pass if the log was
        truncated, because the worker has read files that were cut or renamed. Retry as well if the
        disk is full or the process has no free descriptors.
        """
        log = chosen.log
        if log.closed:
            return
        if not chosen.is_current:
            self._postponed.add(log)
            return
        if not failed.errno or failed.errno == errno.ENOENT:
            self._mark_uncleanable(log, failed.reason)
        elif failed.errno in NO_SPACE_ERRNOS or failed.errno in NO_DESCRIPTOR_ERRNOS:
            # Wait for the next pass. The cleaning of other logs may need less space and free some.
            self._postponed.add(log)
            logger.warning(
                "cleaning %s is postponed to the next pass: %s. Free disk space or descriptors",
                log.topic_partition,
                failed.reason,
            )
        else:
            error = OSError(failed.errno, failed.reason)
            log.log_dir.fail(error, f"cleaning {log.topic_partition}")

    def _worker_died(self, chosen: LogToClean) -> None:
        """Count the death of a worker, and skip the log after `WORKER_DEATHS_MAX` of them.

        Otherwise a log that always kills its worker (the machine has too little memory for it)
        would keep all other logs from being cleaned.
        """
        log = chosen.log
        if log.closed or log.log_dir.offline or not chosen.is_current:
            return
        deaths = self._worker_deaths[log] = self._worker_deaths.get(log, 0) + 1
        if deaths == WORKER_DEATHS_MAX:
            self._mark_uncleanable(log, f"{deaths} workers died while they cleaned it")

    def _mark_uncleanable(self, log: UnifiedLog, reason: str) -> None:
        self._uncleanable.add(log)
        logger.error(
            "%s cannot be compacted and is skipped until the broker is restarted: %s. `odradek log "
            "dump` checks its files",
            log.topic_partition,
            reason,
        )

    def _remove_cleaned(self, log: UnifiedLog) -> None:
        """Delete cleaned segments that were not swapped in. The next start deletes the rest."""
        if log.closed or log.log_dir.offline:
            return
        files = log.log_dir.files
        try:
            swap.remove_cleaned(files, log.directory, files.listdir(log.directory))
        except OSError as error:
            logger.warning(
                "cannot remove the unused cleaned segments of %s: %s. The next start removes them",
                log.topic_partition,
                error,
            )


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
        logger.warning(
            "the compaction of %s removed %d records without a key. Compact only topics whose "
            "records all have keys",
            chosen.log.topic_partition,
            stats["keyless"],
        )


def _may_retain(log: UnifiedLog) -> bool:
    return not (log.closed or log.is_truncating or log.log_dir.offline)
