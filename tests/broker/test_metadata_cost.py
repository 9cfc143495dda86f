"""A change of the metadata costs a broker what has changed, not what exists."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from odradek.ids import TopicName
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from tests.helpers.call_count import CallCount, count_calls
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster


def change_of_one_partition(image: MetadataImage) -> tuple[MetadataDelta, MetadataImage]:
    """Return a change of a partition that raises its partition epoch only."""
    topic = image.topics_by_name[TopicName("t")]
    delta = MetadataDelta(image)
    delta.replay(PartitionChangeRecord(3, topic.topic_id, isr=list(topic.partitions[3].isr)))
    at = MetadataProvenance(image.controller_id, image.controller_epoch, image.offset + 1)
    return delta, delta.apply(at)


def run_now(call: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that only ends time slices."""
    try:
        while True:
            call.send(None)
    except StopIteration:
        pass


def calls_of_a_change(tmp_path: Path, partitions: int) -> CallCount:
    counts: list[CallCount] = []

    async def test(cluster: ClusterBrokers) -> None:
        for name in ("t", "other"):
            await cluster.create_topic(name, partitions=partitions // 2)
        await cluster.create_topic("__consumer_offsets", partitions=5)
        services = cluster.servers[1].services
        assert services.coordinators.groups.runtime.shard(0) is not None
        publisher = cluster.member(1)._feed._publisher  # type: ignore[union-attr]

        def change() -> None:
            run_now(publisher.publish(*change_of_one_partition(publisher.image)))

        change()  # the first call fills caches
        before = publisher.image.offset
        counts.append(count_calls(change))
        assert publisher.image.offset == before + 1

    run_with_cluster(tmp_path / str(partitions), test, count=1)
    return counts[0]


def test_change_of_a_partition_makes_as_many_calls_with_10_000_partitions_as_with_10(
    tmp_path: Path, patient: None
) -> None:
    few, many = calls_of_a_change(tmp_path, 10), calls_of_a_change(tmp_path, 10_000)
    assert abs(few.total - many.total) <= 30, f"{few}\n\n{many}"
