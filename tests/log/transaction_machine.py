"""The log machine with transactions: transactional batches and markers.

In addition to the rules of `log_machine`, a reader of committed records gets the committed and the
nontransactional records of the list. This holds from any offset and for fetches of any size, up to
the last stable offset. That offset is the first one of an open transaction.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.verification import NO_GUARD
from tests.log.builders import NOW_MS, append_marker, append_transactional, read_committed
from tests.log.log_machine import Batch, LogMachine

TRANSACTIONAL = [3, 4, 5]


class TransactionMachine(LogMachine):
    """The state machine; see the module."""

    @property
    def deletable(self) -> int:
        """Not inside an open transaction: its state after a power cut is undefined."""
        return self.stable

    @rule(
        producer_id=st.sampled_from(TRANSACTIONAL),
        batches=st.lists(
            st.lists(st.integers(0, 80), min_size=1, max_size=3), min_size=1, max_size=3
        ),
    )
    def append_transactional(self, producer_id: int, batches: list[list[int]]) -> None:
        for sizes in batches:
            values = self.next_values(sizes)
            entry = self.log.producers.producers.get(producer_id)
            sequence = 0 if entry is None else entry.last_sequence + 1
            info = append_transactional(
                self.log, values, producer_id, sequence, leader_epoch=self.epoch
            )
            assert (info.first_offset, info.duplicate) == (self.end, False)
            stamps = [NOW_MS] * len(values)
            self.batches.append(Batch(self.end, self.epoch, values, stamps, producer_id, sequence))

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        info = append_marker(self.log, producer_id, committed=committed, leader_epoch=self.epoch)
        assert info.first_offset == self.end
        self.add_marker(producer_id, committed)

    @rule(data=st.data(), producer_id=st.sampled_from(TRANSACTIONAL), committed=st.booleans())
    def run_a_transaction(self, data: st.DataObject, producer_id: int, committed: bool) -> None:
        sizes = data.draw(st.lists(st.integers(0, 80), min_size=1, max_size=3), label="sizes")
        self.append_transactional(producer_id, [sizes])
        self.end_transaction(producer_id, committed)

    def add_marker(self, producer_id: int, committed: bool) -> None:
        marker = Batch(self.end, self.epoch, [bytes(6)], [NOW_MS], producer_id)
        marker.committed = committed
        self.batches.append(marker)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), space=st.integers(0, 200))
    def abort_on_a_full_disk(self, producer_id: int, space: int) -> None:
        self.files.space_left = space
        try:
            append_marker(self.log, producer_id, committed=False, leader_epoch=self.epoch)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            self.add_marker(producer_id, False)
        self.files.space_left = None

    @rule(producer_id=st.sampled_from(TRANSACTIONAL))
    def send_late(self, producer_id: int) -> None:
        """Without an open transaction and a verification nothing is appended."""
        if producer_id in self.open_transactions():
            return
        try:
            append_transactional(self.log, [b"late"], producer_id, 0, guard=NO_GUARD)
        except KafkaError as error:
            assert error.code is ErrorCode.INVALID_TXN_STATE
        else:
            assert self.log.log_end_offset == self.end, "a late batch was appended"

    def adopt_transactions_of_lost_batches(self) -> None:
        """The state is that of the last producer snapshot, which may be lost, too."""
        known = self.log.producers.ongoing
        lost = {
            producer_id
            for producer_id, first in self.open_transactions().items()
            if first < self.log.segments.bases[0] and first not in known
        }
        self.batches = [
            batch
            for batch in self.batches
            if batch.producer_id not in lost or batch.base_offset >= self.log_start
        ]

    def open_transactions(self) -> dict[int, int]:
        """Producer id -> first offset."""
        found: dict[int, int] = {}
        for batch in self.batches:
            if batch.committed is not None:
                found.pop(batch.producer_id, None)
            elif batch.producer_id in TRANSACTIONAL:
                found.setdefault(batch.producer_id, batch.base_offset)
        return found

    @property
    def stable(self) -> int:
        """Return the last stable offset of the list."""
        return max(min(self.open_transactions().values(), default=self.end), self.log_start)

    def committed_from(self, offset: int) -> list[tuple[int, bytes]]:
        """Return the records that a reader of committed records must get from `offset`."""
        found = []
        fates: dict[int, bool] = {}
        for batch in reversed(self.batches):
            if batch.committed is not None:
                fates[batch.producer_id] = batch.committed
            elif batch.producer_id not in TRANSACTIONAL or fates.get(batch.producer_id):
                found += [(batch.base_offset + at, v) for at, v in enumerate(batch.values)][::-1]
        return [each for each in reversed(found) if offset <= each[0] < self.stable]

    @invariant()
    def committed_records_are_those_of_the_list(self) -> None:
        log = self.log
        log.advance_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == self.stable
        assert read_committed(log, self.log_start) == self.committed_from(self.log_start)

    @rule(data=st.data())
    def read_committed_anywhere(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.end), label="offset")
        max_bytes = data.draw(st.sampled_from([1, 150, 600, 10**6]), label="max bytes")
        self.log.advance_high_watermark(self.end)
        assert read_committed(self.log, offset, max_bytes) == self.committed_from(offset)
