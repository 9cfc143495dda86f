"""Lines on stderr about errors that librdkafka retries, which are otherwise silent.

librdkafka returns the error of a lost connection in `error_cb`. It returns a retriable error of a
produce response only as a log line of its debug context `msg`, one line for each batch.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.environment.clock import Clock

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

NOTICE_INTERVAL_MS = 10_000
"""Least time between two lines."""
OUTAGE_CONFIRMED_MS = 500
"""A lost connection is reported if connecting still fails after this time.

librdkafka counts all brokers as down as soon as its only connection ends, before it connects again.
"""

_BATCH = re.compile(
    r" \[(?P<partition>\d+)\]: MessageSet with \d+ message\(s\) \(.*\) "
    r"(?:delivered|encountered error: (?P<error>.*) \(actions (?P<actions>[\w,]*)\))$"
)
_CONNECTION = re.compile(r"^\S+: (?P<cause>.*?)(?: \(after \d+ms in state \w+[^()]*\))?$")


def write_to_stderr(line: str) -> None:
    print(f"odradek: {line}", file=sys.stderr, flush=True)


class RetryNotices:
    """Decides which retriable errors of a producer the user sees.

    An error is written once. It is written again after a delivery has shown that it was over.
    """

    def __init__(
        self, topic: str, server: str, clock: Clock, write: Callable[[str], None] = write_to_stderr
    ) -> None:
        self._topic = topic
        self._server = server
        self._clock = clock
        self._write = write
        # Partition (None for a lost connection) and error of the last line, until it is over.
        self._current: tuple[int | None, str] | None = None
        self._written_ms: float | None = None
        self._lost_ms: float | None = None

    def settings(self) -> dict[str, object]:
        """Return the settings of librdkafka that report to this object."""
        logger = logging.Logger("librdkafka")
        logger.addHandler(_LineHandler(self.log_line))
        return {"log_level": 7, "debug": "msg", "logger": logger, "error_cb": self.client_error}

    def log_line(self, level: int, line: str) -> None:
        """Take one log line of librdkafka. Lines of level CRITICAL are for the user."""
        batch = _BATCH.search(line)
        if batch is None:
            if level >= logging.CRITICAL:
                self._write(line)
        elif batch["error"] is None:
            self._delivered(int(batch["partition"]))
        elif "Retry" in batch["actions"].split(","):
            self._notice(
                int(batch["partition"]),
                batch["error"],
                f"{self._topic}, partition {batch['partition']}: {batch['error']}. The records are"
                " sent again. The log of the broker has the cause.",
            )

    def client_error(self, error: KafkaError) -> None:
        """Take an error of the client. Fatal errors also fail a call of the producer."""
        from confluent_kafka import KafkaError

        now_ms = self._clock.monotonic_ms()
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            if self._lost_ms is None:
                self._lost_ms = now_ms
        elif (
            not error.fatal()
            and self._lost_ms is not None
            and now_ms - self._lost_ms >= OUTAGE_CONFIRMED_MS
        ):
            connection = _CONNECTION.match(error.str())
            cause = connection["cause"] if connection else error.str()
            self._notice(
                None,
                "no broker responds",
                f"{self._topic}: no broker responds at {self._server} ({cause}). The client tries"
                " again. Check whether the broker runs.",
            )

    def _notice(self, partition: int | None, error: str, line: str) -> None:
        if self._current is not None and self._current[1] == error:
            return
        now_ms = self._clock.monotonic_ms()
        if self._written_ms is not None and now_ms - self._written_ms < NOTICE_INTERVAL_MS:
            return
        self._current = partition, error
        self._written_ms = now_ms
        self._write(line)

    def _delivered(self, partition: int) -> None:
        self._lost_ms = None
        if self._current is not None and self._current[0] in (None, partition):
            self._current = None


class _LineHandler(logging.Handler):
    """Passes level and text of each log record on."""

    def __init__(self, take: Callable[[int, str], None]) -> None:
        super().__init__()
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        self._take(record.levelno, record.getMessage())
