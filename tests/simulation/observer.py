"""The observer of one broker: it applies the invariants to the partitions that a step has changed.

It reads the objects of the broker, and the bytes of segments on the simulated disk. It never calls
code of the broker that changes state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from odradek.errors import ErrorCode
from odradek.records.batch import HEADER_BYTES, BatchHeader, crc_is_valid, parse_header
from odradek.records.record import iter_records
from tests.simulation.coordinator_model import FAMILIES
from tests.simulation.disk import Directory, Inode
from tests.simulation.invariants import (
    DROPPED,
    LOSSES,
    Chain,
    KeyedRecord,
    Observation,
    PartitionModel,
    Producer,
    ReplicaModel,
    check_bounds,
    check_compacted_epochs,
    check_compacted_producers,
    check_epochs,
    check_producers,
    check_recovery,
    check_step,
    check_truncation,
    replay_producers,
)
from tests.simulation.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.cluster_model import ClusterModel

PartitionKey = tuple[bytes, int]
REPLAY_STEPS = 1_000
_state_of = attrgetter(
    "leader_epoch",
    "log.log_end_offset",
    "log.high_watermark",
    "log.log_start_offset",
    "log.flusher.recovery_point",
    "error",
    "log.truncations",
)
"""The values of a partition that rules are about. They are compared after each step of a broker."""
_isr_of = attrgetter("partition_epoch", "pending")
"""The same for the ISR of a leader: committed and proposed."""


@dataclass(slots=True)
class _Cursor:
    """Where the next batch of a log is read: base offset of the segment, and position."""

    base: int = -1
    position: int = 0


@dataclass(slots=True)
class _Hint:
    """The position in a file after the batches below an offset, which were read before."""

    inode: Inode
    truncations: int
    offset: int
    position: int

    def applies(self, inode: Inode, truncations: int, start: int) -> bool:
        """Return whether the batches from `start` on follow the position in this file."""
        is_same = self.inode is inode and self.truncations == truncations
        return is_same and self.offset <= start


class Observer:
    """The models of all partitions of one machine.

    Args:
        report: Takes each violation.
        partitions: The models over all replicas, shared by the observers of all machines.
        cluster: The rules of the cluster that the broker belongs to. Default: a single broker.
    """

    def __init__(
        self,
        machine: Machine,
        report: Callable[[str], None],
        partitions: dict[PartitionKey, PartitionModel],
        cluster: ClusterModel | None = None,
    ) -> None:
        self.machine = machine
        self._cluster = cluster
        self.models: dict[PartitionKey, ReplicaModel] = {}
        self.checks = 0
        self.replays = 0
        self.compacted_replays = 0
        self.truncations = 0
        self.cuts = 0
        self._report = report
        self._partitions = partitions
        self._cursors: dict[PartitionKey, _Cursor] = {}
        self._hints: dict[PartitionKey, _Hint] = {}
        self._coordinators = None if cluster is None else cluster.coordinator_observer(machine)
        self._image: Any = None
        self._watched: list[Any] = []
        self._states: list[Any] = []
        self._led: list[tuple[PartitionKey, Any]] = []
        self._isrs: list[Any] = []
        self._steps = 0

    # -- called by the simulation ------------------------------------------------------------------

    def step(self) -> None:
        """Check the partitions that the last step of the broker has changed."""
        process = self.machine.process
        if process is None or process.loop.stopped:
            return
        services = getattr(process.broker, "services", None)
        if services is None:
            return
        if self._cluster is not None:
            image = services.image()
            if image is not self._image:
                self._image = image
                self._cluster.image_of(self.machine, image)
        partitions = [*services.replica_manager._partitions.values()]
        states = [*map(_state_of, partitions)]
        if states != self._states or partitions != self._watched:
            self._changed(partitions, states, process.number)
        if self._cluster is not None:
            isrs = [_isr_of(state) for _, state in self._led]
            if isrs != self._isrs:
                self._isrs_changed(isrs)
        if self._coordinators is not None:
            self._coordinators.step(services.coordinators)
        self._steps += 1
        if self._steps % REPLAY_STEPS == 0:
            self.replay()

    def _changed(self, partitions: list[Any], states: list[Any], incarnation: int) -> None:
        """Observe the partitions whose state differs from that after the step before."""
        before = dict(zip(self._watched, self._states, strict=True))
        self._watched, self._states = partitions, states
        for partition, state in zip(partitions, states, strict=True):
            if before.get(partition) != state:
                self._observe(partition, incarnation)
        self._led = [
            (key_of(partition), partition.replication.state)
            for partition in partitions
            if partition.replication is not None
        ]
        self._isrs = [_isr_of(state) for _, state in self._led]

    def _isrs_changed(self, isrs: list[Any]) -> None:
        """Check the partitions whose ISR has changed in the step, and nothing else."""
        assert self._cluster is not None
        changed = [at for at, isr in enumerate(isrs) if isr != self._isrs[at]]
        self._isrs = isrs
        for at in changed:
            key, state = self._led[at]
            if state.pending is not None and not state.pending.expands:
                self._cluster.shrinks_by_lag += 1  # the controller removes members of dead brokers
            if key in self._partitions:
                self._cluster.check(key)

    def ended(self, how: str) -> None:
        """The process of the machine has ended."""
        dropped = {directory_of(path) for path in self.machine.dropped}
        for model in self.models.values():
            if model.directory in dropped and how != "power":
                model.ended = DROPPED
            elif model.ended not in LOSSES:
                # A failed start changes files as a process does that is killed.
                model.ended = "kill" if how == "failed" else how
            model.is_unclean |= model.ended in LOSSES
        self._watched, self._states, self._image = [], [], None
        self._led, self._isrs = [], []
        self._cursors.clear()
        self._hints.clear()
        if self._coordinators is not None:
            self._coordinators.ended()

    def promised(self, key: PartitionKey, end: int) -> None:
        """Records below `end` were acknowledged, or read, in a topic that flushes each record."""
        model = self.models.get(key)
        if model is not None:
            model.floor = max(model.floor, end)

    def replica(self, key: PartitionKey) -> ReplicaModel | None:
        """Return the model of a replica if the running process was observed to have it."""
        model, process = self.models.get(key), self.machine.process
        if model is None or model.seen is None or process is None:
            return None
        return model if model.seen.incarnation == process.number else None

    def kept(self, key: PartitionKey) -> ReplicaModel | None:
        """Return the model of a replica whose log counts for ISR and ELR, also if it does not run.

        A controller that still knows the process before a power cut does not know of lost records.
        """
        model = self.models.get(key)
        return None if model is None or model.seen is None or model.is_unclean else model

    def registered(self, process: int) -> None:
        """The controller knows a process. Records of earlier processes do not count."""
        running = self.machine.process
        if running is None or running.number != process:
            return  # it has ended, and the controller does not know yet how
        for model in self.models.values():
            if model.seen is None or (model.is_unclean and model.seen.incarnation != process):
                continue  # it has not read its log again after the power cut
            model.reached, model.is_unclean = model.seen.log_end, False

    def reached(self, key: PartitionKey) -> int:
        """Return the largest log end of a replica, which may not run (`ReplicaModel.reached`)."""
        model = self.models.get(key)
        return 0 if model is None else model.reached

    def maximal_isr(self, key: PartitionKey, leader_epoch: int) -> Collection[int] | None:
        """Return the maximal ISR of a partition that the broker leads in this epoch, or None."""
        for partition in self.machine.partitions():
            if partition.leader_epoch == leader_epoch and key_of(partition) == key:
                return maximal_isr_of(partition)
        return None

    def undecided(self, topics: Collection[str]) -> Iterator[str]:
        """Yield the partitions of topics in which a transaction is open.

        A transaction whose marker an unclean election has removed does not count.
        """
        for partition in self.machine.partitions():
            topic, log = partition.topic_partition.topic, partition.log
            if topic not in topics or log.last_stable_offset == log.high_watermark:
                continue
            producers = log.producers
            ongoing = {
                offset: producer_id
                for offset, producer_id in producers.ongoing.items()
                if not self._has_lost_marker(partition, offset, producer_id)
            }
            if ongoing or producers.unreplicated:
                yield f"{self.machine.host} {partition.topic_partition}: {ongoing}"

    def _has_lost_marker(self, partition: Any, offset: int, producer_id: int) -> bool:
        """Return whether the marker of the transaction that begins at `offset` was lost."""
        model = self.models.get(key_of(partition))
        if self._cluster is None or model is None:
            return False
        at = bisect_right(model.chain.ends, offset)
        return at < len(model.chain.headers) and self._cluster.coordinators.has_lost_marker(
            *partition.topic_partition, producer_id, model.chain.headers[at]
        )

    def unflushed_below(self, key: PartitionKey, end: int) -> str:
        """Return the first segment of a running replica with unflushed records below `end`.

        The result is empty if there is none, or if the replica has no log to compare.
        """
        for partition in self.machine.partitions():
            if key_of(partition) == key:
                log = partition.log
                if not (log.log_dir.offline or log.is_truncating or log.closed):
                    return next(self._unflushed(log, end), "")
        return ""

    # -- observations ------------------------------------------------------------------------------

    def _observe(self, partition: Any, incarnation: int) -> None:
        log = partition.log
        key = key_of(partition)
        if partition.error is ErrorCode.KAFKA_STORAGE_ERROR:
            self._directory_failed(key, partition, incarnation)
            return
        if log.is_truncating:
            self._truncating(key, log)
            return
        now = Observation(
            incarnation,
            partition.error is ErrorCode.NONE,
            partition.leader_epoch,
            log.log_start_offset,
            log.high_watermark,
            log.log_end_offset,
            log.flusher.recovery_point,
        )
        self.checks += 1
        model = self.models.get(key)
        if model is None:
            model = ReplicaModel(f"{self.machine.host} {partition.topic_partition}")
            model.directory = log.directory
            self.models[key] = model
        shared = self._partitions.setdefault(key, PartitionModel())
        problems = [*check_bounds(now)]
        model.compacted |= log.config.cleanup_compact
        shared.is_compacted |= model.compacted
        before = model.seen
        is_new = before is None or before.incarnation != incarnation
        is_read_again = is_new or log.truncations != model.truncations
        if is_new:
            problems += self._recovered(key, model, log, now)
        else:
            problems += self._continued(key, model, log, now)
        problems += shared.observe(self.machine.node_id, now)
        committed = shared.high_watermark
        if self._cluster is not None:
            elected = now.is_leader and not (before and _is_same_leader(before, now))
            led = (
                before is not None
                and before.is_leader
                and before.incarnation == incarnation
                and before.leader_epoch >= shared.unclean_epoch
            )
            problems += shared.follow(
                self.machine.node_id,
                now,
                model.chain,
                elected=elected,
                led=led,
                step=self.machine.scheduler.steps,
            )
        model.seen = now
        model.reached = max(model.reached, now.log_end)
        if model.removed is not None and now.flushed > model.removed_from:
            model.removed = None
        model.floor = max(model.floor, now.flushed)
        model.log_start_max = max(model.log_start_max, now.log_start)
        model.deletes = log.config.retention_ms >= 0 or log.config.retention_bytes >= 0
        for problem in problems:
            self._report(f"{model.name}: {problem}")
        self._check_cluster(key, partition, committed)
        if is_read_again:
            self._replay(partition)

    def _check_cluster(self, key: PartitionKey, partition: Any, committed: int) -> None:
        """Check the rules over all replicas. Records below `committed` were committed before."""
        if self._cluster is None:
            return
        self._cluster.check(key)
        shared = self._partitions[key]
        if shared.high_watermark > committed:
            self._follow_committed(key, partition, committed)
            self._cluster.check_flushed(key, partition.topic_partition.topic)

    def _follow_committed(self, key: PartitionKey, partition: Any, committed: int) -> None:
        """Read the batches above `committed` that were committed in this step, where it matters."""
        assert self._cluster is not None
        shared, coordinators = self._partitions[key], self._cluster.coordinators
        topic, number = partition.topic_partition
        end, log = shared.high_watermark, partition.log
        if shared.is_compacted:
            start = shared.newest.end
            if topic in FAMILIES:
                start = min(start, coordinators.end(topic, number, shared))
            batches = [*self._batches(key, log, start, end)]
            shared.newest.add(_keyed(batches), end)
            if topic in FAMILIES:
                coordinators.committed(topic, number, shared, batches)
            return
        new = shared.committed.headers[bisect_right(shared.committed.ends, committed) :]
        if any(header.is_control for header in new):
            for header, batch in self._batches(key, log, new[0].base_offset, end):
                if header.is_control:
                    coordinators.marker(topic, number, header, batch)

    def _batches(
        self, key: PartitionKey, log: Any, start: int, end: int
    ) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the batches from `start` to `end`. Do not read those again that come before."""
        hint = self._hints.get(key)
        segments = list(log.segments)
        first = bisect_right([segment.base_offset for segment in segments], start) - 1
        for segment in segments[max(first, 0) :]:
            inode = self._inode(segment.file.path)
            if inode is None:
                return
            data, position, offset = inode.data, 0, segment.base_offset
            if hint is not None and hint.applies(inode, log.truncations, start):
                position = hint.position
            while position + HEADER_BYTES <= len(data):
                header = parse_header(data, position)
                after = position + header.size_bytes
                if after > len(data) or header.base_offset >= end:
                    break
                if header.last_offset >= start:
                    yield header, bytes(data[position:after])
                position, offset = after, header.last_offset + 1
            self._hints[key] = _Hint(inode, log.truncations, offset, position)

    def _directory_failed(self, key: PartitionKey, partition: Any, incarnation: int) -> None:
        """The log directory has failed in this step. A leader may have committed records before."""
        log = partition.log
        if log.log_dir.offline and not self.machine.disk.faults_seen:
            self._report(
                f"{self.machine.host} {partition.topic_partition}: the log directory is "
                "offline, but no call of the disk has failed"
            )
        model, before = self.models.get(key), None
        if model is not None and model.truncations == log.truncations:
            before = model.seen
        if self._cluster is None or before is None or not before.is_leader:
            return
        assert model is not None
        if before.incarnation != incarnation:
            return
        self._extend(key, model.chain, log)
        model.reached = max(model.reached, log.log_end_offset)
        model.seen = before._replace(is_leader=False)
        now = before._replace(high_watermark=log.high_watermark, log_end=log.log_end_offset)
        shared, step = self._partitions[key], self.machine.scheduler.steps
        committed = shared.high_watermark
        follow = shared.follow(self.machine.node_id, now, model.chain, elected=False, step=step)
        for problem in follow:
            self._report(f"{model.name}: {problem}")
        self._check_cluster(key, partition, committed)

    def _truncating(self, key: PartitionKey, log: Any) -> None:
        """A truncation is in progress. A crash keeps the removed records, or a part of them."""
        model = self.models.get(key)
        if model is not None and model.seen is not None:
            end = min(model.seen.log_end, log._cut.offset)
            if model.removed is None:
                model.removed, model.removed_from = model.chain.copy(), end
            model.seen = model.seen._replace(log_end=end)
            model.floor = min(model.floor, end)
            if not model.is_unclean:
                model.reached = min(model.reached, end)
            if self._cluster is not None:
                self._cluster.check(key)

    def _continued(
        self, key: PartitionKey, model: ReplicaModel, log: Any, now: Observation
    ) -> list[str]:
        """Follow the log of a running process: appends, or a truncation."""
        before = model.seen
        assert before is not None
        if log.truncations == model.truncations:
            self._extend(key, model.chain, log)
            return [*check_step(before, now)]
        model.truncations = log.truncations
        model.removed = None
        if not model.is_unclean:
            model.reached = now.log_end
        self.truncations += 1
        kept, model.chain = model.chain, self._chain_of(key, model, log)
        model.floor = min(model.floor, now.log_end)
        before = before._replace(log_end=now.log_end, log_start=now.log_start)
        return [
            *check_step(before, now),
            *self._truncation_problems(log),
            *check_truncation(kept, model.chain, _first_base(log)),
        ]

    def _truncation_problems(self, log: Any) -> Iterator[str]:
        """The removed records of a truncation that has ended do not come back in a power cut.

        Each file has on the disk a prefix of its data. Later appends may not be flushed yet. After
        an incomplete batch it may have other bytes: a recovery has removed them, and would again.
        """
        if log.log_dir.offline or log.closed:
            return
        for segment in log.segments:
            inode = self._inode(segment.file.path)
            if inode is not None and not inode.data.startswith(_complete_batches(inode.durable)):
                yield (
                    f"a truncation to {log.log_end_offset} has ended, but the disk has "
                    f"{len(inode.durable)} other bytes of {segment.file.path}"
                )
        if not log.on_disk:
            return
        directory = self.machine.disk.directory(log.directory)
        for name in sorted(directory.durable.keys() - directory.names.keys()):
            base, _, suffix = name.partition(".")
            if suffix == "log" and int(base) > log.log_end_offset:
                yield f"a truncation to {log.log_end_offset} has ended, but the disk has {name}"

    def _chain_of(self, key: PartitionKey, model: ReplicaModel, log: Any) -> Chain:
        """Read a whole log again."""
        first = _first_base(log)
        chain = model.chain.continues(first)
        committed = self._partitions[key].committed
        if first and committed.end >= first:
            chain = committed.continues(first)  # the replica may have had other records there
        self._cursors[key] = _Cursor(first)
        deleted = model.deletes or model.log_start_max
        self._extend(key, chain, log, model.chain if deleted else None)
        return chain

    def _recovered(
        self, key: PartitionKey, model: ReplicaModel, log: Any, now: Observation
    ) -> list[str]:
        """Read the whole log of a new process. Compare it with what the last one had."""
        chain = self._chain_of(key, model, log)
        problems: list[str] = []
        if model.seen is not None:
            leader_start = self._partitions[key].leader_start
            problems += check_recovery(model, now, chain, log.segments.bases, leader_start)
            if now.log_end < model.seen.log_end:
                self.cuts += 1
        model.truncations = log.truncations
        if self._cluster is not None and self._cluster.is_registered(self.machine):
            model.is_unclean = False
        if not model.is_unclean:
            model.reached = now.log_end
        model.ended = ""
        model.chain = chain
        model.floor = min(model.floor, now.log_end)
        return problems

    def _extend(self, key: PartitionKey, chain: Chain, log: Any, old: Chain | None = None) -> None:
        """Add the batches to the chain that the log has after the cursor.

        The deletion of old segments may have survived a power cut in part. `old` has the batches
        that are missing between the segments.
        """
        if self.models[key].compacted:
            return
        cursor = self._cursors.setdefault(key, _Cursor())
        for segment in log.segments:
            if segment.base_offset < cursor.base or not segment.size:
                continue
            if segment.base_offset > cursor.base:
                cursor.base, cursor.position = segment.base_offset, 0
            inode = self._inode(segment.file.path)
            if inode is None:
                return
            data = inode.data
            while cursor.position + HEADER_BYTES <= segment.size:
                header = parse_header(data, cursor.position)
                end = cursor.position + header.size_bytes
                if header.base_offset < chain.end or end > segment.size:
                    where = f"{cursor.position} of {segment.file.path}"
                    self._report(f"{log.topic_partition}: no batch at {where}")
                    return
                if old is not None and header.base_offset > chain.end:
                    chain.bridge(old, header.base_offset)
                chain.append(header, bytes(data[cursor.position : end]))
                cursor.position = end

    def _inode(self, path: str) -> Inode | None:
        try:
            return self.machine.disk.file(path)
        except OSError:
            return None

    # -- replay checks -----------------------------------------------------------------------------

    def replay(self) -> None:
        """Compare producers, epoch cache and disk of each log with a replay of its batches."""
        process = self.machine.process
        if process is None or not process.serves:
            return
        services = process.broker.services
        for partition in list(services.replica_manager._partitions.values()):
            self._replay(partition)
        if self._coordinators is not None:
            self._coordinators.replay(services.coordinators, self._later)

    def _later(self, topic: str, number: int, start: int) -> list[tuple[BatchHeader, bytes]] | None:
        """Return the batches from `start` on of a partition that is led here, also uncommitted."""
        for partition in self.machine.partitions():
            if partition.topic_partition == (topic, number):
                log = partition.log
                if log.log_dir.offline or log.closed or log.is_truncating:
                    return None
                return [*self._batches(key_of(partition), log, start, log.log_end_offset)]
        return None

    def serves(self, topic: str, number: int) -> bool:
        """Return whether the running broker serves the coordinator of an internal partition."""
        process = self.machine.process
        if process is None or not process.serves or self._coordinators is None:
            return False
        return self._coordinators.serves(process.broker.services.coordinators, topic, number)

    def _replay(self, partition: Any) -> None:
        model, log = self.models.get(key_of(partition)), partition.log
        if model is None or model.seen is None or log.log_dir.offline or log.closed:
            return
        if model.compacted:
            if not log.is_truncating:
                self._replay_compacted(model, log)
            self._check_compacted(key_of(partition), model, log)
            return
        if model.chain.end != log.log_end_offset or log.is_truncating:
            return  # a step in progress
        self.replays += 1
        for problem in self._replayed(model, log):
            self._report(f"{model.name}: {problem}")

    def _replay_compacted(self, model: ReplicaModel, log: Any) -> None:
        """Compare producers and epoch cache with the batches that compaction has left."""
        found = self._headers(log)
        if found is None or (found and found[-1].last_offset >= log.log_end_offset):
            return  # a segment is being replaced, or a step is in progress
        self.replays += 1
        self.compacted_replays += 1
        headers = [each for each in found if each.base_offset >= _first_base(log)]
        problems = [
            *check_compacted_epochs(headers, log.log_start_offset, log.epochs.entries()),
            *check_compacted_producers(headers, _producers_of(log), log.log_end_offset),
        ]
        for problem in problems:
            self._report(f"{model.name}: {problem}")

    def _headers(self, log: Any) -> list[BatchHeader] | None:
        """Return the headers of all batches, or None while a segment is being replaced."""
        found: list[BatchHeader] = []
        for segment in list(log.segments):
            inode = self._inode(segment.file.path)
            if inode is None or len(inode.data) < segment.size:
                return None
            position = 0
            while position + HEADER_BYTES <= segment.size:
                found.append(parse_header(inode.data, position))
                position += found[-1].size_bytes
        return found

    def _check_compacted(self, key: PartitionKey, model: ReplicaModel, log: Any) -> None:
        """The log has the newest committed record of each key below its high watermark.

        An unclean election may have lost some of them.
        """
        shared = self._partitions[key]
        if self._cluster is None or shared.unclean_elections or log.is_truncating:
            return
        if any(self._inode(segment.file.path) is None for segment in log.segments):
            return  # a segment is being replaced
        found = self._keyed_records(log, log.log_start_offset)
        for problem in shared.newest.check(found, log.log_start_offset, log.high_watermark):
            self._report(f"{model.name}: {problem}")
        self._cluster.compaction_checked()

    def _keyed_records(self, log: Any, start: int) -> Iterator[KeyedRecord]:
        """Yield the records with a key of the batches that end above `start`.

        The files have them also while the cleaner replaces some segments by a single one.
        """
        for segment in list(log.segments):
            inode = self._inode(segment.file.path)
            data = b"" if inode is None else inode.data
            position = 0
            while position + HEADER_BYTES <= len(data):
                header = parse_header(data, position)
                end = position + header.size_bytes
                if header.last_offset >= start and end <= len(data):
                    yield from _keyed([(header, bytes(data[position:end]))])
                position = end

    def _replayed(self, model: ReplicaModel, log: Any) -> Iterator[str]:
        chain = model.chain
        yield from check_epochs(
            chain, log.log_start_offset, log.log_end_offset, log.epochs.entries()
        )
        first = _first_base(log)
        yield from check_producers(replay_producers(chain, first), _producers_of(log), first)
        yield from self._durable(model, log)

    def _unflushed(self, log: Any, end: int) -> Iterator[str]:
        """Yield the paths of segments that have records below `end` which are not on the disk."""
        for segment in log.segments:
            if segment.base_offset >= end or not segment.size:
                continue
            inode = self._inode(segment.file.path)
            if inode is None:
                return
            if inode.is_synced:
                continue
            position = _position_of(inode.data, segment.size, end, log.log_start_offset)
            if inode.durable[:position] != inode.data[:position]:
                yield segment.file.path

    def _durable(self, model: ReplicaModel, log: Any) -> Iterator[str]:
        """The disk has the batches below the floor, and the names of their segments."""
        for path in self._unflushed(log, model.floor):
            yield f"batches below {model.floor} are not on the disk ({path})"
        for segment in log.segments:
            if segment.base_offset >= model.floor or not segment.size:
                continue
            inode, path = self._inode(segment.file.path), segment.file.path
            if inode is None:
                return
            if self._is_name_durable(path):
                continue
            end = _position_of(inode.data, segment.size, model.floor, log.log_start_offset)
            if not self._has_replaced(path, inode.data[:end]):
                yield f"the name of {path} is not on the disk"

    def _has_replaced(self, path: str, data: bytearray) -> bool:
        """Return whether the disk has another file of this name that begins with `data`.

        A kill has interrupted a truncation that replaces a segment by a shorter copy.
        """
        directory, name = self.machine.disk.parent(path)
        node = directory.durable.get(name)
        if not isinstance(node, Inode) or not self._is_name_durable(directory_of(path)):
            return False
        return node.durable[: len(data)] == data

    def _is_name_durable(self, path: str) -> bool:
        node: Directory | Inode = self.machine.disk.root
        for part in path.split("/")[1:]:
            assert isinstance(node, Directory)
            if node.durable.get(part) is not node.names.get(part):
                return False
            node = node.names[part]
        return True


