"""Transactions during a cleaning: aborted data, and markers that are no longer needed.

A marker is kept as long as a batch of its transaction exists, because it decides whether readers
see the batch. The entry of an aborted transaction in the segment's `TransactionIndex` is kept as
long, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.environment.files import Files
from odradek.log.segments.transaction_index import (
    ENTRY_BYTES,
    TXN_INDEX_SUFFIX,
    AbortedTransaction,
    TransactionIndex,
)
from odradek.records.batch import BatchHeader
from odradek.records.control import read_marker


class CleanedTransactions:
    """The transactions at the current position, while batches are read in the order of the log.

    Kafka's ``CleanedTransactionMetadata``. `still_indexed` collects the aborted transactions whose
    index entries are kept.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], start_offset: int) -> None:
        relevant = [entry for entry in aborted if entry.last_offset >= start_offset]
        self._upcoming = sorted(relevant, key=lambda it: it.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._aborted_seen: set[int] = set()
        self._committed_seen: set[int] = set()
        self.still_indexed: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether this data batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted_seen.add(header.producer_id)
            return True
        self._committed_seen.add(header.producer_id)
        return False

    def marker_is_unneeded(self, batch: memoryview, header: BatchHeader) -> bool:
        """Return whether no batch of this marker's transaction was read, so it may be removed."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if not header.record_count:
            return True
        marker = read_marker(batch)
        if marker is None:
            return False
        if marker.committed:
            idle = producer_id not in self._committed_seen
            self._committed_seen.discard(producer_id)
            return idle
        entry = self._aborted.pop(producer_id, None)
        if entry is None or producer_id not in self._aborted_seen:
            return True
        self._aborted_seen.discard(producer_id)
        self.still_indexed.append(entry)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1].first_offset <= offset:
            entry = self._upcoming.pop()
            self._aborted.setdefault(entry.producer_id, entry)


def aborted_transactions(files: Files, directory: str) -> list[AbortedTransaction]:
    """Read the aborted transactions of all segments.

    All are needed, because a marker may be above the cleaned part.

    The last index may be written at the same time. An incomplete entry is ignored.
    """
    found: list[AbortedTransaction] = []
    for name in files.listdir(directory):
        if name.endswith(TXN_INDEX_SUFFIX):
            path = f"{directory}/{name}"
            size = files.size(path)
            index = TransactionIndex(files, path, size - size % ENTRY_BYTES)
            found += index.entries()
    return found
