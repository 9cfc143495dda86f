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
    """The batches of a log: headers, end offsets, and a rolling hash at each end."""

    __slots__ = ("ends", "hashes", "headers")

    def __init__(self) -> None:
        self.headers: list[BatchHeader] = []
        self.ends: list[int] = []
        self.hashes: list[bytes] = []

    @property
    def end(self) -> int:
        """The offset after the last batch, 0 if there is none."""
        return self.ends[-1] if self.ends else 0

    def append(self, header: BatchHeader, batch: bytes) -> None:
        before = self.hashes[-1] if self.hashes else b""
        self.headers.append(header)
        self.ends.append(header.last_offset + 1)
        self.hashes.append(hashlib.blake2b(before + batch, digest_size=8).digest())

    def hash_at(self, end: int) -> bytes | None:
        """Return the hash of all batches below `end`, or None if no batch ends there."""
        at = bisect_left(self.ends, end)
        if at < len(self.ends) and self.ends[at] == end:
            return self.hashes[at]
        return None

    def truncate(self, end: int) -> None:
        """Forget the batches that end above `end`."""
        at = bisect_right(self.ends, end)
        del self.headers[at:], self.ends[at:], self.hashes[at:]

    def bridge(self, other: Chain, start: int) -> None:
        """Take the batches that `other` has below `start`, which this log has no longer."""
        at, end = bisect_right(other.ends, self.end), bisect_right(other.ends, start)
        self.headers += other.headers[at:end]
        self.ends += other.ends[at:end]
        self.hashes += other.hashes[at:end]

    def continues(self, start: int) -> Chain:
        """Return a chain with the batches below `start`, to which a log from `start` is added."""
        chain = Chain()
        at = bisect_right(self.ends, start)
        chain.headers, chain.ends = self.headers[:at], self.ends[:at]
        chain.hashes = self.hashes[:at]
        return chain


@dataclass(slots=True)
class ReplicaModel:
    """What is known of one replica of one partition.

    Attributes:
        seen: The last observation.
        chain: The batches up to the observed log end.
        floor: A power cut leaves all batches below it: flushed, or acknowledged after a flush.
        log_start_max: The largest log start that was ever observed.
        deletes: Retention may delete segments in the same call in which the process dies.
        ended: How the process ended since the last observation: stop, kill or power.
        compacted: Batches change below the high watermark, so there is no chain.
    """

    name: str
    seen: Observation | None = None
    chain: Chain = field(default_factory=Chain)
    floor: int = 0
    log_start_max: int = 0
    deletes: bool = False
    ended: str = ""
    compacted: bool = False


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
    model: ReplicaModel, now: Observation, recovered: Chain, bases: Sequence[int]
) -> Iterator[str]:
    """The first observation of a new process, after the last one ended as `model.ended` says.

    `bases` are the base offsets of the segments, and `recovered` has their batches.

    A power cut may take the first segments of a log that was never flushed. The log then starts
    after them. A start above the first batch of the log would hide records that exist.
    """
    before, how = model.seen, model.ended
    assert before is not None
    if now.leader_epoch < before.leader_epoch:
        yield f"leader epoch fell from {before.leader_epoch} to {now.leader_epoch} in a restart"
    required = model.floor if how == "power" else before.log_end
    if now.log_end < required:
        yield f"log end {now.log_end} after {how}, but the log had {required} that had to survive"
    risen = now.log_start > model.log_start_max and not model.deletes
    if risen and (bases[0] < now.log_start or model.floor > model.log_start_max):
        yield f"log start {now.log_start} after {how}, but it never was above {model.log_start_max}"
    common = min(model.chain.end, recovered.end)
    old, new = model.chain.hash_at(common), recovered.hash_at(common)
    if common and old != new:
        yield f"other bytes below {common} after {how}"
    end = max(recovered.end, bases[-1])  # an empty segment may start above all batches
    if end != now.log_end and not model.compacted:
        yield f"the segments end at {end}, the log at {now.log_end}"


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
    found: dict[int, Producer] = {}
    for header in chain.headers[bisect_right(chain.ends, first_offset) :]:
        if header.producer_id < 0:
            continue
        before = found.get(header.producer_id)
        kept = before.batches if before and before.epoch == header.producer_epoch else ()
        if not header.is_control:
            kept = (*kept, (header.base_sequence, header.last_sequence, header.last_offset))
        found[header.producer_id] = Producer(header.producer_epoch, kept[-WINDOW_BATCHES:])
    return found


def check_producers(
    replayed: Mapping[int, Producer], actual: Mapping[int, Producer]
) -> Iterator[str]:
    """The broker's producers equal a replay of the log. It may know more of earlier batches."""
    for producer_id, expected in replayed.items():
        found = actual.get(producer_id)
        if found is None:
            yield f"producer {producer_id} is not known, its state is {expected}"
            continue
        count = len(expected.batches)
        if found.epoch != expected.epoch or (count and found.batches[-count:] != expected.batches):
            yield f"producer {producer_id} has {found}, a replay has {expected}"


@dataclass(slots=True)
class PartitionModel:
    """The rules of one partition over all replicas.

    Attributes:
        leaders: The broker that led in each leader epoch.
        epoch: The largest leader epoch of any replica.
    """

    leaders: dict[int, int] = field(default_factory=dict)
    epoch: int = -1

    def observe(self, broker: int, now: Observation) -> Iterator[str]:
        """One leader in each epoch."""
        if not now.is_leader:
            return
        leader = self.leaders.setdefault(now.leader_epoch, broker)
        if leader != broker:
            yield f"brokers {leader} and {broker} lead in epoch {now.leader_epoch}"
        self.epoch = max(self.epoch, now.leader_epoch)
