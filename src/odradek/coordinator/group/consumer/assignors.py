"""The server's assignors of partitions to the members of a consumer group. Pure, deterministic.

``uniform`` gives all members as nearly the same number of partitions as their subscriptions allow.
It is sticky: it moves as few partitions as possible. ``range`` gives each member a contiguous range
of every topic. The ranges are the same in topics with equally many partitions, so that records can
be joined. Static members come first, in the order of their instance ids. Kafka's classes are
``UniformAssignor`` and ``RangeAssignor``. Where several assignments are equally good, they may
choose another one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.coordinator.group.consumer.consumer_member import (
    NO_PARTITIONS,
    Assignment,
    assignment_of,
    partitions_of,
)
from odradek.ids import Uuid

TopicIdPartition = tuple[Uuid, int]


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

    `holder` maps a partition to its member, `held` a member to its partitions.
    """

    def __init__(self, subscribers: list[Subscriber], counts: Mapping[Uuid, int]) -> None:
        self.subscribers = {each.member_id: each for each in subscribers}
        self.same = len({each.topics for each in subscribers}) == 1
        self.counts = counts
        self.readers: dict[Uuid, list[str]] = {
            topic_id: [each.member_id for each in subscribers if topic_id in each.topics]
            for topic_id in counts
        }
        self.held: dict[str, set[TopicIdPartition]] = {
            each.member_id: set() for each in subscribers
        }
        self.holder: dict[TopicIdPartition, str] = {}

    def assigned(self) -> dict[str, Assignment]:
        self._keep()
        self._hand_out()
        while not self.same and self._balance():
            pass
        return {member_id: assignment_of(sorted(held)) for member_id, held in self.held.items()}

    def _keep(self) -> None:
        """Let each member keep the partitions of its present target where possible.

        A member keeps a partition only if it still subscribes to the topic. When all members
        subscribe to the same topics, a member keeps at most its even share. A partition in two
        targets stays with the first member.
        """
        total = sum(count for topic, count in self.counts.items() if self.readers[topic])
        share, extra = divmod(total, max(len(self.subscribers), 1))
        for subscriber in self.subscribers.values():
            kept = sorted(
                partition
                for partition in partitions_of(subscriber.target)
                if partition[0] in subscriber.topics
                and partition[1] < self.counts.get(partition[0], 0)
                and partition not in self.holder
            )
            keep = len(kept)
            if self.same and keep > share:
                keep = share + (extra > 0)
                extra -= extra > 0
            for partition in kept[:keep]:
                self._give(partition, subscriber.member_id)

    def _give(self, partition: TopicIdPartition, member_id: str) -> None:
        before = self.holder.get(partition)
        if before is not None:
            self.held[before].discard(partition)
        self.holder[partition] = member_id
        self.held[member_id].add(partition)

    def _hand_out(self) -> None:
        """Assign unowned partitions to the least loaded subscriber.

        Start with the topics that have the fewest subscribers.
        """
        topics = sorted(self.counts, key=lambda topic_id: len(self.readers[topic_id]))
        heaps: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        for topic_id in topics:
            readers = self.readers[topic_id]
            if not readers:
                continue
            heap = heaps.get(tuple(readers))
            if heap is None:
                heap = heaps[tuple(readers)] = [(len(self.held[each]), each) for each in readers]
                heapq.heapify(heap)
            for number in range(self.counts[topic_id]):
                partition = (topic_id, number)
                if partition in self.holder:
                    continue
                while heap[0][0] != len(self.held[heap[0][1]]):
                    heapq.heapreplace(heap, (len(self.held[heap[0][1]]), heap[0][1]))
                self._give(partition, heap[0][1])
                heapq.heapreplace(heap, (heap[0][0] + 1, heap[0][1]))

    def _balance(self) -> bool:
        """Move partitions one by one to members with at least two fewer.

        Return whether one was moved. Each move reduces the sum of squares, so the loop ends.
        """
        moved = False
        for topic_id, readers in self.readers.items():
            if len(readers) < 2:
                continue
            while True:
                least = min(readers, key=lambda each: (len(self.held[each]), each))
                givers = [each for each in readers if self._has(each, topic_id)]
                most = max(givers, key=lambda each: (len(self.held[each]), each), default=None)
                if most is None or len(self.held[most]) < len(self.held[least]) + 2:
                    break
                self._give(max(p for p in self.held[most] if p[0] == topic_id), least)
                moved = True
        return moved

    def _has(self, member_id: str, topic_id: Uuid) -> bool:
        return any(partition[0] == topic_id for partition in self.held[member_id])


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignor, "range": range_assignor}
