"""Plans of elections and ISR changes that brokers and administrators request. Pure."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from odradek.controller import plans
from odradek.controller.alter_partition import (
    AlterPartition,
    AlterPartitionResult,
    alter_partition,
    find_partition,
)
from odradek.controller.balance import imbalanced_partitions
from odradek.controller.broker_changes import (
    ELECTION_COST,
    Policies,
    acceptable_leader,
    broker_record,
    with_directories,
)
from odradek.controller.election import (
    Election,
    ElectionPolicy,
    changed_partition,
    elect_preferred,
    elect_unclean,
)
from odradek.controller.plan import Plan, Planning
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import ZERO_UUID, BrokerId, TopicName, Uuid
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
    TopicDeletion,
    TopicImage,
    deletion_of,
)
from odradek.metadata.image_records import deletion_record, partition_change, partition_record
from odradek.metadata.records import MetadataRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.slicing import ELEMENTS_PER_SLICE

_ELECTIONS_PER_SLICE = ELEMENTS_PER_SLICE // ELECTION_COST

MOVES_A_DRAIN_STEP_MAX = 100
"""Leaderships that a step of a drain moves. The partitions of a step have no leader while brokers
apply it, which takes 0.5 to 0.9 s for 333 of them (862615fe).
"""


def planning_alter_partitions(
    image: MetadataImage,
    changes: Sequence[tuple[Uuid, int, AlterPartition]],
    policies: Policies,
) -> Planning[list[AlterPartitionResult]]:
    """Plan the ISR changes of an AlterPartition request, whose sender is checked (rule I4).

    A partition that occurs again is INVALID_REQUEST.
    """
    plan: Plan[list[AlterPartitionResult]] = Plan([])
    seen: set[tuple[Uuid, int]] = set()
    for count, (topic_id, number, request) in enumerate(changes, 1):
        if not count % _ELECTIONS_PER_SLICE:
            yield
        found = find_partition(image.topics_by_id, topic_id, number)
        if isinstance(found, ErrorCode):
            plan.result.append(AlterPartitionResult(found))
            continue
        if (topic_id, number) in seen:
            plan.result.append(AlterPartitionResult(ErrorCode.INVALID_REQUEST, found))
            continue
        seen.add((topic_id, number))
        policy = policies(image.topics_by_id[topic_id].name)
        acceptable = acceptable_leader(image.brokers, found)
        result = alter_partition(found, request, image.brokers, acceptable, policy)
        if result.changed:
            assert result.partition is not None
            _append(plan.records, partition_change(topic_id, found, result.partition))
        plan.result.append(result)
    return plan


def planning_directories(
    image: MetadataImage,
    broker: BrokerId,
    directories: Mapping[tuple[Uuid, int], Uuid],
    policies: Policies,
) -> Planning[dict[tuple[Uuid, int], ErrorCode]]:
    """Plan the log directories of a broker's replicas, and the elections that follow."""
    plan: Plan[dict[tuple[Uuid, int], ErrorCode]] = Plan({})
    for count, ((topic_id, number), directory) in enumerate(directories.items(), 1):
        if not count % _ELECTIONS_PER_SLICE:
            yield
        found = find_partition(image.topics_by_id, topic_id, number)
        if isinstance(found, ErrorCode):
            plan.result[topic_id, number] = found
            continue
        if broker not in found.replicas:
            plan.result[topic_id, number] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            continue
        assigned = list(found.directories) or [ZERO_UUID] * len(found.replicas)
        assigned[found.replicas.index(broker)] = directory
        if tuple(assigned) != found.directories:
            policy = policies(image.topics_by_id[topic_id].name)
            after = with_directories(found, tuple(assigned), image.brokers, policy)
            _append(plan.records, partition_change(topic_id, found, after))
        plan.result[topic_id, number] = ErrorCode.NONE
    return plan


def planning_topic_deletions(
    image: MetadataImage, ids: Sequence[Uuid]
) -> Planning[list[KafkaError | None]]:
    """Plan the deletion of topics. No deletion waits for a broker that is not registered."""
    plan = yield from plans.planning_topic_deletions(image, ids)
    for record in tuple(plan.records):
        yield  # The next call visits up to 10,000 partitions.
        assert isinstance(record, RemoveTopicRecord)
        deletion = deletion_of(image.topics_by_id[record.topic_id])
        known = tuple(each for each in deletion.brokers if each in image.brokers)
        if known != deletion.brokers:
            deletion = TopicDeletion(deletion.name, known)
            plan.records.append(deletion_record(record.topic_id, deletion))
    return plan


