"""A log and a list driven by hypothesis through stops, kills and power cuts, and compared.

The log must equal the list in content, offsets, epochs, timestamps and duplicates. After a kill
nothing is lost, because the page cache outlives a process. After a power cut the log is a prefix of
the list with at least all flushed records. After a failed append the log is unchanged.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.log.directories.log_manager import LogManager
from odradek.log.truncation import truncate_to
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import Compression
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import (
    NOW_MS,
    append,
    batch_of,
    offset_for_timestamp,
    open_log,
    open_manager,
    read_all,
    retain,
)

PRODUCERS = [1, 2]


@dataclass
class Batch:
    """One batch of the list: its records are `values` at `timestamps` from `base_offset` on.

    `committed` is None except for a marker.
    """

    base_offset: int
    epoch: int
    values: list[bytes]
    timestamps: list[int]
    producer_id: int = -1
    base_sequence: int = -1
    committed: bool | None = None

    @property
    def end(self) -> int:
        return self.base_offset + len(self.values)


class LogMachine(RuleBasedStateMachine):
    """The state machine; see the module. `batches` is the list. No record below `flushed` may be
    lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="log-machine-"))
        self.files = FaultyFiles(loses_names=True)
        self.clock = ManualClock(NOW_MS)
        self.config = LogConfig(
            segment_bytes=1_000, index_interval_bytes=100, file_delete_delay_ms=0
        )
        self.batches: list[Batch] = []
        self.first_base = 0
        self.log_start = 0
        self.flushed = 0
        self.epoch = 0
        self.value = 0
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.deleted: list[Batch] = []
        self.manager: LogManager = self.open()

    def open(self) -> LogManager:
        return open_manager(self.root, self.config, self.files, self.clock)

    @property
    def log(self) -> UnifiedLog:
        return open_log(self.manager)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.first_base

    def teardown(self) -> None:
        self.manager.close(clean=False)
        shutil.rmtree(self.root)

    def next_values(self, sizes: list[int]) -> list[bytes]:
        self.value += len(sizes)
        return [b"%06d" % (self.value + at) + b"." * size for at, size in enumerate(sizes)]

    # -- appending ---------------------------------------------------------------------------------

    @initialize(
        interval=st.sampled_from([0, 100, 4096]), segment_bytes=st.sampled_from([800, 2_000])
    )
    def configure(self, interval: int, segment_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=interval, file_delete_delay_ms=0
        )
        self.manager.close(clean=False)
        self.manager = self.open()

    @rule(
        sizes=st.lists(st.integers(0, 120), min_size=1, max_size=5),
        age=st.integers(0, 50),
        compression=st.sampled_from([Compression.NONE, Compression.ZSTD]),
    )
    def append(self, sizes: list[int], age: int, compression: Compression) -> None:
        values = self.next_values(sizes)
        timestamps = [NOW_MS - age + at for at in range(len(values))]
        batch = batch_of(values, timestamps=timestamps, compression=compression)
        info = self.log.append_as_leader(memoryview(batch), self.epoch, now_ms=NOW_MS)
        assert (info.first_offset, info.duplicate) == (self.end, False)
        self.batches.append(Batch(self.end, self.epoch, values, timestamps))

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        batches=st.lists(
            st.lists(st.integers(0, 50), min_size=1, max_size=3), min_size=1, max_size=6
        ),
    )
    def append_idempotent(self, producer_id: int, batches: list[list[int]]) -> None:
        for sizes in batches:
            values, sequence = self.next_values(sizes), self.sequences[producer_id]
            info = append(
                self.log,
                values,
                self.epoch,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            assert (info.first_offset, info.duplicate) == (self.end, False)
            stamps = [NOW_MS] * len(values)
            self.batches.append(Batch(self.end, self.epoch, values, stamps, producer_id, sequence))
            self.sequences[producer_id] = sequence + len(values)

    def sent_by(self, producer_id: int) -> list[Batch]:
        """Return the batches that must be known. Batches deleted before a power cut need not be."""
        first = self.log.segments.bases[0]
        return [b for b in self.batches if b.producer_id == producer_id and b.base_offset >= first]

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def retry_the_last_five(self, producer_id: int) -> None:
        sent = self.sent_by(producer_id)
        end = self.log.log_end_offset
        for batch in sent[-5:]:
            info = append(
                self.log,
                batch.values,
                self.epoch,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=batch.base_sequence,
            )
            assert info.duplicate, f"the batch at {batch.base_offset} was appended twice"
            assert info.first_offset == batch.base_offset
        assert self.log.log_end_offset == end

    @rule(producer_id=st.sampled_from(PRODUCERS), gap=st.integers(1, 100))
    def send_with_a_gap(self, producer_id: int, gap: int) -> None:
        if not self.sent_by(producer_id):
            return
        try:
            append(
                self.log,
                [b"gap"],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=self.sequences[producer_id] + gap,
            )
        except KafkaError as error:
            assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            raise AssertionError("a gap was appended")

    @property
    def deletable(self) -> int:
        """Return the offset up to which records may be deleted."""
        return self.end

    # -- faults ------------------------------------------------------------------------------------

    @rule(space=st.integers(0, 400), sizes=st.lists(st.integers(0, 120), min_size=1, max_size=5))
    def append_to_a_full_disk(self, space: int, sizes: list[int]) -> None:
        values = self.next_values(sizes)
        self.files.space_left = space
        try:
            append(self.log, values, self.epoch)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert not self.log.log_dir.offline
        else:
            timestamps = [NOW_MS] * len(values)
            self.batches.append(Batch(self.end, self.epoch, values, timestamps))
        self.files.space_left = None

    @rule()
    def begin_an_epoch(self) -> None:
        self.epoch += 1

    # -- upkeep ------------------------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        if self.batches:
            self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule()
    def maintain(self) -> None:
        """Flush rolled segments, and write the checkpoints."""
        self.manager.maintain(self.clock.time_ms())
        self.flushed = max(self.flushed, self.log.recovery_point)

    @rule()
    def checkpoint(self) -> None:
        self.manager.checkpoint()

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.deletable), label="offset")
        self.log.advance_high_watermark(self.end)
        self.log.delete_records(offset)
        self.log_start = max(self.log_start, offset)

    @rule()
    def retain(self) -> None:
        self.log.advance_high_watermark(self.end)
        retain(self.manager, self.clock.time_ms())
        self.forget_deleted()

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(0, len(self.batches)), label="batches kept")
        offset = self.batches[keep].base_offset if keep < len(self.batches) else self.end
        if offset < self.log_start:
            return
        if data.draw(st.booleans(), label="uncommitted"):
            # Batches above the high watermark are cut off in place.
            self.log.high_watermark = self.log_start
        truncate_to(self.log, offset)
        self.lose_from(offset)

    # -- stopping and starting ---------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.manager.close()
        self.manager = self.open()
        self.flushed = self.end
        assert self.log.log_end_offset == self.end

    @rule()
    def kill_and_start(self) -> None:
        self.manager.close(clean=False)
        self.manager = self.open()
        self.forget_deleted()
        assert self.log.log_end_offset == self.end

    @rule(seed=st.integers(0, 2**32))
    def power_cut_and_start(self, seed: int) -> None:
        self.manager.close(clean=False)
        self.files.crash(self.root, random.Random(seed))
        self.manager = self.open()
        end = self.log.log_end_offset
        assert self.flushed <= end <= self.end, f"{self.flushed} <= {end} <= {self.end}"
        if self.log.log_start_offset == end:
            # All remaining records were deleted, but the log does not go back before their end.
            self.deleted += self.batches
            self.batches, self.first_base = [], end
        assert end in {self.first_base, *(b.end for b in self.batches)}, "half a batch is left"
        self.lose_from(end)
        self.forget_deleted()
        self.adopt_transactions_of_lost_batches()

    def adopt_transactions_of_lost_batches(self) -> None:
        """Accept the state of transactions whose first segment was lost before it was flushed."""

    def adopt_sequences_of_deleted_batches(self) -> None:
        """Accept that the log may know the producers of deleted batches while the segment exists.

        The known batches must have been sent."""
        for producer_id in PRODUCERS:
            known = self.log.producers.producers.get(producer_id)
            if not self.sequences[producer_id] and known is not None and known.last_sequence >= 0:
                sent = [b for b in self.deleted if b.producer_id == producer_id]
                ends = {b.base_sequence + len(b.values) for b in sent}
                assert known.last_sequence + 1 in ends, f"{known} of {sorted(ends)}"
                self.sequences[producer_id] = known.last_sequence + 1

    def lose_from(self, offset: int) -> None:
        self.batches = [b for b in self.batches if b.base_offset < offset]
        self.first_base = self.first_base if self.batches else offset
        self.flushed = min(self.flushed, offset)
        for producer_id in PRODUCERS:
            sent = [b for b in self.batches if b.producer_id == producer_id]
            last = sent[-1] if sent else None
            self.sequences[producer_id] = last.base_sequence + len(last.values) if last else 0
        self.adopt_sequences_of_deleted_batches()
        self.log_start = min(self.log_start, offset)

    def forget_deleted(self) -> None:
        """Take over the log's start after retention or a crash. It is never below the previous
        one.
        """
        start = self.log.log_start_offset
        assert start <= self.log_start or not self.batches or start <= self.end
        self.log_start = start

    # -- comparing ---------------------------------------------------------------------------------

    @invariant()
    def log_is_the_list(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.log_start, self.end)
        expected = [
            (batch.base_offset + at, value)
            for batch in self.batches
            for at, value in enumerate(batch.values)
            if batch.base_offset + at >= self.log_start
        ]
        found = [(record.offset, record.value) for record in read_all(log)]
        assert found == expected
        assert log.segments.bases == sorted(log.segments.bases)

    @invariant()
    def epochs_end_where_the_next_begins(self) -> None:
        visible = [b for b in self.batches if b.end > self.log_start]
        for batch in visible:
            later = [b for b in visible if b.epoch > batch.epoch]
            end = later[0].base_offset if later else self.end
            assert self.log.end_offset_for_epoch(batch.epoch) == (batch.epoch, end)

    @rule(age=st.integers(-10, 60))
    def look_up_a_timestamp(self, age: int) -> None:
        target = NOW_MS - age
        expected = [
            (timestamp, batch.base_offset + at)
            for batch in self.batches
            for at, timestamp in enumerate(batch.timestamps)
            if timestamp >= target and batch.base_offset + at >= self.log_start
        ]
        found = offset_for_timestamp(self.log, target)
        first = expected[0] if expected else None
        assert (found[:2] if found else None) == first, f"{found} instead of {first}"

    @rule(data=st.data())
    def read_anywhere(self, data: st.DataObject) -> None:
        if self.log_start == self.end:
            return
        offset = data.draw(st.integers(self.log_start, self.end - 1), label="offset")
        assert read_all(self.log, offset, max_bytes=1)[0].offset == offset
