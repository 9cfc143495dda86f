"""Classic groups that become consumer groups, and back, with their members in them. Pure.

Kafka's rules (``ConsumerGroup.fromClassicGroup``, ``ClassicGroup.fromConsumerGroup``): the members
keep what they hold. What a member of the classic protocol reads and holds stands in the metadata of
the embedded consumer protocol, by topic names; a consumer group knows topics by their ids.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from odradek.coordinator.coordinator_result import Timestamp
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import CONSUMER, GroupState, Member
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.consumer.consumer_member import (
    NO_PARTITIONS,
    Assignment,
    ClassicMember,
    ConsumerMember,
    partitions_of,
)
from odradek.ids import TopicName, Uuid
from odradek.metadata.image import MetadataImage
from odradek.protocol import codec
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from odradek.protocol.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedPartitions,
)
from odradek.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)

_VERSION = struct.Struct(">h")


def read_version(data: bytes) -> int:
    """The version in front of consumers' metadata; MalformedMessage without one."""
    if len(data) < _VERSION.size:
        raise MalformedMessage("consumer metadata has a version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedMessage(f"consumer metadata of version {version}")
    return version


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """A consumer's subscription; one of a later version is read as the last one known."""
    version = min(read_version(metadata), ConsumerProtocolSubscription.MAX_VERSION)
    return codec.decode(ConsumerProtocolSubscription, version, memoryview(metadata), _VERSION.size)


def read_held(assignment: bytes, image: MetadataImage) -> Assignment:
    """What a classic member was assigned; empty bytes are nothing."""
    if not assignment:
        return NO_PARTITIONS
    version = min(read_version(assignment), ConsumerProtocolAssignment.MAX_VERSION)
    read = codec.decode(ConsumerProtocolAssignment, version, memoryview(assignment), _VERSION.size)
    return by_topic_id(read.assigned_partitions, image)


def by_topic_id(
    held: Iterable[TopicPartition | AssignedPartitions], image: MetadataImage
) -> Assignment:
    """Partitions by topic id; of topics that do not exist nothing is held."""
    found: dict[Uuid, frozenset[int]] = {}
    for each in held:
        topic = image.topics_by_name.get(TopicName(each.topic))
        if topic is not None and each.partitions:
            found[topic.topic_id] = frozenset(each.partitions)
    return found


def held_bytes(held: Assignment, version: int, image: MetadataImage) -> bytes:
    """An assignment as classic members are told it, in the version that they speak."""
    version = max(0, min(version, ConsumerProtocolAssignment.MAX_VERSION))
    by_name: dict[str, list[int]] = {}
    for topic_id, partition in sorted(partitions_of(held)):
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            by_name.setdefault(topic.name, []).append(partition)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedPartitions(name, each) for name, each in by_name.items()]
    )
    return _VERSION.pack(version) + codec.encode(message, version)


# -- up --------------------------------------------------------------------------------------------


def to_consumer(classic: ClassicGroup, image: MetadataImage) -> ConsumerGroup | None:
    """The consumer group of these members, who all hold what they held, in the epoch of the
    generation; None when their metadata cannot be read."""
    group = ConsumerGroup(
        classic.group_id, epoch=classic.generation_id, target_epoch=classic.generation_id
    )
    try:
        for member in classic.members.values():
            joined = _to_consumer_member(classic, member, image)
            group.targets[joined.member_id] = joined.assigned
            group.put_member(joined)
    except (KeyError, MalformedMessage):
        return None
    return group


def _to_consumer_member(
    classic: ClassicGroup, member: Member, image: MetadataImage
) -> ConsumerMember:
    subscription = read_subscription(
        member.protocols[classic.protocol_name or classic.select_protocol()]
    )
    return ConsumerMember(
        member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        classic=ClassicMember(member.session_timeout_ms, tuple(member.protocols.items())),
        member_epoch=classic.generation_id,
        previous_member_epoch=classic.generation_id,
        assigned=read_held(member.assignment, image),
    )


# -- down ------------------------------------------------------------------------------------------


def may_downgrade(group: ConsumerGroup, gone: set[str], max_size: int) -> bool:
    """Whether, without the members that go, all speak the classic protocol, and are not too
    many."""
    left = [member for each, member in group.members.items() if each not in gone]
    some_modern = any(
        member.classic is None for each, member in group.members.items() if each in gone
    )
    return (
        some_modern
        and bool(left)
        and len(left) <= max_size
        and all(member.classic is not None for member in left)
    )


def to_classic(
    group: ConsumerGroup,
    gone: set[str],
    joins: ConsumerMember | None,
    image: MetadataImage,
    now: Timestamp,
) -> ClassicGroup | None:
    """The classic group of the members that stay, and of the static member that replaces one:
    stable in the generation of the group's epoch; None when their metadata cannot be read."""
    members = [member for each, member in group.members.items() if each not in gone]
    if joins is not None:
        members.append(joins)
    classic = ClassicGroup(
        group.group_id,
        GroupState.STABLE,
        generation_id=group.epoch,
        protocol_type=CONSUMER,
        state_timestamp_ms=now.time_ms,
    )
    for member in members:
        assert member.classic is not None
        classic.add(_to_classic_member(member, member.classic), None)
    if joins is not None:
        classic.leader_id = joins.member_id
    names = [set(member.protocols) for member in classic.members.values()]
    if not names or not set.intersection(*names):
        return None
    classic.protocol_name = classic.select_protocol()
    try:
        for member in members:
            metadata = classic.members[member.member_id].protocols[classic.protocol_name]
            target = group.target_of(member.member_id, member.instance_id)
            classic.members[member.member_id].assignment = held_bytes(
                target, read_version(metadata), image
            )
    except MalformedMessage:
        return None
    classic.update_subscribed_topics()
    return classic


def _to_classic_member(member: ConsumerMember, classic: ClassicMember) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        dict(classic.protocols),
    )