def planning_leader_epochs(
    image: MetadataImage, epochs: Mapping[tuple[Uuid, int], int]
) -> Planning[dict[tuple[Uuid, int], ErrorCode]]:
    """Plan that the leader epochs of partitions are at least the given ones.

    The leaders stay, and begin a leader epoch. The epochs of a mirrored partition follow those of
    its source, because its batches have the leader epochs of the source.
    """
    plan: Plan[dict[tuple[Uuid, int], ErrorCode]] = Plan({})
    for count, ((topic_id, number), epoch) in enumerate(epochs.items(), 1):
        if not count % ELEMENTS_PER_SLICE:
            yield
        found = find_partition(image.topics_by_id, topic_id, number)
        if isinstance(found, ErrorCode):
            plan.result[topic_id, number] = found
            continue
        plan.result[topic_id, number] = ErrorCode.NONE
        if epoch > found.leader_epoch:
            after = replace(found, leader_epoch=epoch, partition_epoch=found.partition_epoch + 1)
            _append(plan.records, partition_change(topic_id, found, after))
    return plan


def planning_requested_elections(
    image: MetadataImage,
    election: Election,
    partitions: Collection[tuple[TopicName, int]] | None,
    policies: Policies,
) -> Planning[dict[tuple[TopicName, int], KafkaError | None]]:
    """Plan an ElectLeaders request.

    Without partitions, the result has only the partitions that need an election.
    """
    plan: Plan[dict[tuple[TopicName, int], KafkaError | None]] = Plan({})
    requested = _all(image) if partitions is None else iter(partitions)
    elect = elect_preferred if election is Election.PREFERRED else elect_unclean
    for count, (name, number) in enumerate(requested, 1):
        if not count % _ELECTIONS_PER_SLICE:
            yield
        if (name, number) in plan.result:
            continue
        partition = image.partition(name, number)
        if partition is None:
            text = (
                f"No such topic as {name}"
                if name not in image.topics_by_name
                else (f"No such partition as {name}-{number}")
            )
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            plan.result[name, number] = error
            continue
        try:
            acceptable = acceptable_leader(image.brokers, partition)
            after = elect(partition, acceptable, policies(name))
        except KafkaError as error:
            if partitions is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                plan.result[name, number] = error
            continue
        topic_id = image.topics_by_name[name].topic_id
        _append(plan.records, partition_change(topic_id, partition, after))
        plan.result[name, number] = None
    return plan


def _all(image: MetadataImage) -> Generator[tuple[TopicName, int], None, None]:
    for topic in image.topics_by_name.values():
        for number in range(topic.partition_count):
            yield topic.name, number


def planning_balance(
    image: MetadataImage, policies: Policies, imbalance_percentage: int
) -> Generator[None, None, list[MetadataRecord]]:
    """Plan that first replicas lead again, where a broker leads too few of its partitions."""
    found = yield from imbalanced_partitions(
        image,
        lambda broker: image.is_eligible(broker) and not image.brokers[broker].drained,
        imbalance_percentage,
    )
    records: list[MetadataRecord] = []
    for count, (topic_id, number) in enumerate(found, 1):
        if not count % _ELECTIONS_PER_SLICE:
            yield
        topic = image.topics_by_id[topic_id]
        partition = topic.partitions[number]
        try:
            acceptable = acceptable_leader(image.brokers, partition)
            after = elect_preferred(partition, acceptable, policies(topic.name))
        except KafkaError:
            continue
        _append(records, partition_change(topic_id, partition, after))
    return records


@dataclass(slots=True)
class DrainStep:
    """A step of a drain.

    Attributes:
        is_last: No leadership is left to be moved.
        remaining: In the last step, the partitions that a drained broker still leads, because no
            other replica can.
    """

    is_last: bool = True
    remaining: list[tuple[TopicName, int]] = field(default_factory=list)


