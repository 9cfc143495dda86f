"""The records of a change, and the plan of a single broker's start. Pure.

A single broker imports this module at its start, and `odradek.controller.plans` with the first
request.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from odradek.metadata import record_classes
from odradek.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage, TopicDeletion
from odradek.metadata.image_records import deletion_record
from odradek.metadata.records import MetadataRecord
from odradek.slicing import ELEMENTS_PER_SLICE, end_slice

R = TypeVar("R")


@dataclass(slots=True)
class Plan(Generic[R]):
    """The records of a change, and the results of its request if the records are written."""

    result: R
    records: list[MetadataRecord] = field(default_factory=list)


Planning = Generator[None, None, Plan[R]]

SHORT_STAGE_MAX = 20
"""Records or operations of a change whose next stage may begin in the same time slice.

The stages are the plan, the replay of its records, the encoding of the nodes, and the write.
"""


async def end_stage(elements: int) -> None:
    """End the time slice, unless the stage of a change has processed few elements."""
    if elements > SHORT_STAGE_MAX:
        await end_slice()


def planning_single_broker(image: MetadataImage, broker: BrokerRegistration) -> Planning[None]:
    """Plan the start of the only broker of a store, after its registration.

    It leads every partition. Each partition begins a new leader epoch, as after any restart. The
    new epoch distinguishes records that an unclean stop has lost from later ones at the same
    offsets (KIP-101). A partition has no leader if this broker has no replica of it, because the
    node's id was changed. No other broker can exist, so all other registrations end, and recorded
    deletions are this broker's.
    """
    plan: Plan[None] = Plan(None)
    for other in image.brokers.values():
        if other.id != broker.id:
            plan.records.append(record_classes.UnregisterBrokerRecord(other.id, other.epoch))
    for topic_id, deletion in image.deletions.items():
        if deletion.brokers != (broker.id,):
            own = TopicDeletion(deletion.name, (broker.id,))
            plan.records.append(deletion_record(topic_id, own))
    left = ELEMENTS_PER_SLICE
    for topic in image.topics_by_id.values():
        for partition in topic.partitions:
            record = record_classes.PartitionChangeRecord(
                partition.partition, topic.topic_id, leader=NO_LEADER
            )
            if broker.id in partition.replicas:
                record.leader = broker.id
                record.isr = [broker.id]
            plan.records.append(record)
            left -= 1
            if not left:
                left = ELEMENTS_PER_SLICE
                yield
    return plan
