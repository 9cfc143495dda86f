"""The lines of librdkafka's log that explain a jump of a consumer's position.

librdkafka has this defect (2.16): a ListOffsets response may arrive after the partition was
assigned or sought again. The library drops the response, but it also starts a timer of 500 ms that
queries the start offset again. The consumer then continues at that offset, for example at the
beginning of the partition, without a rebalance or a seek of the application.
`tests/histories/test_library_log.py` shows it.
"""

from __future__ import annotations

import logging
import re

REQUERY = re.compile(r": (?P<topic>\S+) \[(?P<partition>\d+)\]: outdated offset response: ")


class LibraryLog(logging.Handler):
    """Collects the partitions for which the library logs that it queries the offset again.

    Pass `logger` to the consumer. The library calls it during `poll`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.partitions: set[tuple[str, int]] = set()
        self.logger = logging.Logger("librdkafka", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        found = REQUERY.search(record.getMessage())
        if found is not None:
            self.partitions.add((found["topic"], int(found["partition"])))

    def take(self) -> set[tuple[str, int]]:
        """Return the partitions collected since the last call."""
        taken, self.partitions = self.partitions, set()
        return taken
