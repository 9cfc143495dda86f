"""Closing many logs in bounded time: what the disk has no time for is left to the page cache."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from odradek.environment.clock import Clock
from odradek.errors import KafkaError
from odradek.log.unified_log import UnifiedLog

CLOSING_THREADS = 8
"""How many logs are closed at once."""
SYNCED_AT_LEAST = 100
"""So many logs are synced at a clean stop however long that takes."""
UNSYNCED_CLOSE_MS = 0.2
"""What closing a log takes without waiting for the disk: the time that is kept for each."""
LAST_SYNC_MS = 300.0
"""So long the last sync that began in time may take, without others being left for it."""
_logger = logging.getLogger(__name__)


def close_logs(
    logs: list[UnifiedLog], clock: Clock, *, clean: bool, within_ms: float
) -> tuple[list[UnifiedLog], list[UnifiedLog]]:
    """Closes all; returns those that were not synced, and those of them that nothing was written
    for, as if the process had been killed.
    """
    deadline_ms = clock.monotonic_ms() + within_ms
    unsynced = list(_closed_synced(logs, clock, clean, deadline_ms))
    left = []
    for log in unsynced:
        late = clock.monotonic_ms() > deadline_ms + LAST_SYNC_MS
        _close(log, clean=clean and not late, sync=False)
        left += [log] * late
    return unsynced, left


def _closed_synced(
    logs: list[UnifiedLog], clock: Clock, clean: bool, deadline_ms: float
) -> Iterator[UnifiedLog]:
    """Closes logs until what is left of the time is needed to close the others; those others."""
    time_is_over = False

    def close_in_time(at: int, log: UnifiedLog) -> UnifiedLog | None:
        nonlocal time_is_over
        if at >= SYNCED_AT_LEAST and not time_is_over:
            others_ms = (len(logs) - at) * UNSYNCED_CLOSE_MS
            time_is_over = clock.monotonic_ms() + others_ms > deadline_ms
        if time_is_over:
            return log
        _close(log, clean=clean, sync=True)
        return None

    # A synced close waits for several fsyncs; in threads they share the journal's commits.
    with ThreadPoolExecutor(CLOSING_THREADS, "odradek-close") as threads:
        yield from filter(None, threads.map(close_in_time, count(), logs))


def _close(log: UnifiedLog, *, clean: bool, sync: bool) -> None:
    try:
        log.close(clean=clean, sync=sync)
    except KafkaError as error:
        _logger.warning("closing %s: %s", log.topic_partition, error)
