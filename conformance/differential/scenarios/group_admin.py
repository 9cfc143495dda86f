"""DeleteGroups, OffsetDelete, ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from __future__ import annotations

from typing import Any

from conformance.differential.registry import scenario
from conformance.differential.scenarios.group_offsets import commit, fetched
from conformance.differential.scenarios.groups import member
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import offset_delete_request as od
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity

A_MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
LEAVES, LEAVES_FOR_A_WHILE = -1, -2


@scenario(ApiKey.DELETE_GROUPS)
def deleted(s: Session) -> None:
    topic = s.create()
    empty, kept, used = s.group("empty"), s.group("kept"), s.group("used")
    for group in (empty, kept):
        s.quiet(commit(group, topic, (0, 5)), 8)
    mine, _ = member(s, used)
    s.ask("none", DeleteGroupsRequest([]))
    s.ask("unknown", DeleteGroupsRequest([s.name("nobody")]))
    s.ask("no name", DeleteGroupsRequest([""]))
    s.ask("in use", DeleteGroupsRequest([used]))
    s.ask("good and bad", DeleteGroupsRequest([empty, used, s.name("nobody")]))
    s.ask("again", DeleteGroupsRequest([empty]))
    s.ask("its offsets", fetched(empty, {topic: [0]}), 7, on="other")
    s.ask("the other's offsets", fetched(kept, {topic: [0]}), 7, on="other")
    s.quiet(LeaveGroupRequest(used, mine), 2)
    s.ask("empty by now", DeleteGroupsRequest([used]))
    s.ask("described", DescribeGroupsRequest([used]), 5, on="other")


@scenario(ApiKey.DELETE_GROUPS)
def deleted_twice(s: Session) -> None:
    group = s.group()
    s.quiet(commit(group, s.create(), (0, 5)), 8)
    s.ask("twice", DeleteGroupsRequest([group, group]))
    s.ask("unknown twice", DeleteGroupsRequest([s.name("nobody")] * 2))


def forgotten(group: str, requested: dict[str, list[int]]) -> od.OffsetDeleteRequest:
    topics = [
        od.OffsetDeleteRequestTopic(name, [od.OffsetDeleteRequestPartition(p) for p in partitions])
        for name, partitions in requested.items()
    ]
    return od.OffsetDeleteRequest(group, topics)


@scenario(ApiKey.OFFSET_DELETE)
def offsets_deleted(s: Session) -> None:
    group, topic, other = s.group(), s.create("t", 3), s.create("u")
    s.quiet(commit(group, topic, (0, 5), (1, 6), (2, 7)), 8)
    s.quiet(commit(group, other, (0, 8)), 8)
    s.ask("one", forgotten(group, {topic: [0]}))
    s.ask("again", forgotten(group, {topic: [0]}))
    s.ask("partition 7", forgotten(group, {topic: [7]}))
    s.ask("good and bad", forgotten(group, {topic: [1, 7], s.name("nobody"): [0]}))
    s.ask("unknown topic", forgotten(group, {s.name("nobody"): [0, 1]}))
    s.ask("no topic name", forgotten(group, {"": [0]}))
    s.ask("unknown group", forgotten(s.name("nobody"), {topic: [0]}))
    s.ask("no group", forgotten("", {topic: [0]}))
    s.ask("no topics", forgotten(group, {}))
    s.ask("no partitions", forgotten(group, {topic: []}))
    s.ask("what is kept", fetched(group, {topic: [0, 1, 2], other: [0]}), 7, on="other")


@scenario(ApiKey.OFFSET_DELETE)
def offsets_of_members(s: Session) -> None:
    """Delete offsets of a group whose only member has no subscription, then of an empty group."""
    group, topic = s.group(), s.create()
    s.quiet(commit(group, topic, (0, 5)), 8)
    mine, _ = member(s, group)
    s.ask("not subscribed to", forgotten(group, {topic: [0]}))
    s.quiet(LeaveGroupRequest(group, mine), 2)
    s.ask("nobody is in it", forgotten(group, {topic: [0]}))
    s.ask("what is kept", fetched(group, {topic: [0]}), 7, on="other")


@scenario(ApiKey.OFFSET_DELETE)
def offsets_of_another_type(s: Session) -> None:
    group, topic = s.group(), s.create()
    s.quiet(commit(group, topic, (0, 5)), 8)
    member(s, group, protocol_type="connect")
    s.ask("of a group of workers", forgotten(group, {topic: [0]}))
    s.ask("what is kept", fetched(group, {topic: [0]}), 7, on="other")


def beat(
    group: str, who: str, epoch: int, topics: list[str] | None = None, **options: Any
) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat. It has all fields of a new member when `epoch` is 0."""
    if epoch == 0:
        options = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **options}
    return ConsumerGroupHeartbeatRequest(
        group, who, epoch, subscribed_topic_names=topics, **options
    )


