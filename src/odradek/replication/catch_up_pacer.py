"""The rate of catch-up while other replicas of this broker are in sync and appended to. Pure.

A broker that returns reads what it lacks from all leaders. Without a limit it uses a processor of
its own and half of another one of the leaders, and requests with acks=all wait for their turn:
their 99th percentile was 15 times its value at rest on two processors. All fetchers of a broker
share one `CatchUpPacer`.

The limit holds for `TRAFFIC_MS` after the beginning of a catch-up and after the last records of a
replica in sync. A cluster without traffic catches up as fast as it can.
"""

from __future__ import annotations

CATCH_UP_BYTES_A_MS = 130_000
"""Bytes a millisecond of all catch-up connections together, as long as there is traffic."""

TRAFFIC_MS = 1_000.0
"""Milliseconds for which the limit holds after the last sign of traffic."""

DELAY_MIN_MS = 1.0
"""Timers have milliseconds. A shorter delay is added to the next one."""

BURST_MS = 10.0
"""Milliseconds of the rate that may be sent later, after the process has waited for a processor."""


class CatchUpPacer:
    """The delays of catch-up fetches. Owned by `FetcherManager`, used on the event loop only.

    Attributes:
        in_sync_responses: The number of responses with records for replicas in sync. Fetchers count
            them here, which costs no reading of the clock.
    """

    __slots__ = ("_due_ms", "_last_ms", "_seen_responses", "_traffic_ms", "in_sync_responses")

    def __init__(self) -> None:
        self.in_sync_responses = 0
        self._seen_responses = 0
        self._due_ms = self._last_ms = self._traffic_ms = float("-inf")

    def delay_ms(self, size_bytes: int, now_ms: float) -> float:
        """Return the delay of the next catch-up fetch after a response, 0 for none.

        Args:
            size_bytes: The records of the response.
            now_ms: The monotonic time.
        """
        if self._seen_responses != self.in_sync_responses or now_ms - self._last_ms > TRAFFIC_MS:
            self._traffic_ms = now_ms
            self._seen_responses = self.in_sync_responses
        self._last_ms = now_ms
        if now_ms - self._traffic_ms > TRAFFIC_MS:
            return 0.0
        due_ms = max(self._due_ms, now_ms - BURST_MS) + size_bytes / CATCH_UP_BYTES_A_MS
        self._due_ms = due_ms
        delay_ms = due_ms - now_ms
        return delay_ms if delay_ms >= DELAY_MIN_MS else 0.0
