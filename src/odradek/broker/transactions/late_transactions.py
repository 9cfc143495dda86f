"""Warnings about late transactions: open transactions that no coordinator ends.

A late transaction blocks every read_committed consumer of its partition. An administrator has to
end it with ``odradek txn find-hanging`` and ``odradek txn abort`` (KIP-664). The broker logs one
warning for each.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.ids import TopicPartition
from odradek.log.state.producer_state_manager import LateTransaction
from odradek.slicing import ELEMENTS_PER_SLICE

if TYPE_CHECKING:
    from odradek.replication.partition import Partition

logger = logging.getLogger(__name__)

LateTransactions = Mapping[TopicPartition, LateTransaction]


def finding_late_transactions(
    partitions: Sequence[Partition], now_ms: int, transaction_max_timeout_ms: int
) -> Generator[None, None, dict[TopicPartition, LateTransaction]]:
    """Return the late transactions of the partitions that this broker leads, in time slices.

    A transaction is late when it is open although it should have ended long ago. For each partition
    the result has the transaction that holds back the last stable offset. Their number is Kafka's
    metric ``PartitionsWithLateTransactionsCount``.
    """
    found: dict[TopicPartition, LateTransaction] = {}
    for count, partition in enumerate(partitions, 1):
        if not count % ELEMENTS_PER_SLICE:
            yield
        if partition.error:
            continue
        late = partition.log.producers.late_transaction(now_ms, transaction_max_timeout_ms)
        if late:
            found[partition.topic_partition] = late
    return found


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