def own(topic_id: bytes, *partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id, list(partitions))]


def epoch_of(response: Any) -> int:
    """Return the member epoch of a response, or 1 without one: later steps then differ."""
    return response.member_epoch if response is not None else 1


@scenario(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_alone(s: Session) -> None:
    group, topic = s.group(), s.create("t", 2)
    topic_id = s.topic_id(topic)
    s.plainer.alias("topic_id", topic_id)
    epoch = epoch_of(s.ask("joins", beat(group, A_MEMBER, 0, [topic])))
    s.ask("beats", beat(group, A_MEMBER, epoch))
    owned = own(topic_id, 0, 1)
    s.ask("acknowledges", beat(group, A_MEMBER, epoch, topic_partitions=owned))
    s.ask("says it all", beat(group, A_MEMBER, epoch, [topic], topic_partitions=owned))
    s.ask("an epoch ahead", beat(group, A_MEMBER, epoch + 1))
    s.ask("joins again", beat(group, A_MEMBER, 0, [topic]))
    epoch = epoch_of(s.ask("subscribes to nothing", beat(group, A_MEMBER, epoch, [])))
    s.ask("acknowledges nothing", beat(group, A_MEMBER, epoch, topic_partitions=[]))
    s.ask("a member that is not", beat(group, "B" * 22, epoch))
    s.ask("leaves", beat(group, A_MEMBER, LEAVES))
    s.ask("leaves again", beat(group, A_MEMBER, LEAVES))
    s.ask("beats then", beat(group, A_MEMBER, epoch))
    s.ask("described", ConsumerGroupDescribeRequest([group]), 1, on="other")


@scenario(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def refused_beats(s: Session) -> None:
    group, topic = s.group(), s.create()
    s.ask("no group", beat("", A_MEMBER, 0, [topic]))
    s.ask("blank group", beat("  ", A_MEMBER, 0, [topic]))
    s.ask("no member", beat(group, "", 0, [topic]))
    s.ask("no member beats", beat(group, "", 1))
    s.ask("unknown group", beat(s.name("nobody"), A_MEMBER, 1))
    s.ask("leaves an unknown group", beat(s.name("nobody"), A_MEMBER, LEAVES))
    s.ask("no topics told", beat(group, A_MEMBER, 0))
    s.ask("no time-out", beat(group, A_MEMBER, 0, [topic], rebalance_timeout_ms=-1))
    owned = own(b"\7" * 16, 0)
    s.ask("joins with partitions", beat(group, A_MEMBER, 0, [topic], topic_partitions=owned))
    s.ask("joins without them", beat(group, A_MEMBER, 0, [topic], topic_partitions=None))
    s.ask("no instance", beat(group, A_MEMBER, 0, [topic], instance_id=""))
    s.ask("no rack", beat(group, A_MEMBER, 0, [topic], rack_id=""))
    s.ask("unknown assignor", beat(group, A_MEMBER, 0, [topic], server_assignor="sticky"))
    s.ask("epoch -2, no instance", beat(group, A_MEMBER, LEAVES_FOR_A_WHILE))
    s.ask("epoch -3", beat(group, A_MEMBER, -3))
    if s.version >= 1:
        s.ask("bad regex", beat(group, A_MEMBER, 0, subscribed_topic_regex="("))


@scenario(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumers_together(s: Session) -> None:
    """A second member joins. The first member revokes a partition, which the second gets."""
    group, topic = s.group(), s.create("t", 2)
    topic_id = s.topic_id(topic)
    s.plainer.alias("topic_id", topic_id)
    first, second = A_MEMBER, "B" * 22
    options: dict[str, Any] = {"server_assignor": "range"}
    both, one, other = own(topic_id, 0, 1), own(topic_id, 0), own(topic_id, 1)
    at = epoch_of(s.ask("a joins", beat(group, first, 0, [topic], **options)))
    s.ask("a owns", beat(group, first, at, topic_partitions=both))
    s.ask("b joins", beat(group, second, 0, [topic], **options))
    s.ask("a hears", beat(group, first, at, topic_partitions=both))
    s.ask("b waits", beat(group, second, at + 1, topic_partitions=[]))
    s.ask("a gives up", beat(group, first, at, topic_partitions=one))
    s.ask("b gets", beat(group, second, at + 1, topic_partitions=[]))
    s.ask("b owns", beat(group, second, at + 1, topic_partitions=other))
    s.ask("described", ConsumerGroupDescribeRequest([group]), 1, on="other")
    s.ask("a leaves", beat(group, first, LEAVES))
    s.ask("b hears", beat(group, second, at + 1, topic_partitions=other))


@scenario(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def static_consumers(s: Session) -> None:
    group, topic = s.group(), s.create()
    s.plainer.alias("topic_id", s.topic_id(topic))
    first, second = A_MEMBER, "B" * 22
    at = epoch_of(s.ask("joins", beat(group, first, 0, [topic], instance_id="i-1")))
    s.ask("another in its place", beat(group, second, 0, [topic], instance_id="i-1"))
    s.ask("beats with another", beat(group, first, at, instance_id="i-2"))
    s.ask("leaves for a while", beat(group, first, LEAVES_FOR_A_WHILE, instance_id="i-1"))
    s.ask("is replaced", beat(group, second, 0, [topic], instance_id="i-1"))
    s.ask("the replaced one", beat(group, first, at, instance_id="i-1"))
    s.ask("leaves", beat(group, second, LEAVES, instance_id="i-1"))


@scenario(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def both_protocols(s: Session) -> None:
    """Send requests of each group protocol to a group of the other protocol."""
    classic, consumer, topic = s.group("classic"), s.group("consumer"), s.create()
    s.plainer.alias("topic_id", s.topic_id(topic))
    member(s, classic, protocol_type="connect")
    s.ask("to a group of workers", beat(classic, A_MEMBER, 0, [topic]))
    at = epoch_of(s.ask("joins", beat(consumer, A_MEMBER, 0, [topic])))
    s.ask("old heartbeat", HeartbeatRequest(consumer, 1, "nobody"), 4, on="other")
    leave = LeaveGroupRequest(consumer, "", [MemberIdentity("nobody")])
    s.ask("old leave", leave, 5, on="other")
    s.ask("old description", DescribeGroupsRequest([consumer]), 5, on="other")
    s.ask("deleted in use", DeleteGroupsRequest([consumer]), 2, on="other")
    simple = commit(consumer, topic, (0, 1))
    s.ask("simple commit", simple, 9, on="other")
    for step, epoch in (("at its epoch", at), ("ahead", at + 1), ("at 0", 0)):
        request = commit(consumer, topic, (0, 1), generation=epoch, who=A_MEMBER)
        s.ask(f"commit {step}", request, 9, on="other")
    s.ask("forgotten", forgotten(consumer, {topic: [0]}), 0, on="other")
    s.ask("leaves", beat(consumer, A_MEMBER, LEAVES))
    s.ask("deleted", DeleteGroupsRequest([consumer]), 2, on="other")


@scenario(ApiKey.CONSUMER_GROUP_DESCRIBE)
def consumers_described(s: Session) -> None:
    group, classic, topic = s.group(), s.group("classic"), s.create("t", 2)
    s.plainer.alias("topic_id", s.topic_id(topic))
    s.ask("unknown", ConsumerGroupDescribeRequest([s.name("nobody")]))
    s.ask("no name", ConsumerGroupDescribeRequest([""]))
    s.ask("none", ConsumerGroupDescribeRequest([]))
    s.quiet(beat(group, A_MEMBER, 0, [topic], rack_id="r"), 1)
    s.ask("a member", ConsumerGroupDescribeRequest([group]))
    s.ask("operations", ConsumerGroupDescribeRequest([group], True))
    member(s, classic)
    s.ask("classic", ConsumerGroupDescribeRequest([classic]))
    s.ask("good and bad", ConsumerGroupDescribeRequest([group, s.name("nobody"), ""]))
    s.ask("twice", ConsumerGroupDescribeRequest([group, group]))
    s.quiet(beat(group, A_MEMBER, LEAVES), 1)
    s.ask("empty", ConsumerGroupDescribeRequest([group]))
