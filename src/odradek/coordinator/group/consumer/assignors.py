"""The server's assignors of partitions to the members of a consumer group. Pure, deterministic.

``uniform`` gives all members as nearly the same number of partitions as their subscriptions allow.
It is sticky: it moves as few partitions as possible. ``range`` gives each member a contiguous range
of every topic. The ranges are the same in topics with equally many partitions, so that records can
be joined. Static members come first, in the order of their instance ids. Kafka's classes are
``UniformAssignor`` and ``RangeAssignor``. Where several assignments are equally good, they may
choose another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby, repeat
from operator import itemgetter
from typing import NamedTuple

from odradek.coordinator.group.consumer.consumer_member import (
    NO_PARTITIONS,
    Assignment,
)
from odradek.ids import Uuid

TopicIdPartition = tuple[Uuid, int]
_TOPIC_ID = itemgetter(0)


class Subscriber(NamedTuple):
    """A member, the ids of the topics to which it subscribes, and its present target assignment."""

    member_id: str
    instance_id: str | None
    topics: frozenset[Uuid]
    target: Assignment = NO_PARTITIONS


# (subscribers, number of partitions by topic) -> target assignment by member.
Assignor = Callable[[list[Subscriber], Mapping[Uuid, int]], dict[str, Assignment]]


def range_assignor(
    subscribers: list[Subscriber], counts: Mapping[Uuid, int]
) -> dict[str, Assignment]:
    """Assign contiguous ranges of each topic.

    The ranges of the first members may be longer by one.
    """
    ordered = sorted(
        subscribers, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id)
    )
    targets: dict[str, dict[Uuid, frozenset[int]]] = {each.member_id: {} for each in subscribers}
    for topic_id, count in counts.items():
        readers = [each.member_id for each in ordered if topic_id in each.topics]
        start = 0
        for number, member_id in enumerate(readers):
            size = count // len(readers) + (number < count % len(readers))
            if size:
                targets[member_id][topic_id] = frozenset(range(start, start + size))
            start += size
    return dict(targets)


def uniform_assignor(
    subscribers: list[Subscriber], counts: Mapping[Uuid, int]
) -> dict[str, Assignment]:
    """Assign partitions as evenly as the subscriptions allow, and move as few as possible."""
    return _Uniform(subscribers, counts).assigned()


class _Uniform:
    """One computation of the uniform assignor.

    `held` maps a member to its partitions by topic, `sizes` to their number. `taken` has the
    partitions of each topic that have a member.
    """

    def __init__(self, subscribers: list[Subscriber], counts: Mapping[Uuid, int]) -> None:
        self.subscribers = {each.member_id: each for each in subscribers}
        self.same = len({each.topics for each in subscribers}) == 1
        self.counts = counts
        self.readers: dict[Uuid, list[str]] = {
            topic_id: [each.member_id for each in subscribers if topic_id in each.topics]
            for topic_id in counts
        }
        self.held: dict[str, dict[Uuid, set[int]]] = {each.member_id: {} for each in subscribers}
        self.sizes = dict.fromkeys(self.held, 0)
        self.taken: dict[Uuid, set[int]] = {topic_id: set() for topic_id in counts}

    def assigned(self) -> dict[str, Assignment]:
        self._keep()
        self._hand_out()
        while not self.same and self._balance():
            pass
        return {
            member_id: {topic_id: frozenset(held[topic_id]) for topic_id in sorted(held)}
            for member_id, held in self.held.items()
        }

    def _keep(self) -> None:
        """Let each member keep the partitions of its present target where possible.

        A member keeps a partition only if it still subscribes to the topic. When all members
        subscribe to the same topics, a member keeps at most its even share. A partition in two
        targets stays with the first member.
        """
        total = sum(count for topic, count in self.counts.items() if self.readers[topic])
        share, extra = divmod(total, max(len(self.subscribers), 1))
        for subscriber in self.subscribers.values():
            kept = {
                topic_id: self._existing(topic_id, subscriber.target[topic_id])
                for topic_id in sorted(subscriber.target)
                if topic_id in subscriber.topics and topic_id in self.counts
            }
            keep = sum(map(len, kept.values()))
            if self.same and keep > share:
                keep = share + (extra > 0)
                extra -= extra > 0
            for topic_id, partitions in kept.items():
                first = sorted(partitions)[:keep] if len(partitions) > keep else partitions
                self._give(topic_id, first, subscriber.member_id)
                keep -= len(first)

    def _existing(self, topic_id: Uuid, partitions: frozenset[int]) -> frozenset[int]:
        """Return the partitions that exist and have no member."""
        free = partitions - self.taken[topic_id]
        if max(free, default=-1) < self.counts[topic_id]:
            return free
        return free.intersection(range(self.counts[topic_id]))

    def _give(self, topic_id: Uuid, partitions: Collection[int], member_id: str) -> None:
        """Assign partitions of one topic that have no member."""
        if partitions:
            self.held[member_id].setdefault(topic_id, set()).update(partitions)
            self.sizes[member_id] += len(partitions)
            self.taken[topic_id].update(partitions)

    def _hand_out(self) -> None:
        """Assign unowned partitions to the least loaded subscriber.

        Start with the topics that have the fewest subscribers.
        """
        topics = sorted(self.counts, key=lambda topic_id: len(self.readers[topic_id]))
        for readers, same in groupby(topics, self.readers.__getitem__):
            if readers:
                self._deal(readers, [each for topic_id in same for each in self._free(topic_id)])

    def _free(self, topic_id: Uuid) -> Iterable[TopicIdPartition]:
        taken, count = self.taken[topic_id], self.counts[topic_id]
        if len(taken) == count:
            return ()
        return zip(repeat(topic_id), [each for each in range(count) if each not in taken])

    def _deal(self, readers: list[str], free: list[TopicIdPartition]) -> None:
        """Assign each partition to the least loaded reader, and the first one in order of ids.

        The least loaded readers take turns until they have as many partitions as the next one.
        """
        more = deque(sorted((self.sizes[each], each) for each in readers))
        least: list[str] = []
        start = 0
        while start < len(free):
            size = more[0][0] if more else 0
            while more and more[0][0] == size:
                least.append(more.popleft()[1])
            least.sort()
            turns = more[0][0] - size if more else len(free)
            dealt = free[start : start + turns * len(least)]
            start += len(dealt)
            for number, member_id in enumerate(least[: len(dealt)]):
                for topic_id, of_topic in groupby(dealt[number :: len(least)], _TOPIC_ID):
                    self._give(topic_id, [each for _, each in of_topic], member_id)

    def _balance(self) -> bool:
        """Move partitions one by one to members with at least two fewer.

        Return whether one was moved. Each move reduces the sum of squares, so the loop ends.
        """
        moved = False
        for topic_id, readers in self.readers.items():
            if len(readers) < 2:
                continue
            while True:
                least = min(readers, key=lambda each: (self.sizes[each], each))
                givers = [each for each in readers if topic_id in self.held[each]]
                most = max(givers, key=lambda each: (self.sizes[each], each), default=None)
                if most is None or self.sizes[most] < self.sizes[least] + 2:
                    break
                self._move(topic_id, most, least)
                moved = True
        return moved

    def _move(self, topic_id: Uuid, giver: str, taker: str) -> None:
        """Move the last partition of a topic."""
        held = self.held[giver][topic_id]
        partition = max(held)
        held.remove(partition)
        if not held:
            del self.held[giver][topic_id]
        self.sizes[giver] -= 1
        self._give(topic_id, (partition,), taker)


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignor, "range": range_assignor}