def planning_drain(
    image: MetadataImage,
    broker: BrokerId,
    drained: bool,
    policies: Policies,
    *,
    moves_max: int = MOVES_A_DRAIN_STEP_MAX,
    is_first: bool = True,
) -> Planning[DrainStep]:
    """Plan that a broker is drained, or no longer, and move up to `moves_max` leaderships.

    A later step moves nothing if another request has ended the drain, or begun it again.

    Other in-sync replicas get the leaderships of a drained broker, which stays in the ISRs. It gets
    them back, where it is the first replica, when it is no longer drained.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED.
    """
    before = image.brokers.get(broker)
    if before is None:
        text = f"Broker ID {broker} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
    plan = Plan(DrainStep())
    if before.drained != drained:
        if not is_first:
            return plan
        plan.records.append(broker_record(before, replace(before, drained=drained)))
    moves_left = moves_max
    avoided = {each for each, found in image.brokers.items() if found.drained} - {broker}
    avoided |= {broker} if drained else set()
    left = ELEMENTS_PER_SLICE
    for topic in image.topics_by_id.values():
        policy: ElectionPolicy | None = None
        for partition in topic.partitions:
            left -= 1
            if left <= 0:
                left = ELEMENTS_PER_SLICE
                yield
            if (broker == partition.leader) != drained or broker not in partition.replicas:
                continue
            left -= ELECTION_COST
            policy = policy or replace(policies(topic.name), avoided=frozenset(avoided))
            after = _drained_or_returned(image, partition, drained, broker, policy)
            _append(plan.records, partition_change(topic.topic_id, partition, after or partition))
            if drained and (after is None or after.leader == broker):
                plan.result.remaining.append((topic.name, partition.partition))
            moves_left -= after is not None and after.leader != partition.leader
            if moves_left <= 0:
                plan.result.is_last = False
                return plan
    return plan


def _drained_or_returned(
    image: MetadataImage,
    partition: PartitionImage,
    drained: bool,
    broker: BrokerId,
    policy: ElectionPolicy,
) -> PartitionImage | None:
    acceptable = acceptable_leader(image.brokers, partition)
    if drained:
        return changed_partition(partition, acceptable, policy, election=Election.ONLINE)
    if partition.replicas[0] != broker:
        return None
    try:
        return elect_preferred(partition, acceptable, policy)
    except KafkaError:
        return None  # it is not in sync


def _append(records: list[MetadataRecord], record: MetadataRecord | None) -> None:
    if record is not None:
        records.append(record)


def counting_led(image: MetadataImage, broker: BrokerId) -> Generator[None, None, int]:
    """Return the number of partitions that a broker leads."""
    led = 0
    left = ELEMENTS_PER_SLICE
    for topic in image.topics_by_id.values():
        for partition in topic.partitions:
            led += partition.leader == broker
            left -= 1
            if not left:
                left = ELEMENTS_PER_SLICE
                yield
    return led


def missing_partitions(
    unfinished: Collection[TopicImage],
    image: MetadataImage,
    brokers: Mapping[BrokerId, BrokerRegistration],
) -> Generator[None, None, list[MetadataRecord]]:
    """Return the records of partitions that a previous controller has not created."""
    records: list[MetadataRecord] = []
    for topic in unfinished:
        present = image.topics_by_id[topic.topic_id].partition_count
        for number in range(present, topic.partition_count):
            records.append(partition_record(topic.topic_id, topic.partitions[number]))
            if not len(records) % ELEMENTS_PER_SLICE:
                yield
    return (yield from with_live_leaders(records, image, brokers))


def with_live_leaders(
    records: list[MetadataRecord],
    image: MetadataImage,
    brokers: Mapping[BrokerId, BrokerRegistration],
) -> Generator[None, None, list[MetadataRecord]]:
    """Give partitions that the image lacks a live leader and an ISR of live replicas, as in Kafka.

    A partition whose replicas are all fenced has no leader. It never had a record, so its first
    replica is in sync. The record of an existing partition stays as it was planned.
    """
    for count, record in enumerate(records, 1):
        if isinstance(record, PartitionRecord) and not _exists(image, record):
            live = [each for each in record.replicas if _is_eligible(brokers, each)]
            first = sorted(live, key=lambda each: brokers[BrokerId(each)].drained)
            record.leader = first[0] if first else NO_LEADER
            record.isr = live or record.replicas[:1]
        if not count % ELEMENTS_PER_SLICE:
            yield
    return records


def _exists(image: MetadataImage, record: PartitionRecord) -> bool:
    topic = image.topics_by_id.get(record.topic_id)
    return topic is not None and record.partition_id < topic.partition_count


def _is_eligible(brokers: Mapping[BrokerId, BrokerRegistration], broker: int) -> bool:
    found = brokers.get(BrokerId(broker))
    return found is not None and not found.fenced and not found.in_controlled_shutdown
