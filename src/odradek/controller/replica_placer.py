"""Placement of replicas over racks and brokers (Kafka's ``StripedReplicaPlacer``). Pure decisions.

In the order of their priority, the goals are:

1. The replicas of a partition are on different brokers, and the first one is not fenced. Brokers in
   controlled shutdown get none.
2. They are spread over as many racks as possible. Brokers without a rack form one rack.
3. Within a rack, brokers that are not fenced come first.
4. Partitions use the racks, and the brokers of a rack, in rotation. The rotations begin at random
   positions, or continue after the last existing partition.

After as many partitions as there are brokers, the order of racks and brokers is shuffled. Otherwise
the same sets of brokers would occur again, and the partitions of a failed broker would all go to
the same other brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.metadata.image import BrokerRegistration
from odradek.slicing import ELEMENTS_PER_SLICE

T = TypeVar("T")
Between = Callable[[int, int], int]
"""Returns a random number between two numbers, both included."""


def placing_replicas(
    brokers: Mapping[BrokerId, BrokerRegistration],
    count: int,
    factor: int,
    between: Between,
    existing: Sequence[BrokerId] = (),
) -> Generator[None, None, list[tuple[BrokerId, ...]]]:
    """Return the replicas of `count` new partitions, after time slices.

    Args:
        existing: The replicas of the topic's last partition, after which the rotation continues.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR, there are fewer brokers, or all are fenced.
    """
    brokers = {
        broker_id: broker
        for broker_id, broker in brokers.items()
        if not broker.in_controlled_shutdown
    }
    if factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor "
            f"of {factor} cannot be reached because only {len(brokers)} broker(s) are registered.",
        )
    if all(broker.fenced for broker in brokers.values()):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): "
            "All brokers are currently fenced.",
        )
    racks = _RackList(brokers, between, existing)
    placed = []
    for number in range(1, count + 1):
        placed.append(racks.place(factor))
        if not number % ELEMENTS_PER_SLICE:
            yield
    return placed


class _Rotation:
    """Brokers of a rack in rotation. Each partition begins one broker after the previous one."""

    __slots__ = ("_position", "_start", "_used", "brokers")

    def __init__(self, brokers: list[BrokerId], start: int) -> None:
        self.brokers = brokers
        self._start = start
        self._used = 0
        self._position = 0

    def next(self, partition: int) -> BrokerId | None:
        """Return the next broker for a partition, or None if it has all of them."""
        if not self.brokers:
            return None
        if partition != self._position:
            self._position = partition
            self._start += 1
            self._used = 0
        if self._used == len(self.brokers):
            return None
        self._used += 1
        return self.brokers[(self._start + self._used - 1) % len(self.brokers)]


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, unfenced: _Rotation, fenced: _Rotation) -> None:
        self.unfenced = unfenced
        self.fenced = fenced

    def next(self, partition: int) -> BrokerId | None:
        broker = self.unfenced.next(partition)
        return self.fenced.next(partition) if broker is None else broker


class _RackList:
    """The racks in rotation. `place` is called once for each partition."""

    def __init__(
        self,
        brokers: Mapping[BrokerId, BrokerRegistration],
        between: Between,
        existing: Sequence[BrokerId],
    ) -> None:
        self._between = between
        members: dict[str, list[BrokerRegistration]] = {}
        for broker_id in sorted(brokers):
            members.setdefault(brokers[broker_id].rack or "", []).append(brokers[broker_id])
        self._names = sorted(members)
        self._racks = {
            name: _Rack(
                self._rotation([each.id for each in members[name] if not each.fenced], existing),
                self._rotation([each.id for each in members[name] if each.fenced]),
            )
            for name in self._names
        }
        self._unfenced_count = sum(not each.fenced for each in brokers.values())
        self._partition = 0
        last = brokers.get(existing[0]) if existing else None
        if last is None:
            self._first = between(0, len(self._names) - 1)
        else:
            self._first = self._names.index(last.rack or "") + 1

    def _rotation(self, ids: list[BrokerId], existing: Sequence[BrokerId] = ()) -> _Rotation:
        for broker in existing:
            if broker in ids:
                return _Rotation(ids, ids.index(broker) + 1)
        return _Rotation(ids, self._between(0, len(ids) - 1) if len(ids) > 1 else 0)

    def place(self, factor: int) -> tuple[BrokerId, ...]:
        if self._partition == self._unfenced_count > 1:
            self._shuffle_all()
            self._partition = 0
        count = len(self._names)
        order = [self._names[(self._first + each) % count] for each in range(count)]
        replicas: list[BrokerId] = []
        leading = self._leader(order, replicas)
        # The leader's rack has had its turn in the first round.
        remaining = [name for name in order if name != leading]
        while len(replicas) < factor:
            for name in remaining:
                broker = self._racks[name].next(self._partition)
                if broker is not None and len(replicas) < factor:
                    replicas.append(broker)
            remaining = order
        self._partition += 1
        self._first += 1
        return tuple(replicas)

    def _leader(self, order: list[str], replicas: list[BrokerId]) -> str:
        """Add the first replica, from the first rack with a broker that is not fenced."""
        for name in order:
            broker = self._racks[name].unfenced.next(self._partition)
            if broker is not None:
                replicas.append(broker)
                return name
        raise AssertionError("all brokers are fenced")

    def _shuffle_all(self) -> None:
        self._shuffle(self._names)
        for name in sorted(self._racks):
            self._shuffle(self._racks[name].unfenced.brokers)
            self._shuffle(self._racks[name].fenced.brokers)

    def _shuffle(self, values: list[T]) -> None:
        """Put the values into a random order (Fisher and Yates)."""
        for last in range(len(values) - 1, 0, -1):
            other = self._between(0, last)
            values[last], values[other] = values[other], values[last]
