"""The lines of librdkafka's log that explain what a client did.

`REQUERY`: librdkafka has this defect (2.16). A ListOffsets response may arrive after the partition
was assigned or sought again. The library drops the response, but it also starts a timer of 500 ms
that queries the start offset again. The consumer then continues at that offset, for example at the
beginning of the partition, without a rebalance or a seek of the application.
`tests/histories/test_library_log.py` shows it.

`FAILED_BATCH`: a produce request has failed, and the library sends its batch again. A producer
without idempotence sends batches that follow in the meantime, so the log may have another order.
"""

from __future__ import annotations

import logging
import re

REQUERY = re.compile(r": (?P<topic>\S+) \[(?P<partition>\d+)\]: outdated offset response: ")
FAILED_BATCH = re.compile(
    r": (?P<topic>\S+) \[(?P<partition>\d+)\]: MessageSet with \d+ message\(s\) .*"
    r"encountered error: "
)


def partition_in(line: str, pattern: re.Pattern[str]) -> tuple[str, int] | None:
    """Return the topic partition of a line that matches."""
    found = pattern.search(line)
    return None if found is None else (found["topic"], int(found["partition"]))


class LibraryLog(logging.Handler):
    """Collects the partitions for which the library writes a line of one kind.

    Pass `logger` to the client. The library calls it during `poll` and `flush`.
    """

    def __init__(self, pattern: re.Pattern[str] = REQUERY) -> None:
        super().__init__()
        self.pattern = pattern
        self.partitions: set[tuple[str, int]] = set()
        self.logger = logging.Logger("librdkafka", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        partition = partition_in(record.getMessage(), self.pattern)
        if partition is not None:
            self.partitions.add(partition)

    def take(self) -> set[tuple[str, int]]:
        """Return the partitions collected since the last call."""
        taken, self.partitions = self.partitions, set()
        return taken
