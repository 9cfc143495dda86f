"""Any history of a compacted log, compared with an oracle: the last committed value of each key.

A history has ordinary, idempotent and transactional batches, tombstones and rolls. The cleaner
passes at any time with maps of any size. The log is stopped or killed, and snapshots are lost. A
reader of committed records always ends with the same dictionary, and reads no record that was not
written. Every producer continues with its next sequence.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.log.cleaner.selection import Budget
from odradek.log.state.verification import NOT_VERIFIED, Origin
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import Compression, parse_header
from odradek.records.control import read_marker
from odradek.records.record import Record, build_batch, iter_batches, iter_records
from tests.log.builders import NOW_MS, TP, append_marker, open_log, open_manager
from tests.log.cleaner.running import compact

RETENTION_MS = 100
Pair = tuple[bytes, bytes | None]

keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.one_of(st.none(), st.binary(max_size=3))
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=4)
codecs = st.sampled_from(list(Compression))
producers = st.sampled_from([1, 2])
steps = st.one_of(
    st.tuples(st.just("plain"), pairs, codecs),
    st.tuples(st.just("idempotent"), pairs, codecs),
    st.tuples(st.just("transactional"), producers, pairs, codecs),
    st.tuples(st.just("transactional"), producers, pairs, codecs),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact"), st.sampled_from([0, 1, 200]), st.sampled_from([3, 60, 1000])),
    st.tuples(st.just("compact"), st.sampled_from([0, 1, 200]), st.sampled_from([3, 60, 1000])),
    st.tuples(st.just("reopen"), st.booleans(), st.booleans()),
)


def committed(log: UnifiedLog) -> list[Record]:
    """Return the records that a consumer with isolation.level=read_committed reads."""
    end = log.last_stable_offset
    upcoming = sorted(log.segments.aborted_transactions(0, end), key=lambda it: it[1], reverse=True)
    aborted: set[int] = set()
    found: list[Record] = []
    position = log.log_start_offset
    while (region := log.read(position, 1 << 20, end, True).region) is not None:
        data = region.read()
        region.close()
        for batch in iter_batches(data):
            header = parse_header(batch)
            position = header.last_offset + 1
            while upcoming and upcoming[-1][1] <= header.last_offset:
                aborted.add(upcoming.pop()[0])
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and not marker.committed:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += iter_records(batch)
    return found


def last_values(records: list[tuple[bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for key, value in records:
        assert key is not None
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


class History:
    """A log and the records that were written to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = LogConfig(
            cleanup_compact=True,
            cleanup_delete=False,
            delete_retention_ms=RETENTION_MS,
            segment_bytes=600,
            index_interval_bytes=100,
            file_delete_delay_ms=0,
        )
        self.manager = open_manager(root, self.config)
        self.written: dict[int, tuple[Pair, int]] = {}
        """Offset -> key and value, and the number of its transaction (0: none)."""
        self.transactions = 0
        self.open: dict[int, int] = {}
        self.outcomes: dict[int, bool] = {0: True}
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.now_ms = NOW_MS

    @property
    def log(self) -> UnifiedLog:
        return open_log(self.manager)

    def write(self, written: list[Pair], codec: Compression, producer: int, txn: int) -> None:
        batch = build_batch(
            [Record(key, value, self.now_ms) for key, value in written],
            timestamp_ms=self.now_ms,
            compression=codec,
            producer_id=producer or -1,
            producer_epoch=0 if producer else -1,
            base_sequence=self.sequences[producer] if producer else -1,
            transactional=bool(txn),
        )
        origin = Origin(NOT_VERIFIED) if txn else None
        info = self.log.append_as_leader(memoryview(batch), 0, now_ms=self.now_ms, origin=origin)
        assert not info.duplicate
        for at, pair in enumerate(written):
            self.written[info.first_offset + at] = pair, txn
        if producer:
            self.sequences[producer] += len(written)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def plain(self, written: list[Pair], codec: Compression) -> None:
        self.write(written, codec, 0, 0)

    def idempotent(self, written: list[Pair], codec: Compression) -> None:
        self.write(written, codec, 3, 0)

    def transactional(self, producer: int, written: list[Pair], codec: Compression) -> None:
        if producer not in self.open:
            self.transactions += 1
            self.open[producer] = self.transactions
        self.write(written, codec, producer, self.open[producer])

    def end(self, producer: int, is_commit: bool) -> None:
        txn = self.open.pop(producer, None)
        if txn is not None:
            append_marker(self.log, producer, committed=is_commit)
            self.log.advance_high_watermark(self.log.log_end_offset)
            self.outcomes[txn] = is_commit

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def compact(self, advance_ms: int, slots: int) -> None:
        self.now_ms += advance_ms
        compact(self.manager, self.log, now_ms=self.now_ms, budget=Budget(slots * 16))

    def reopen(self, clean: bool, lose_snapshots: bool) -> None:
        self.manager.close(clean=clean)
        if lose_snapshots:
            for path in [*self.root.rglob("*.snapshot"), *self.root.rglob("*.odradek-window")]:
                path.unlink()
        self.manager = open_manager(self.root, self.config)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def check(self) -> None:
        log = self.log
        end = log.last_stable_offset
        decided = [
            pair
            for offset, (pair, txn) in sorted(self.written.items())
            if offset < end and self.outcomes.get(txn)
        ]
        found = committed(log)
        assert last_values([(r.key, r.value) for r in found]) == last_values(decided)
        for record in found:
            assert self.written[record.offset][0] == (record.key, record.value)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        for producer, following in self.sequences.items():
            if following:
                assert log.producers.producers[producer].last_sequence == following - 1
        assert set(log.producers.ongoing.values()) == set(self.open)

    def check_minimal(self) -> None:
        """Run two passes long afterwards: no removable record remains."""
        for producer in list(self.open):
            self.end(producer, True)
        for _ in range(2):
            self.plain([(b"e", b"")], Compression.NONE)
            for _ in range(20):
                self.compact(0, 1000)
            self.compact(10 * RETENTION_MS, 1000)
        self.check()
        left = [(r.key, r.value) for r in committed(self.log)]
        assert len(left) == len(last_values(left)), "a value that is superseded, or a tombstone"


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=30))
def test_a_reader_of_committed_records_always_ends_with_the_same_values(history: list) -> None:
    root = Path(tempfile.mkdtemp(prefix="compaction-"))
    subject = History(root)
    try:
        for name, *arguments in history:
            getattr(subject, name)(*arguments)
            subject.check()
        subject.check_minimal()
        subject.reopen(False, True)
        subject.check()
        assert subject.manager.get(TP) is not None
    finally:
        subject.manager.close(clean=False)
        shutil.rmtree(root)
