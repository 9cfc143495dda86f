"""The first appends and epochs of a partition, with kills at each step: no position gets lost.

A consumer that has read a record returns with the offset after it and the leader epoch of the
record. After any kill or stop of the broker, no response may send it back. librdkafka goes to the
beginning (``auto.offset.reset=earliest``) after OFFSET_OUT_OF_RANGE, and if OffsetForLeaderEpoch
returns no end offset or one below the position.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.log.directories.log_manager import LogManager
from odradek.log.log_read import LogReadInfo
from odradek.replication.fetch_data import ColdRead, FetchIsolation, FetchPartitionData
from odradek.replication.partition import Partition
from tests.helpers.crashing_files import Crashed, CrashingFiles
from tests.helpers.led_partitions import led
from tests.log.builders import NOW_MS, TOPIC_ID, TP, batch_of

REPLICAS = (1,)
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)


class Consumers:
    """The positions of consumers, as (offset, leader epoch), and checks of the responses."""

    def __init__(self) -> None:
        self.positions: set[tuple[int, int]] = set()

    def ask_for_the_beginning(self, partition: Partition) -> None:
        """Take the position of a ListOffsets response for the earliest offset."""
        self.positions.add((partition.log_start_offset, partition.earliest_epoch))

    def read(self, offset: int, epoch: int) -> None:
        self.positions.add((offset + 1, epoch))

    def check(self, partition: Partition) -> None:
        for offset, epoch in self.positions:
            found, end = partition.end_offset_for_epoch(epoch)
            assert found >= 0, f"the end of epoch {epoch} is undefined"
            assert end >= offset, f"epoch {epoch} ends at {end}, before {offset}"
            try:
                data = read(partition, offset, epoch)
            except ColdRead as cold:
                data = read(partition, offset, epoch, cold.read)
            assert data.diverging_epoch == -1


def read(
    partition: Partition,
    offset: int,
    epoch: int,
    cold_result: Callable[[], LogReadInfo] | None = None,
) -> FetchPartitionData:
    return partition.read(
        offset,
        10**6,
        True,
        FetchIsolation.HIGH_WATERMARK,
        partition.leader_epoch,
        last_fetched_epoch=epoch,
        cold_result=cold_result,
    )


class Broker:
    """One life after the other of a broker with one partition. Each has the next leader epoch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = CrashingFiles()
        self.epoch = -1
        self.consumers = Consumers()
        self.manager: LogManager
        self.partition: Partition

    def start(self, crash_at: int | None) -> bool:
        """Return whether the broker was killed during the start."""
        self.epoch += 1
        self.files.crash_at = crash_at
        self.manager = LogManager([str(self.root)], CONFIG, ManualClock(NOW_MS), files=self.files)
        try:
            self.manager.load("cluster", 1)
        except Crashed:
            self.files.crash_at = None
            self.manager.unlock()
            return True
        self.files.crash_at = None
        log = self.manager.create(TP, TOPIC_ID, CONFIG)
        self.partition = Partition(TP, TOPIC_ID, log)
        self.partition.become_leader(led(self.epoch, REPLICAS, REPLICAS))
        self.consumers.check(self.partition)
        self.consumers.ask_for_the_beginning(self.partition)
        return False

    def append(self, count: int, crash_at: int | None) -> bool:
        """Append batches. Return whether the broker was killed."""
        self.files.crash_at = crash_at
        try:
            for _ in range(count):
                info = self.partition.append(memoryview(batch_of([b"x" * 20] * 2)), 1, NOW_MS)
                self.consumers.read(info.last_offset, self.epoch)
        except Crashed:
            return True
        finally:
            self.files.crash_at = None
        self.consumers.check(self.partition)
        return False

    def stop(self, clean: bool, crash_at: int | None) -> None:
        """Stop. With `crash_at` there is no time to sync, and the broker is killed."""
        self.files.crash_at = crash_at if clean else None
        try:
            self.manager.close(clean=clean, within_ms=10_000 if crash_at is None else 0)
        except Crashed:
            self.files.crash_at = None
            self.manager.close(clean=False)
        self.files.crash_at = None


crashes = st.none() | st.integers(0, 12)
lives = st.lists(
    st.tuples(crashes, st.integers(0, 8), crashes, st.booleans(), crashes), min_size=1, max_size=6
)


@settings(max_examples=150, deadline=None)
@given(lives=lives)
def test_no_position_is_lost_by_kills_and_stops(
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[tuple[int | None, int, int | None, bool, int | None]],
) -> None:
    """A life: killed in the start at a change of files, appends and a kill, stop and a kill."""
    broker = Broker(tmp_path_factory.mktemp("lives"))
    broker.start(None)
    for crash_in_start, count, crash_in_append, clean, crash_in_stop in lives:
        killed = broker.append(count, crash_in_append)
        broker.stop(clean and not killed, crash_in_stop)
        while broker.start(crash_in_start):
            crash_in_start = None
    broker.stop(False, None)


@pytest.mark.parametrize("step", range(14))
def test_no_position_is_lost_by_a_kill_at_a_step_of_the_first_append(
    tmp_path: Path, step: int
) -> None:
    broker = Broker(tmp_path)
    broker.start(None)
    broker.append(1, step)
    for _ in range(2):
        broker.stop(False, None)
        broker.start(None)
        broker.append(1, None)
    broker.stop(False, None)
