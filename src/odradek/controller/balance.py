"""Balance of leaders: which partitions should return to their preferred leader. Pure decisions.

The preferred leader of a partition is its first replica. After a restart a broker leads nothing,
until the controller moves the leadership back. It checks every
``leader.imbalance.check.interval.seconds`` if ``auto.leader.rebalance.enable`` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from odradek.ids import BrokerId, Uuid
from odradek.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from odradek.slicing import ELEMENTS_PER_SLICE

# Most leaderships that one check moves (MAX_ELECTIONS_PER_IMBALANCE). The next check continues.
ELECTIONS_PER_CHECK_MAX = 1_000


@dataclass(slots=True)
class _PreferredPartitions:
    """The partitions whose preferred leader is one broker: their number, and those it can get."""

    count: int
    led_by_others: int
    available: list[tuple[Uuid, int]]


def imbalanced_partitions(
    image: MetadataImage,
    acceptable: Callable[[BrokerId], bool],
    imbalance_per_broker_percentage: int,
) -> Generator[None, None, list[tuple[Uuid, int]]]:
    """Find partitions (topic id, number) to elect the preferred leader for, in time slices.

    Only brokers count of whose preferred partitions more than the percentage is led by others. The
    image may change between slices, so `elect_preferred` decides again on each partition.
    """
    by_broker: dict[BrokerId, _PreferredPartitions] = {}
    left = ELEMENTS_PER_SLICE
    for topic in image.topics_by_name.values():
        for partition in topic.partitions:
            left -= 1
            if left <= 0:
                left = ELEMENTS_PER_SLICE
                yield
            preferred = partition.replicas[0]
            known = by_broker.get(preferred)
            if known is None:
                known = by_broker[preferred] = _PreferredPartitions(0, 0, [])
            known.count += 1
            if partition.leader != preferred:
                known.led_by_others += 1
                if _can_return(partition, acceptable):
                    known.available.append((topic.topic_id, partition.partition))
    found: list[tuple[Uuid, int]] = []
    for broker in sorted(by_broker):
        known = by_broker[broker]
        if known.led_by_others * 100 > imbalance_per_broker_percentage * known.count:
            found += known.available
    return found[:ELECTIONS_PER_CHECK_MAX]


def _can_return(partition: PartitionImage, acceptable: Callable[[BrokerId], bool]) -> bool:
    preferred = partition.replicas[0]
    return partition.leader != NO_LEADER and preferred in partition.isr and acceptable(preferred)
