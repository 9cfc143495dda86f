"""Warnings about late transactions: open transactions that no coordinator ends.

A late transaction blocks every read_committed consumer of its partition. An administrator has to
end it with ``odradek txn find-hanging`` and ``odradek txn abort`` (KIP-664). The broker logs one
warning for each.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.ids import TopicPartition
from odradek.log.state.producer_state_manager import LateTransaction

logger = logging.getLogger(__name__)

LateTransactions = Mapping[TopicPartition, LateTransaction]


class LateTransactionWatch:
    """Filter that selects the late transactions that were not reported before.

    It holds at most one entry for each partition with a late transaction. A transaction is reported
    after two consecutive checks have found it. When the clock has jumped (the machine was asleep),
    the coordinator aborts the transactions that the first check finds late.
    """

    def __init__(self) -> None:
        self._seen: LateTransactions = {}
        self._reported: LateTransactions = {}

    def update(self, late: LateTransactions) -> dict[TopicPartition, LateTransaction]:
        """Take the result of a check. Return the transactions to report.

        Args:
            late: All transactions that are late now.
        """
        lasting = {key: each for key, each in late.items() if self._seen.get(key) == each}
        new = {key: each for key, each in lasting.items() if self._reported.get(key) != each}
        self._seen, self._reported = late, lasting
        return new

    def warn(self, late: LateTransactions, now_ms: int) -> None:
        """Take the result of a check, as `update`, and log a warning for each one to report."""
        for topic_partition, each in self.update(late).items():
            logger.warning(
                "%s has a late transaction: producer id %d, start offset %d, age_ms %d. "
                "`odradek txn find-hanging` shows whether its coordinator will end it",
                topic_partition,
                each.producer_id,
                each.start_offset,
                now_ms - each.last_timestamp,
            )
