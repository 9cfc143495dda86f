"""Rules that hold for the logs of a simulation, as pure functions over observations.

A `Chain` has a rolling hash for each batch end of a log, so two logs are compared byte for byte by
one number for each offset. A `ReplicaModel` is what is known of one replica of one partition. It is
updated by observations of a running broker, and compared with what a recovery has left.

Each rule yields a line of text for each violation. With several brokers a `PartitionModel` has the
rules that concern all replicas of a partition.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from odradek.records.batch import BatchHeader

WINDOW_BATCHES = 5
"""Batches that a broker remembers of each producer."""
NO_STEP = -1
DROPPED = "dropped"
"""An end after which the page cache drops pages of the log, because an fsync had failed."""
LOSSES = ("power", DROPPED)
"""Ends that lose records which are not flushed."""


class Observation(NamedTuple):
    """The state of one replica at one moment.

    Attributes:
        incarnation: Number of the process, which grows with each start of the broker.
        flushed: The broker's recovery point: everything below it is on the disk.
    """

    incarnation: int
    is_leader: bool
    leader_epoch: int
    log_start: int
    high_watermark: int
    log_end: int
    flushed: int


class Chain:
    """The batches of a log: headers, digests, end offsets, and a rolling hash at each end."""

    __slots__ = ("digests", "ends", "hashes", "headers")

    def __init__(self) -> None:
        self.headers: list[BatchHeader] = []
        self.digests: list[bytes] = []
        self.ends: list[int] = []
        self.hashes: list[bytes] = []

    @property
    def end(self) -> int:
        """The offset after the last batch, 0 if there is none."""
        return self.ends[-1] if self.ends else 0

    def append(self, header: BatchHeader, batch: bytes) -> None:
        before = self.hashes[-1] if self.hashes else b""
        digest = hashlib.blake2b(batch, digest_size=8).digest()
        self.headers.append(header)
        self.digests.append(digest)
        self.ends.append(header.last_offset + 1)
        self.hashes.append(hashlib.blake2b(before + digest, digest_size=8).digest())

    def hash_at(self, end: int) -> bytes | None:
        """Return the hash of all batches below `end`, or None if no batch ends there."""
        at = bisect_left(self.ends, end)
        if at < len(self.ends) and self.ends[at] == end:
            return self.hashes[at]
        return None

    def digests_between(self, start: int, end: int) -> list[bytes]:
        """Return the digests of the batches from `start` to `end`. Their bytes have the offsets."""
        at = bisect_right(self.ends, start)
        return self.digests[at : bisect_right(self.ends, end)]

    def truncate(self, end: int) -> None:
        """Forget the batches that end above `end`."""
        at = bisect_right(self.ends, end)
        del self.headers[at:], self.digests[at:], self.ends[at:], self.hashes[at:]

    def bridge(self, other: Chain, start: int) -> None:
        """Take the batches that `other` has below `start`, which this log has no longer."""
        at, end = bisect_right(other.ends, self.end), bisect_right(other.ends, start)
        self.headers += other.headers[at:end]
        self.digests += other.digests[at:end]
        self.ends += other.ends[at:end]
        self.hashes += other.hashes[at:end]

    def copy(self) -> Chain:
        return self.continues(self.end)

    def continues(self, start: int) -> Chain:
        """Return a chain with the batches below `start`, to which a log from `start` is added."""
        chain = Chain()
        at = bisect_right(self.ends, start)
        chain.headers, chain.ends = self.headers[:at], self.ends[:at]
        chain.digests, chain.hashes = self.digests[:at], self.hashes[:at]
        return chain


@dataclass(slots=True)
class ReplicaModel:
    """The knowledge about one replica of one partition.

    Attributes:
        seen: The last observation.
        chain: The batches up to the observed log end.
        floor: A power cut leaves all batches below it: flushed, or acknowledged after a flush.
        log_start_max: The largest log start that was ever observed.
        deletes: Retention may delete segments in the same call in which the process dies.
        ended: How the process ended since the last observation: stop, kill, power or `DROPPED`.
        compacted: Batches change below the high watermark, so there is no chain.
        truncations: The log's own count of truncations.
        is_unclean: The power was cut after the controller had registered the last process. It
            removes the replica from ISR and ELR when it registers the next one.
        reached: The largest log end since the last truncation, or since the last start that a
            controller knows. A replica that is unclean has had it before the power cut.
        removed: The batches before a truncation that a kill has interrupted. A power cut may bring
            them back until the log is flushed above `removed_from`.
        directory: The path of the log.
    """

    name: str
    seen: Observation | None = None
    chain: Chain = field(default_factory=Chain)
    floor: int = 0
    log_start_max: int = 0
    deletes: bool = False
    ended: str = ""
    compacted: bool = False
    truncations: int = 0
    is_unclean: bool = False
    reached: int = 0
    removed: Chain | None = None
    removed_from: int = 0
    directory: str = ""


def check_bounds(now: Observation) -> Iterator[str]:
    """Log start, high watermark and log end are in this order."""
    if not now.log_start <= now.high_watermark <= now.log_end:
        yield (
            f"log start {now.log_start}, high watermark {now.high_watermark} and log end "
            f"{now.log_end} are out of order"
        )
    if now.flushed > now.log_end:
        yield f"recovery point {now.flushed} above the log end {now.log_end}"


def check_step(before: Observation, now: Observation) -> Iterator[str]:
    """Two observations of one process."""
    if now.leader_epoch < before.leader_epoch:
        yield f"leader epoch fell from {before.leader_epoch} to {now.leader_epoch}"
    if now.log_start < before.log_start:
        yield f"log start fell from {before.log_start} to {now.log_start}"
    leads_on = before.is_leader and now.is_leader and now.leader_epoch == before.leader_epoch
    if leads_on and now.high_watermark < before.high_watermark:
        yield (
            f"high watermark of a leader fell from {before.high_watermark} to "
            f"{now.high_watermark} in epoch {now.leader_epoch}"
        )
    if leads_on and now.log_end < before.log_end:
        yield f"a leader truncated its log from {before.log_end} to {now.log_end}"


def check_recovery(
    model: ReplicaModel,
    now: Observation,
    recovered: Chain,
    bases: Sequence[int],
    leader_start: int = 0,
) -> Iterator[str]:
    """The first observation of a new process, after the last one ended as `model.ended` says.

    `bases` are the base offsets of the segments, and `recovered` has their batches.
    `leader_start` is the largest log start of any leader. The last process may have ended while it
    began again there.

    A log start above the earlier ones would hide records that other replicas have.
    """
    before, how = model.seen, model.ended
    assert before is not None
    if now.leader_epoch < before.leader_epoch:
        yield f"leader epoch fell from {before.leader_epoch} to {now.leader_epoch} in a restart"
    required = model.floor if how in LOSSES else before.log_end
    if now.log_end < required:
        yield f"log end {now.log_end} after {how}, but the log had {required} that had to survive"
    start_max = max(model.log_start_max, leader_start)
    if now.log_start > start_max and not model.deletes:
        yield f"log start {now.log_start} after {how}, but it never was above {start_max}"
    if not _agree(model.chain, recovered, bases[0]) and not (
        how in LOSSES and model.removed and _agree(model.removed, recovered, bases[0])
    ):
        yield f"other bytes below {min(model.chain.end, recovered.end)} after {how}"
    end = max(recovered.end, bases[-1])  # an empty segment may start above all batches
    if end != now.log_end and not model.compacted:
        yield f"the segments end at {end}, the log at {now.log_end}"


def _agree(first: Chain, second: Chain, start: int) -> bool:
    """Return whether two chains have the same batches from `start` on, up to the shorter end."""
    end = min(first.end, second.end)
    return first.digests_between(start, end) == second.digests_between(start, end)


def check_truncation(kept: Chain, found: Chain, first: int) -> Iterator[str]:
    """A truncation changes no batch that it keeps.

    The log begins at `first` now. A truncation to the start of the leader's log removes all
    batches, and `found` has those of the committed records below `first`. A deposed leader may have
    had others there.
    """
    if not _agree(kept, found, first):
        yield f"other bytes below {min(kept.end, found.end)} after a truncation"


def check_epochs(
    chain: Chain, log_start: int, log_end: int, entries: Iterable[tuple[int, int]]
) -> Iterator[str]:
    """The epoch cache gives the end of each epoch as a replay of the log does."""
    found = list(entries)
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(found)):
        yield f"the epoch cache does not increase: {found}"
        return
    ends: dict[int, int] = {}
    for header, end in zip(chain.headers, chain.ends, strict=True):
        if end > log_start:
            ends[header.partition_leader_epoch] = end
    epochs = sorted(ends)
    for at, epoch in enumerate(epochs):
        later = [start for other, start in found if other > epoch]
        end = later[0] if later else log_end
        if not any(other == epoch for other, _ in found):
            yield f"epoch {epoch} of the log is not in the cache {found}"
        elif end != ends[epoch] and not (at + 1 == len(epochs) and end == log_end):
            yield f"epoch {epoch} ends at {ends[epoch]} in the log and at {end} in {found}"


class Producer(NamedTuple):
    """The state of one producer in a log: epoch, and (first sequence, last sequence, last offset)
    of its last batches, oldest first.
    """

    epoch: int
    batches: tuple[tuple[int, int, int], ...]


def replay_producers(chain: Chain, first_offset: int) -> dict[int, Producer]:
    """Return the producers of the batches from `first_offset` on."""
    return producers_of(chain.headers[bisect_right(chain.ends, first_offset) :])


def producers_of(headers: Iterable[BatchHeader]) -> dict[int, Producer]:
    """Return the producers of these batches."""
    found: dict[int, Producer] = {}
    for header in headers:
        if header.producer_id < 0:
            continue
        before = found.get(header.producer_id)
        kept = before.batches if before and before.epoch == header.producer_epoch else ()
        if not header.is_control:
            kept = (*kept, (header.base_sequence, header.last_sequence, header.last_offset))
        found[header.producer_id] = Producer(header.producer_epoch, kept[-WINDOW_BATCHES:])
    return found


def check_producers(
    replayed: Mapping[int, Producer], actual: Mapping[int, Producer], first_offset: int
) -> Iterator[str]:
    """The broker's producers equal a replay of the log from `first_offset` on.

    The broker may know more of earlier batches, and earlier producers.
    """
    for producer_id, known in actual.items():
        if producer_id not in replayed and any(each[2] >= first_offset for each in known.batches):
            yield f"producer {producer_id} has {known}, and no batch in the log"
    for producer_id, expected in replayed.items():
        found = actual.get(producer_id)
        if found is None:
            yield f"producer {producer_id} is not known, its state is {expected}"
            continue
        count = len(expected.batches)
        if found.epoch != expected.epoch or (count and found.batches[-count:] != expected.batches):
            yield f"producer {producer_id} has {found}, a replay has {expected}"


def check_compacted_epochs(
    headers: Iterable[BatchHeader], log_start: int, entries: Iterable[tuple[int, int]]
) -> Iterator[str]:
    """The epoch cache has the epoch of each batch that compaction has left, at its offset.

    The start of an epoch may be below its first batch, and an epoch may have no batch.
    """
    found = list(entries)
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(found)):
        yield f"the epoch cache does not increase: {found}"
    for header in headers:
        if header.last_offset < log_start:
            continue
        offset, epoch = max(header.base_offset, log_start), header.partition_leader_epoch
        begun = [each for each, start in found if start <= offset]
        if not begun or begun[-1] != epoch or _begins_within(found, offset, header.last_offset):
            yield f"offset {offset} has epoch {epoch} in the log, and the cache is {found}"


def _begins_within(entries: Iterable[tuple[int, int]], first: int, last: int) -> bool:
    """Return whether an epoch begins above the offset `first`, and not above `last`."""
    return any(first < start <= last for _, start in entries)


def check_compacted_producers(
    headers: Sequence[BatchHeader], actual: Mapping[int, Producer], log_end: int
) -> Iterator[str]:
    """The broker's producers have all batches that compaction has left of their windows.

    Compaction removes batches, so a replay of the log has fewer of them than the broker.
    """
    for producer_id, known in actual.items():
        if any(last_offset >= log_end for _, _, last_offset in known.batches):
            yield f"producer {producer_id} has {known}, and the log ends at {log_end}"
    for producer_id, left in producers_of(headers).items():
        found = actual.get(producer_id)
        if found is None or found.epoch < left.epoch:
            yield f"producer {producer_id} has {found}, and {left} is in the log"
        elif found.epoch == left.epoch and left.batches:
            first = found.batches[0][2] if found.batches else -1
            if not {batch for batch in left.batches if batch[2] >= first} <= {*found.batches}:
                yield f"producer {producer_id} has {found}, and {left} is in the log"
            elif found.batches[-1][2] < left.batches[-1][2]:
                yield f"producer {producer_id} has {found}, and a later batch {left} is in the log"


class PartitionState(NamedTuple):
    """The state of a partition as the controller has written it."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    recovering: bool = False
    last_known: tuple[int, ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """The replicas that may be elected."""
        return self.isr + self.elr


class KeyedRecord(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class NewestRecords:
    """The newest committed record of each key, from the logs in which no cleaner was yet.

    Attributes:
        end: The records below it are included.
    """

    end: int = 0
    records: dict[bytes, KeyedRecord] = field(default_factory=dict)

    def add(self, records: Iterable[KeyedRecord], end: int) -> None:
        """Add the records up to `end`, the new high watermark."""
        for record in records:
            if self.end <= record.offset < end:
                self.records[record.key] = record
        self.end = max(self.end, end)

    def check(self, found: Iterable[KeyedRecord], log_start: int, end: int) -> Iterator[str]:
        """The log of a replica has each of them from its log start up to its high watermark.

        A cleaner removes the record of a key only if the log has a newer one below `end`, or if the
        record has no value.
        """
        kept = {record.offset: record for record in found}
        for record in self.records.values():
            if not log_start <= record.offset < end or record.value is None:
                continue
            if kept.get(record.offset) != record:
                yield (
                    f"the newest record of key {record.key!r} at {record.offset} is not in the log "
                    f"up to {end}, which has {kept.get(record.offset)}"
                )


def check_membership(before: PartitionState | None, state: PartitionState) -> Iterator[str]:
    """ISR and ELR are disjoint. A member of the ELR was a member of ISR or ELR before."""
    unknown = {*state.isr, *state.elr} - {*state.replicas}
    if unknown or {*state.isr} & {*state.elr}:
        yield f"ISR or ELR of {state} are not valid"
    if state.leader >= 0 and state.leader not in state.isr:
        yield f"the leader of {state} is not in the ISR"
    if before is not None and not {*state.elr} <= {*before.members}:
        yield f"{state} follows {before}, but a member of the ELR was in neither ISR nor ELR"


@dataclass(slots=True)
class PartitionModel:
    """The rules of one partition over all replicas.

    The committed records are those below the largest high watermark of a leader. `committed` has
    their batches. After an unclean election they are those of the elected leader.

    Attributes:
        leaders: The broker that led in each leader epoch.
        epoch: The largest leader epoch of any replica.
        state: The controller's state. None in a single broker.
        high_watermark: The true high watermark.
        leader_start: The largest log start of any leader.
        rises: The steps of the simulation in which it changed, and its new values.
        led: Broker, process and leader epoch of the last observed leader, and the largest high
            watermark that this leader has had.
        committed: The batches below the true high watermark.
        unclean_epoch: The leader epoch of the last unclean election, or -1.
        awaits_leader: The leader of an unclean election was not observed yet.
        unclean_elections: Acknowledged records may be lost if this is not 0.
        is_compacted: Batches change below the high watermark, so none are compared.
        newest: The committed records of a compacted partition.
        is_deleted: The topic was deleted.
    """

    leaders: dict[int, int] = field(default_factory=dict)
    epoch: int = -1
    name: str = ""
    state: PartitionState | None = None
    high_watermark: int = 0
    leader_start: int = 0
    rises: list[tuple[int, int]] = field(default_factory=list)
    led: tuple[int, int, int, int] = (-1, -1, -1, 0)
    committed: Chain = field(default_factory=Chain)
    unclean_epoch: int = -1
    awaits_leader: bool = False
    unclean_elections: int = 0
    is_compacted: bool = False
    newest: NewestRecords = field(default_factory=NewestRecords)
    is_deleted: bool = False

    def observe(self, broker: int, now: Observation) -> Iterator[str]:
        """One leader in each epoch, whose high watermark never decreases in that epoch."""
        if not now.is_leader:
            return
        self.leader_start = max(self.leader_start, now.log_start)
        *term, highest = self.led
        if term == [broker, now.incarnation, now.leader_epoch]:
            if now.high_watermark < highest:
                yield (
                    f"high watermark of leader {broker} fell from {highest} to "
                    f"{now.high_watermark} in epoch {now.leader_epoch}"
                )
        else:
            highest = 0
        highest = max(highest, now.high_watermark)
        self.led = (broker, now.incarnation, now.leader_epoch, highest)
        leader = self.leaders.setdefault(now.leader_epoch, broker)
        if leader != broker:
            yield f"brokers {leader} and {broker} lead in epoch {now.leader_epoch}"
        self.epoch = max(self.epoch, now.leader_epoch)

    # -- the controller's decisions ----------------------------------------------------------------

    def changed(self, state: PartitionState) -> Iterator[str]:
        """Epochs never decrease, and a clean election takes a member of ISR or ELR."""
        before, self.state = self.state, state
        yield from check_membership(before, state)
        if before is None:
            return
        if state.leader_epoch < before.leader_epoch:
            yield f"leader epoch fell from {before.leader_epoch} to {state.leader_epoch}"
        if state.partition_epoch <= before.partition_epoch:
            yield f"partition epoch {state.partition_epoch} after {before.partition_epoch}"
        if state.leader != before.leader and state.leader_epoch == before.leader_epoch:
            yield f"leader {state.leader} after {before.leader} in epoch {state.leader_epoch}"
        if state.leader_epoch == before.leader_epoch or state.leader < 0:
            return
        if state.recovering:
            self.unclean_epoch = state.leader_epoch
            self.awaits_leader = True
            self.unclean_elections += 1
        elif state.leader not in before.members:
            yield f"{state} follows {before}, but the leader was in neither ISR nor ELR"

    # -- records -----------------------------------------------------------------------------------

    def committed_at(self, step: int) -> int:
        """Return the true high watermark at the end of a step, or the present one for `NO_STEP`."""
        if step == NO_STEP:
            return self.high_watermark
        at = bisect_right(self.rises, step, key=lambda rise: rise[0])
        return self.rises[at - 1][1] if at else 0

    def follow(
        self,
        broker: int,
        now: Observation,
        chain: Chain,
        *,
        elected: bool,
        led: bool = False,
        step: int = 0,
    ) -> Iterator[str]:
        """Compare the records of a replica with the committed ones, which a leader may extend.

        Args:
            elected: This is the first observation of the broker as the leader of this epoch. It has
                all committed records, unless a leader of a later epoch was observed before.
            led: The broker was the leader in the observation before. It may have committed records
                in the step in which it was deposed.
            step: The number of the step.
        """
        if now.leader_epoch < self.unclean_epoch:
            return
        if self.awaits_leader:
            if not now.is_leader:
                return
            self.awaits_leader = False
            self.high_watermark = now.high_watermark
            self.rises.append((step, self.high_watermark))
            self.committed = chain.continues(now.high_watermark)
        # After a pause a broker may learn of an election when a later leader has committed more.
        elected = elected and now.leader_epoch >= self.epoch
        if elected and now.log_end < self.high_watermark:
            yield (
                f"broker {broker} leads in epoch {now.leader_epoch} with log end {now.log_end}, "
                f"but records below {self.high_watermark} are committed"
            )
        if not self.is_compacted:
            low = min(now.high_watermark, self.high_watermark)
            end = self.high_watermark if elected else low
            yield from self._compare(broker, chain, now.log_start, end)
        if (now.is_leader or led) and now.high_watermark > self.high_watermark:
            self.high_watermark = now.high_watermark
            self.rises.append((step, self.high_watermark))
            self.committed.bridge(chain, now.high_watermark)

    def _compare(self, broker: int, chain: Chain, start: int, end: int) -> Iterator[str]:
        if self.unclean_elections and (self.state is None or broker not in self.state.isr):
            return  # it may not have truncated its log yet
        if end and not self._agrees(chain, start, end):
            yield (
                f"broker {broker} has other records below {end} than those committed, from "
                f"{self._first_difference(chain)} on"
            )

    def _agrees(self, chain: Chain, start: int, end: int) -> bool:
        """Return whether a log from `start` on has the committed batches below `end`.

        It may have batches of an earlier leader below `start`, which are not served. A follower
        that was a leader before keeps them up to the log start of its leader, as in Kafka.
        """
        if chain.hash_at(end) == self.committed.hash_at(end):
            return True
        found = chain.digests_between(start, end)
        return start > 0 and found == self.committed.digests_between(start, end)

    def _first_difference(self, chain: Chain) -> str:
        for mine, theirs in zip(self.committed.headers, chain.headers, strict=False):
            if (mine.base_offset, mine.crc) != (theirs.base_offset, theirs.crc):
                return f"{mine.base_offset} (epoch {mine.partition_leader_epoch})"
        return f"{min(self.committed.end, chain.end)} (one log ends there)"

    def check_reached(self, reached: Mapping[int, int]) -> Iterator[str]:
        """Each member of the controller's ISR and ELR has had all committed records.

        `reached` has the largest log end of each member. After a power cut it is that before the
        cut, until the controller has registered the next process and has removed the member. The
        high watermark does not advance while the ISR is below its minimum, so the ELR has the
        records.
        """
        if self.awaits_leader:
            return
        for member, end in reached.items():
            if end < self.high_watermark:
                is_elr = self.state is not None and member in self.state.elr
                where = "the ELR" if is_elr else "the ISR"
                yield (
                    f"records below {self.high_watermark} are committed, but member {member} of "
                    f"{where} has reached {end} only ({self.state})"
                )

    def check_members(
        self, logs: Mapping[int, tuple[int, Chain]], starts: Mapping[int, int] | None = None
    ) -> Iterator[str]:
        """Each member of ISR and ELR has all records below the true high watermark.

        Args:
            logs: Log end and batches of the members, also if they do not run. A power cut
                excludes a member until the controller has registered its next process.
            starts: Their log start offsets.
        """
        end = self.high_watermark
        if self.awaits_leader or not end:
            return
        starts = starts or {}
        for member, (log_end, chain) in logs.items():
            if log_end < end:
                yield (
                    f"the log of member {member} ends at {log_end}, but records below {end} are "
                    f"committed ({self.state})"
                )
            elif not self.is_compacted and not self._agrees(chain, starts.get(member, 0), end):
                yield (
                    f"member {member} has other records below {end} than those committed, from "
                    f"{self._first_difference(chain)} on ({self.state})"
                )
