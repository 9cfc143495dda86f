"""Committed offsets of a group, and start and end offsets of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.cli.client import wait
from odradek.cli.failures import Subject, partition_subject

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def committed_offsets(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    """Return the group's committed offsets."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    offsets = wait(future, Subject("group", group)).topic_partitions or []
    return {(tp.topic, tp.partition): tp.offset for tp in offsets if tp.offset >= 0}


def list_offsets(
    admin: AdminClient, partitions: Iterable[tuple[str, int]], where: str | int
) -> dict[tuple[str, int], int]:
    """Return one offset of each partition.

    Args:
        admin: The client to use.
        partitions: Topic and number of each partition.
        where: "earliest", "latest", or a timestamp in ms since 1970. The offset for a timestamp is
            -1 if the partition has no later record.
    """
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    spec = (
        OffsetSpec.for_timestamp(where)
        if isinstance(where, int)
        else {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}[where]()
    )
    request = {TopicPartition(t, p): spec for t, p in partitions}
    if not request:
        return {}
    futures = admin.list_offsets(request)
    return {
        (tp.topic, tp.partition): wait(future, partition_subject(tp.topic, tp.partition)).offset
        for tp, future in futures.items()
    }
