"""Violations that are planted into the objects and files of running brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.log.unified_log import UnifiedLog
from odradek.records.record import Record, build_batch
from odradek.replication.leader_replication import LeaderReplication
from tests.simulation.disk import Inode
from tests.simulation.files import SimulatedFiles
from tests.simulation.invariants import KeyedRecord
from tests.simulation.observer import _position_of
from tests.simulation.planting import Patches
from tests.simulation.scheduler import SECOND
from tests.simulation.simulation import Simulation

SEED = 1
TOPIC = "triple"


class World:
    """Three brokers with clients and without faults, some seconds after the start."""

    def __init__(self) -> None:
        self.simulation = simulation = Simulation(SEED, 3, swarm=False)
        for machine in simulation.machines:
            simulation._start(machine)
        loop = simulation.client_loop
        assert simulation._until_done([loop.create_task(simulation.admin.create_topics())], 30)
        self.tasks = [loop.create_task(client.run()) for client in simulation.clients]
        self.wait(8)
        assert not simulation.violations
        self.topic = simulation.cluster.topics[TOPIC]
        self.key = (self.topic.topic_id, 0)
        state = simulation.models[self.key].state
        assert state is not None
        self.leader, self.followers = state.leader, [*{*state.isr} - {state.leader}]
        assert len(self.followers) == 2

    def wait(self, seconds: float) -> None:
        self.simulation._until_us(self.simulation.scheduler.now_us + int(seconds * SECOND))

    def observer(self, broker: int) -> Any:
        return self.simulation.observers[broker]

    def partition(self, broker: int) -> Any:
        machine = self.simulation.machines[broker - 1]
        return next(
            each
            for each in machine.partitions()
            if each.topic_partition.topic == TOPIC and each.topic_partition.partition == 0
        )

    @property
    def first_violation(self) -> str:
        violations = self.simulation.violations
        return violations[0] if violations else ""


@pytest.fixture
def world() -> Iterator[World]:
    """A world for one test. The seed is printed with a failure."""
    print(f"seed {SEED}")
    found = World()
    yield found
    found.simulation.close()


def _forget_producers(log: Any) -> None:
    log.producers.producers.clear()


def _forget_epochs(log: Any) -> None:
    log.epochs.truncate_from_end(0)


def _lose_flushed_data(log: Any) -> None:
    log.flusher.recovery_point = log.log_end_offset


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_forget_producers, "is not known"),
        (_forget_epochs, "is not in the cache"),
        (_lose_flushed_data, "are not on the disk"),
    ],
)
def test_a_replay_finds_other_state(world: World, change: Callable[[Any], None], text: str) -> None:
    observer = world.observer(world.leader)
    observer.replay()
    assert observer.replays and not world.first_violation
    change(world.partition(world.leader).log)
    observer.step()
    observer.replay()
    assert text in "".join(world.simulation.violations)


def test_a_flush_up_to_a_log_start_inside_of_a_batch_does_not_cover_that_batch() -> None:
    """DeleteRecords has moved the log start to 1, and a follower begins with the batch at 0."""
    first = build_batch([Record(None, b"v")] * 3, base_offset=0)
    data = first + build_batch([Record(None, b"v")], base_offset=3)
    assert _position_of(data, len(data), 1, log_start=1) == 0
    assert _position_of(data, len(data), 1, log_start=0) == len(first), "record 0 was flushed"
    assert _position_of(data, len(data), 3, log_start=3) == len(first)
    assert _position_of(data, len(data), 4, log_start=4) == len(data)


def test_a_log_is_replayed_at_the_end_of_a_truncation_and_at_its_first_step(world: World) -> None:
    observer = world.observer(world.followers[0])
    partition = world.partition(world.followers[0])
    replays = observer.replays
    partition.log.truncations += 1
    observer.step()
    assert observer.replays == replays + 1
    model = observer.models[world.key]
    model.seen = model.seen._replace(incarnation=0)
    _forget_producers(partition.log)
    observer._observe(partition, observer.machine.process.number)
    assert observer.replays == replays + 2
    assert "is not known" in world.first_violation


def _lower_high_watermark(partition: Any) -> None:
    partition.log.high_watermark -= 1


def _cut_the_log(partition: Any) -> None:
    partition.log.log_end_offset = partition.log.high_watermark = 0


def _commit_too_much(partition: Any) -> None:
    partition.log.log_end_offset += 3
    partition.log.high_watermark = partition.log.log_end_offset


def _lower_epoch(partition: Any) -> None:
    partition.leader_epoch -= 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_lower_high_watermark, "high watermark of a leader fell"),
        (_cut_the_log, "a leader truncated its log"),
        (_commit_too_much, "of the ISR has reached"),
        (_lower_epoch, "leader epoch fell"),
    ],
)
def test_a_step_finds_a_wrong_leader(
    world: World, change: Callable[[Any], None], text: str
) -> None:
    change(world.partition(world.leader))
    world.observer(world.leader).step()
    assert text in "".join(world.simulation.violations)


def test_a_step_finds_a_member_without_committed_records(world: World) -> None:
    log = world.partition(world.followers[0]).log
    log.truncations += 1
    log.log_end_offset = log.high_watermark = log.flusher.recovery_point = 0
    world.observer(world.followers[0]).step()
    assert "records below" in world.first_violation


def _restart_with_an_empty_log(world: World, how: str) -> Any:
    """End the process of a follower, and begin another one. The controller does not know it yet."""
    observer = world.observer(world.followers[0])
    log = world.partition(world.followers[0]).log
    observer.ended(how)
    observer.machine.process.number += 1
    log.log_end_offset = log.high_watermark = log.flusher.recovery_point = 0
    return observer


def test_e4_a_power_cut_counts_when_the_controller_registers_the_next_process(
    world: World,
) -> None:
    """Seed 1795666715010: until then, the replica may be in the ELR without its records."""
    reached = world.observer(world.followers[0]).reached(world.key)
    observer = _restart_with_an_empty_log(world, "power")
    assert reached and observer.kept(world.key) is None
    observer.step()
    log = world.partition(world.followers[0]).log
    log.truncations += 1
    observer.step()
    assert observer.reached(world.key) == reached
    observer.registered(observer.machine.process.number - 1)
    assert observer.reached(world.key) == reached, "the former process"
    observer.registered(observer.machine.process.number)
    assert observer.reached(world.key) == 0
    assert observer.kept(world.key).seen.log_end == 0


def test_e4_a_sigkill_takes_no_record_of_a_member_that_does_not_run(world: World) -> None:
    observer = _restart_with_an_empty_log(world, "kill")
    assert observer.kept(world.key) is not None
    observer.step()
    assert observer.reached(world.key) == 0
    assert "log end 0 after kill" in world.first_violation
    assert "the log of member" in "".join(world.simulation.violations)


def test_records_that_a_leader_commits_before_its_directory_fails_are_committed(
    world: World,
) -> None:
    observer, shared = world.observer(world.leader), world.simulation.models[world.key]
    partition, end = world.partition(world.leader), shared.high_watermark
    earlier = shared.committed.ends[-2]
    shared.high_watermark = earlier
    shared.committed.truncate(earlier)
    model = observer.models[world.key]
    model.seen = model.seen._replace(high_watermark=earlier)
    observer.machine.disk.faults_seen = True
    _take_offline(partition)
    observer.step()
    assert not world.first_violation
    assert shared.high_watermark == end
    assert shared.committed_at(world.simulation.scheduler.steps) == end


def _take_offline(partition: Any) -> None:
    partition.log.log_dir.offline = True
    partition.error = ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_directory_goes_offline_only_after_a_fault_of_the_disk(world: World) -> None:
    observer = world.observer(world.followers[0])
    partition = world.partition(world.followers[0])
    _take_offline(partition)
    observer.step()
    assert "is offline, but no call of the disk has failed" in world.first_violation


def _append_without_flush(append: Callable[..., Any]) -> Callable[..., Any]:
    def instead(*arguments: Any, **named: Any) -> Any:
        info = append(*arguments, **named)
        info.must_flush = False
        return info

    return instead


@pytest.mark.parametrize("method", ["append_as_leader", "append_as_follower"])
def test_committed_records_of_a_flushing_topic_are_on_the_disks_of_the_isr(
    world: World, method: str
) -> None:
    """Without the flush, a leader counts its records and a follower fetches from their end."""
    assert world.simulation.counts["flushes checked"]
    patches = Patches()
    patches.replace(UnifiedLog, method, _append_without_flush(getattr(UnifiedLog, method)))
    try:
        world.wait(10)
    finally:
        patches.undo()
    assert not patches.uncalled
    assert "of the ISR has not flushed them" in world.first_violation


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_truncation_ends_when_the_disk_has_no_removed_record(
    world: World, *, is_synced: bool
) -> None:
    """The file has lost a byte, and the disk has it until the next sync."""
    log = world.partition(world.followers[0]).log
    inode = world.observer(world.followers[0])._inode(log.segments.active.file.path)
    inode.sync()
    assert inode.data
    inode.truncate(len(inode.data) - 1)
    if is_synced:
        inode.sync()
    log.truncations += 1
    world.observer(world.followers[0]).step()
    found = "".join(world.simulation.violations)
    assert ("has ended, but the disk has" in found) is not is_synced


def test_a_truncation_may_leave_an_incomplete_batch_on_the_disk(world: World) -> None:
    """A recovery has removed it without a sync, and a later one would remove it again."""
    log = world.partition(world.followers[0]).log
    inode = world.observer(world.followers[0])._inode(log.segments.active.file.path)
    inode.durable[:] = inode.data + inode.data[:20]
    log.truncations += 1
    world.observer(world.followers[0]).step()
    assert "has ended, but the disk has" not in "".join(world.simulation.violations)
    inode.durable[:] = inode.data + inode.data
    log.truncations += 1
    world.observer(world.followers[0]).step()
    assert "has ended, but the disk has" in "".join(world.simulation.violations)


def test_a_truncation_ends_when_the_disk_has_no_name_of_a_removed_file(world: World) -> None:
    observer = world.observer(world.followers[0])
    log = world.partition(world.followers[0]).log
    observer.machine.disk.directory(log.directory).durable[f"{10**6:020d}.log"] = Inode()
    log.truncations += 1
    observer.step()
    assert f"has ended, but the disk has {10**6:020d}.log" in world.first_violation


def test_a_compacted_log_without_its_newest_records_is_found(world: World) -> None:
    """The partition is taken for a compacted one, and its model gets another newest record."""
    observer, shared = world.observer(world.followers[0]), world.simulation.models[world.key]
    partition = world.partition(world.followers[0])
    observer.models[world.key].compacted = shared.is_compacted = True
    end = shared.high_watermark
    shared.newest.end = end
    world.wait(20)
    assert shared.newest.end == shared.high_watermark > end
    observer._replay(partition)
    assert world.simulation.counts["compacted logs checked"] and not world.first_violation
    assert observer.compacted_replays
    shared.newest.records[b"key"] = KeyedRecord(partition.log.high_watermark - 1, b"key", b"other")
    observer._replay(partition)
    assert "the newest record of key b'key'" in world.first_violation


@pytest.mark.parametrize("state", ["producers", "epochs"])
def test_a_compacted_log_without_the_state_of_its_batches_is_found(
    world: World, state: str
) -> None:
    observer, partition = world.observer(world.leader), world.partition(world.leader)
    observer.models[world.key].compacted = True
    observer._replay(partition)
    assert observer.compacted_replays and not world.first_violation
    if state == "producers":
        partition.log.producers.producers.clear()
    else:
        partition.log.epochs.truncate_from_end(0)
    observer._replay(partition)
    expected = "producer " if state == "producers" else "and the cache is []"
    assert expected in world.first_violation


def test_a_step_finds_two_leaders_of_an_epoch(world: World) -> None:
    follower = world.partition(world.followers[0])
    follower.error = ErrorCode.NONE
    world.observer(world.followers[0]).step()
    assert "lead in epoch" in world.first_violation


def test_a_step_finds_a_maximal_isr_without_a_member(world: World) -> None:
    state = world.partition(world.leader).replication.state
    state.isr = (world.leader,)
    state.partition_epoch += 1  # a step compares it
    world.observer(world.leader).step()
    assert "is not in the maximal ISR" in world.first_violation


def test_other_bytes_below_the_high_watermark_are_found(world: World) -> None:
    follower = world.observer(world.followers[0])
    chain = follower.models[world.key].chain
    chain.hashes[-1] = b"other"
    world.wait(3)
    assert "has other records below" in world.first_violation


def test_an_fsync_that_is_repeated_after_an_error_is_found(world: World) -> None:
    """The second call succeeds, and the page cache has dropped the pages."""
    fsync = vars(SimulatedFiles)["fsync"]

    def repeated(files: SimulatedFiles, fd: int) -> None:
        try:
            fsync(files, fd)
        except OSError:
            fsync(files, fd)

    patches = Patches()
    patches.replace(SimulatedFiles, "fsync", repeated)
    try:
        for _ in range(20):
            world.simulation.machines[world.leader - 1].disk.fail_fsyncs = 1
            world.wait(0.5)
    finally:
        patches.undo()
    # The disk of a follower or of the leader lacks the records. The first finding is reported.
    found = world.first_violation
    assert "has not flushed them" in found or "are not on the disk" in found


def test_a_restart_after_a_failed_fsync_may_lose_what_was_not_flushed(world: World) -> None:
    machine, counts = world.simulation.machines[world.leader - 1], world.simulation.counts
    rounds = 0
    while counts["ends that drop pages of failed fsyncs"] < 2:
        rounds += 1
        assert rounds <= 60, "no fsync has failed that had pages to write"
        machine.disk.fail_fsyncs = 1
        world.wait(1)
        machine.kill()
        world.wait(6)
    assert not world.first_violation


def test_a_segment_that_replaces_one_with_the_same_records_is_on_the_disk(world: World) -> None:
    """A kill may interrupt a truncation before the rename of the shorter copy is synced."""
    observer, log = world.observer(world.leader), world.partition(world.leader).log
    log.flush()
    path = log.segments.active.file.path
    directory, name = observer.machine.disk.parent(path)
    old, copy = directory.names[name], Inode()
    copy.write(old.data, 0)
    copy.sync()
    directory.names[name] = copy
    observer.step()
    observer.replay()
    assert not world.first_violation
    old.durable[0] ^= 1
    observer.replay()
    assert f"the name of {path} is not on the disk" in world.first_violation


def test_other_images_of_one_offset_are_found(world: World) -> None:
    first, other = world.simulation.machines[:2]
    assert first.process is not None and other.process is not None
    image = replace(other.process.broker.services.image(), offset=9_999)
    world.simulation.cluster.image_of(first, image)
    brokers = image.brokers.without(*[*image.brokers][:1])
    world.simulation.cluster.image_of(other, replace(image, brokers=brokers))
    assert "have other images of offset 9999" in world.first_violation


@pytest.mark.parametrize(("epoch", "offset"), [(0, -1), (-1, 0), (1, -1), (-1, 1)])
def test_metadata_that_goes_back_is_found(world: World, epoch: int, offset: int) -> None:
    """A newer controller epoch does not excuse an older metadata offset."""
    machine = world.simulation.machines[0]
    assert machine.process is not None
    image = machine.process.broker.services.image()
    world.simulation.cluster.image_of(
        machine,
        replace(
            image,
            controller_epoch=image.controller_epoch + epoch,
            offset=image.offset + offset,
        ),
    )
    assert "metadata went back" in world.first_violation


def test_an_acknowledgement_before_the_commit_is_found(world: World) -> None:
    """acks=all is answered when the leader has appended, and the followers fetch soon after."""
    patches = Patches()
    answered = lambda *_, **__: ErrorCode.NONE  # noqa: E731
    patches.replace(LeaderReplication, "acknowledgement", answered)
    try:
        world.wait(10)
    finally:
        patches.undo()
    assert not patches.uncalled
    assert "were committed when the broker sent the response" in world.first_violation
