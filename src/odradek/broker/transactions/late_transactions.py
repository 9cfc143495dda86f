"""Transactions that nobody ends, told to the log once each.

Such a transaction holds up every reader of committed records, and no coordinator will end it: an
administrator has to (``odradek txn find-hanging`` and ``odradek txn abort``, KIP-664).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.ids import TopicPartition
from odradek.log.state.producer_state_manager import LateTransaction

logger = logging.getLogger(__name__)

LateTransactions = Mapping[TopicPartition, LateTransaction]


class LateTransactionWatch:
    """Which late transactions are new. Holds no more than there are partitions with one.

    It takes two looks in a row to be told: when time has jumped (the machine was asleep), the
    coordinator aborts in the same moment what the first look finds late.
    """

    def __init__(self) -> None:
        self._seen: LateTransactions = {}
        self._reported: LateTransactions = {}

    def look(self, late: LateTransactions) -> dict[TopicPartition, LateTransaction]:
        """Takes in what is late now; what has to be told of it."""
        lasting = {key: each for key, each in late.items() if self._seen.get(key) == each}
        new = {key: each for key, each in lasting.items() if self._reported.get(key) != each}
        self._seen, self._reported = late, lasting
        return new

    def warn(self, late: LateTransactions, now_ms: int) -> None:
        """As `look`, with a line in the log for each that is new."""
        for topic_partition, each in self.look(late).items():
            logger.warning(
                "%s has a late transaction: producer id %d, start offset %d, age_ms %d",
                topic_partition,
                each.producer_id,
                each.start_offset,
                now_ms - each.last_timestamp,
            )