def _keyed(batches: Iterable[tuple[BatchHeader, bytes]]) -> Iterator[KeyedRecord]:
    """Yield the records with a key. Markers have none."""
    for header, batch in batches:
        if not header.is_control:
            for record in iter_records(batch):
                if record.key is not None:
                    yield KeyedRecord(record.offset, record.key, record.value)


def _producers_of(log: Any) -> dict[int, Producer]:
    """Return the producer state of the broker."""
    return {
        producer_id: Producer(
            entry.epoch, tuple((batch[0], batch[1], batch[2]) for batch in entry.batches)
        )
        for producer_id, entry in log.producers.producers.items()
    }


def key_of(partition: Any) -> PartitionKey:
    return bytes(partition.topic_id), partition.topic_partition.partition


def directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def maximal_isr_of(partition: Any) -> Collection[int] | None:
    """Return the maximal ISR of a partition, or None if the broker does not lead it."""
    replication = partition.replication
    if replication is None:
        return None
    maximal: Collection[int] = replication.state.maximal_isr
    return maximal


def _is_same_leader(before: Observation, now: Observation) -> bool:
    return (
        before.is_leader
        and before.incarnation == now.incarnation
        and before.leader_epoch == now.leader_epoch
    )


def _first_base(log: Any) -> int:
    """Return the base offset of the segment with the log start.

    A power cut may bring back segments below it that were deleted, and not all of them.
    """
    bases: list[int] = log.segments.bases
    return bases[max(bisect_right(bases, log.log_start_offset) - 1, 0)]


def _complete_batches(data: bytearray) -> bytes:
    """Return the bytes before the first incomplete batch, as a recovery does."""
    view, position = memoryview(bytes(data)), 0
    while position + HEADER_BYTES <= len(view):
        size = parse_header(view, position).size_bytes
        end = position + size
        if size < HEADER_BYTES or end > len(view) or not crc_is_valid(view[position:end]):
            break
        position = end
    return bytes(view[:position])


def _position_of(data: bytearray, size: int, offset: int, log_start: int) -> int:
    """Return the position after the last batch that has a record below `offset`.

    A batch that ends above `offset` counts only for its records from the log start on. A follower
    that begins at a log start inside of a batch has flushed up to there without that batch.
    """
    position = 0
    while position + HEADER_BYTES <= size:
        header: BatchHeader = parse_header(data, position)
        if header.base_offset >= offset:
            break
        if header.last_offset >= offset and offset <= log_start:
            break
        position += header.size_bytes
    return position
