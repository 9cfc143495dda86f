"""Conversion of classic groups with members to consumer groups, and back. Pure.

Kafka's rules (``ConsumerGroup.fromClassicGroup``, ``ClassicGroup.fromConsumerGroup``). The members
keep their partitions. The subscription and the assignment of a classic member are in the metadata
of the embedded consumer protocol, by topic name. A consumer group has topic ids.
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
    """Return the version at the beginning of a consumer's metadata. Raise MalformedMessage."""
    if len(data) < _VERSION.size:
        raise MalformedMessage("consumer metadata without a version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedMessage(f"consumer metadata of version {version}")
    return version


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return the subscription of a consumer. A later version is read as the last known version."""
    version = min(read_version(metadata), ConsumerProtocolSubscription.MAX_VERSION)
    return codec.decode(ConsumerProtocolSubscription, version, memoryview(metadata), _VERSION.size)


def read_held(assignment: bytes, image: MetadataImage) -> Assignment:
    """Return the assignment of a classic member. Empty bytes stand for no partitions."""
    if not assignment:
        return NO_PARTITIONS
    version = min(read_version(assignment), ConsumerProtocolAssignment.MAX_VERSION)
    read = codec.decode(ConsumerProtocolAssignment, version, memoryview(assignment), _VERSION.size)
    return by_topic_id(read.assigned_partitions, image)


def by_topic_id(
    held: Iterable[TopicPartition | AssignedPartitions], image: MetadataImage
) -> Assignment:
    """Return partitions by topic id, without the topics that do not exist."""
    found: dict[Uuid, frozenset[int]] = {}
    for each in held:
        topic = image.topics_by_name.get(TopicName(each.topic))
        if topic is not None and each.partitions:
            found[topic.topic_id] = frozenset(each.partitions)
    return found


def held_bytes(held: Assignment, version: int, image: MetadataImage) -> bytes:
    """Return the bytes of an assignment for a classic member, in the member's version."""
    version = max(0, min(version, ConsumerProtocolAssignment.MAX_VERSION))
    by_name: dict[str, list[int]] = {}
    for topic_id in sorted(held):
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            by_name[topic.name] = sorted(held[topic_id])
    message = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedPartitions(name, each) for name, each in by_name.items()]
    )
    return _VERSION.pack(version) + codec.encode(message, version)


# -- up --------------------------------------------------------------------------------------------


def to_consumer(classic: ClassicGroup, image: MetadataImage) -> ConsumerGroup | None:
    """Return the consumer group of a classic group's members.

    The result is None when the members' metadata cannot be read. In the new group the members keep
    their partitions, and the epochs are the generation of the classic group.
    """
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
    """Return whether the group may become a classic group without the members in `gone`.

    The last members of the consumer protocol are among `gone`, some members remain, and they are
    at most `max_size`.
    """
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
    """Return the classic group of a consumer group's members.

    The result is None when the members' metadata cannot be read. The new group is stable, and its
    generation is the epoch of the consumer group.

    Args:
        group: The consumer group.
        gone: The ids of the members that leave.
        joins: The static member that replaces one of them, or None.
        image: The metadata with the names of topics.
        now: The time of the new state.
    """
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
