"""Truncations of a follower's logs, off the event loop.

The logs of one response are truncated together (`LogTruncations`). A truncation that has begun is
always finished, also if this broker stops to follow the partition. Its log can be used by a new
leader or a new fetch when `UnifiedLog.is_truncating` is False again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from odradek.environment.timers import Timers
    from odradek.log.truncation import LogTruncations
    from odradek.log.unified_log import UnifiedLog
    from odradek.replication.partition import Partition

logger = logging.getLogger(__name__)

TRUNCATION_DELAYS_MAX = 10
"""Longest delay before another attempt to truncate on a full disk or without free descriptors, as
a multiple of the first delay. The attempts continue until one succeeds.
"""

STOP_WAIT_S = 0.3
"""Maximum time for which a stop waits for truncations. Other parts of the broker stop after it."""


class FollowerTruncations:
    """The truncations in progress. Used on the event loop only.

    Args:
        executor: Runs the truncations.
        loop: The event loop.
        timers: Timers of the delay before another attempt.
        retry_s: The first delay, in seconds.
        ended: Called for each partition at the end, with the error of a failed truncation.
    """

    def __init__(
        self,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        retry_s: float,
        ended: Callable[[Partition, KafkaError | None], None],
    ) -> None:
        self._executor = executor
        self._loop = loop
        self._timers = timers
        self._retry_s = retry_s
        self._ended = ended
        self._stopped = False
        self._running: set[asyncio.Future[Mapping[UnifiedLog, KafkaError]]] = set()

    def start(self, truncations: LogTruncations, partitions: Sequence[Partition]) -> None:
        """Truncate the logs of `partitions`, which were added to `truncations`."""
        self._run(truncations, partitions, 1)

    async def stop(self) -> None:
        """Begin no further attempt. Wait at most `STOP_WAIT_S` for the running ones.

        A log that is still truncated when the logs are closed is not closed cleanly.
        """
        self._stopped = True
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_WAIT_S)

    def _run(
        self, truncations: LogTruncations, partitions: Sequence[Partition], attempt: int
    ) -> None:
        if self._stopped:
            return
        executed = self._loop.run_in_executor(self._executor, truncations.execute)
        self._running.add(executed)
        executed.add_done_callback(partial(self._executed, truncations, partitions, attempt))

    def _executed(
        self,
        truncations: LogTruncations,
        partitions: Sequence[Partition],
        attempt: int,
        executed: asyncio.Future[Mapping[UnifiedLog, KafkaError]],
    ) -> None:
        self._running.discard(executed)
        if executed.cancelled() or self._stopped:
            return
        error = executed.exception()
        if error is None:
            failed = executed.result()
        else:
            logger.error(
                "bug in the truncation of %d logs. Report the traceback",
                len(partitions),
                exc_info=error,
            )
            problem = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            failed = {each.log: problem for each in partitions}
        again = []
        for partition in partitions:
            problem_of_log = failed.get(partition.log)
            if problem_of_log is None or error is not None or partition.log.log_dir.offline:
                self._ended(partition, problem_of_log)
            else:
                again.append(partition)
        if again:
            logger.warning(
                "truncating %s and %d more partitions failed: %s. It is tried again. Free space on "
                "the disk, or file descriptors",
                again[0].topic_partition,
                len(again) - 1,
                failed[again[0].log],
            )
            delay_s = self._retry_s * min(attempt, TRUNCATION_DELAYS_MAX)
            self._timers.call_later(delay_s, self._run, truncations, again, attempt + 1)
