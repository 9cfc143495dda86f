"""Removal of offsets and groups by age or by request: tables of groups, offsets and times."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain

import pytest

from odradek.coordinator.group import offset_removal as removal
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState, Member
from odradek.coordinator.group.group_records import offset_commit_record
from odradek.coordinator.group.group_shard import GroupShard
from odradek.errors import ErrorCode
from odradek.protocol import codec
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

E = ErrorCode
RETENTION_MS = 1_000
NOW_MS = 100_000


def subscription(*topics: str, version: int = 1) -> bytes:
    """Return a consumer's metadata, as clients write it."""
    message = ConsumerProtocolSubscription(topics=list(topics))
    return struct.pack(">h", version) + codec.encode(message, version)


def member(metadata: bytes) -> Member:
    return Member("m", None, "c", "/h", 1, 1, {"range": metadata})


def shard_with(group: ClassicGroup | None = None) -> GroupShard:
    shard = GroupShard(0)
    if group is not None:
        group.update_subscribed_topics()
        shard.groups["g"] = group
    return shard


def commit(
    shard: GroupShard,
    topic: str = "t",
    partition: int = 0,
    *,
    at_ms: int = NOW_MS - RETENTION_MS,
    expire_ms: int = -1,
    producer: int = -1,
) -> None:
    value = OffsetCommitValue(
        offset=1, metadata="", commit_timestamp=at_ms, expire_timestamp=expire_ms
    )
    record = offset_commit_record(OffsetCommitKey("g", topic, partition), value)
    if producer == -1:
        shard.replay(0, record.key, record.value)
    else:
        shard.replay_transactional(0, producer, record.key, record.value)


def consumers(state: GroupState, metadata: bytes, protocol_type: str = "consumer") -> ClassicGroup:
    members = {"m": member(metadata)}
    return ClassicGroup(
        "g", state, protocol_type=protocol_type, protocol_name="range", members=members
    )


def emptied(at_ms: int) -> ClassicGroup:
    return ClassicGroup("g", protocol_type="consumer", state_timestamp_ms=at_ms)


def removed(shard: GroupShard) -> list[str]:
    """Expire offsets and replay the tombstones. Return the topics, and "group" for the group."""
    names = []
    for group_id in list(shard.groups):
        for records in removal.expiring(shard, group_id, NOW_MS, RETENTION_MS):
            for record in records:
                assert record.value is None
                names.append(getattr(record.key, "topic", "group"))
                shard.replay(0, record.key, None)
    return names


OLD, NEW = NOW_MS - RETENTION_MS, NOW_MS - RETENTION_MS + 1


@pytest.mark.parametrize(
    ("group", "committed_ms", "expected"),
    [
        # A consumer that assigns its partitions itself has no members: from the commit on.
        (lambda: ClassicGroup("g"), OLD, ["t", "group"]),
        (lambda: ClassicGroup("g"), NEW, []),
        # A group that had members: from the time at which it became empty, not from the commit.
        (lambda: emptied(OLD), NEW, ["t", "group"]),
        (lambda: emptied(NEW), OLD, []),
        # A record of an old broker has no time at which the group became empty: from the commit on.
        (lambda: emptied(-1), OLD, ["t", "group"]),
        (lambda: emptied(-1), NEW, []),
        # Consumers keep the offsets of their topics, and no others.
        (lambda: consumers(GroupState.STABLE, subscription("t")), OLD, []),
        (lambda: consumers(GroupState.STABLE, subscription("u", version=3)), OLD, ["t"]),
        (lambda: consumers(GroupState.STABLE, subscription("u")), NEW, []),
        (lambda: consumers(GroupState.PREPARING_REBALANCE, subscription("u")), OLD, []),
        (lambda: consumers(GroupState.COMPLETING_REBALANCE, subscription("u")), OLD, []),
        # The subscriptions cannot be read: no offset expires.
        (lambda: consumers(GroupState.STABLE, b"\0"), OLD, []),
        (lambda: consumers(GroupState.STABLE, b"\0\1\xff\xff"), OLD, []),
        (lambda: consumers(GroupState.STABLE, subscription("u"), "connect"), OLD, []),
    ],
)
def test_offsets_expire_by_the_state_of_their_group(
    group: Callable[[], ClassicGroup], committed_ms: int, expected: list[str]
) -> None:
    shard = shard_with(group())
    commit(shard, at_ms=committed_ms)
    assert removed(shard) == expected
    assert ("g" in shard.groups) == ("group" not in expected)


@pytest.mark.parametrize(("expire_ms", "expected"), [(NOW_MS, True), (NOW_MS + 1, False)])
def test_retention_time_of_an_old_client_has_precedence(expire_ms: int, expected: bool) -> None:
    shard = shard_with()
    commit(shard, expire_ms=expire_ms, at_ms=0)
    assert removed(shard) == (["t", "group"] if expected else [])


def test_group_stays_while_it_has_an_offset() -> None:
    shard = shard_with(ClassicGroup("g"))
    commit(shard, "old", at_ms=OLD)
    commit(shard, "new", at_ms=NEW)
    assert removed(shard) == ["old"]
    assert "g" in shard.groups


def test_empty_group_without_offsets_is_removed() -> None:
    assert removed(shard_with(emptied(NOW_MS))) == ["group"]


def test_open_transactions_keep_their_offsets_and_their_group() -> None:
    shard = shard_with(ClassicGroup("g"))
    commit(shard, "both")
    commit(shard, "both", producer=7)
    commit(shard, "plain")
    assert removed(shard) == ["plain"]
    shard.end_transaction(7, True)
    assert removed(shard) == ["both", "group"]


def test_group_with_an_open_transaction_stays_when_its_offsets_expire() -> None:
    shard = shard_with(ClassicGroup("g"))
    commit(shard, "expired")
    commit(shard, "added", producer=7)
    assert removed(shard) == ["expired"]
    shard.end_transaction(7, False)
    assert removed(shard) == ["group"]


def test_group_with_pending_offsets_only_stays_until_their_transaction_ends() -> None:
    shard = shard_with()
    commit(shard, producer=7)
    assert removed(shard) == []
    shard.end_transaction(7, False)
    assert removed(shard) == ["group"]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (None, E.GROUP_ID_NOT_FOUND),
        (ClassicGroup("g"), E.NONE),
        (ClassicGroup("g", GroupState.DEAD), E.GROUP_ID_NOT_FOUND),
        (consumers(GroupState.STABLE, b""), E.NON_EMPTY_GROUP),
        (consumers(GroupState.PREPARING_REBALANCE, b""), E.NON_EMPTY_GROUP),
        (consumers(GroupState.COMPLETING_REBALANCE, b""), E.NON_EMPTY_GROUP),
    ],
)
def test_only_groups_without_members_are_deleted(
    group: ClassicGroup | None, expected: ErrorCode
) -> None:
    shard = shard_with(group)
    if group is not None:
        commit(shard, "both")
        commit(shard, "both", producer=7)
        commit(shard, "pending", producer=7)
    code, pieces = removal.delete_group(shard, "g")
    records = list(chain.from_iterable(pieces))
    assert code is expected
    assert [getattr(each.key, "topic", "group") for each in records] == (
        ["both", "pending", "group"] if code is E.NONE else []
    )


@pytest.mark.parametrize(
    ("group", "whole", "of_topic"),
    [
        (None, E.GROUP_ID_NOT_FOUND, None),
        (ClassicGroup("g", GroupState.DEAD), E.GROUP_ID_NOT_FOUND, None),
        (ClassicGroup("g"), E.NONE, E.NONE),
        (emptied(0), E.NONE, E.NONE),
        (consumers(GroupState.STABLE, subscription("t")), E.NONE, E.GROUP_SUBSCRIBED_TO_TOPIC),
        (consumers(GroupState.STABLE, subscription("u")), E.NONE, E.NONE),
        (consumers(GroupState.STABLE, b"junk"), E.NONE, E.GROUP_SUBSCRIBED_TO_TOPIC),
        (consumers(GroupState.STABLE, b"", "connect"), E.NON_EMPTY_GROUP, None),
    ],
)
def test_offsets_of_topics_without_subscribers_are_deleted(
    group: ClassicGroup | None, whole: ErrorCode, of_topic: ErrorCode | None
) -> None:
    shard = shard_with(group)
    if group is not None:
        commit(shard, partition=0)
        commit(shard, partition=1, producer=7)
    partitions = [OffsetDeleteRequestPartition(index) for index in (0, 1, 2)]
    request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", partitions)])
    response, pieces = removal.delete_offsets(shard, request)
    records = list(chain.from_iterable(pieces))
    assert response.error_code == whole
    codes = {part.error_code for topic in response.topics for part in topic.partitions}
    assert codes == (set() if of_topic is None else {of_topic})
    assert [each.key.partition for each in records] == ([0, 1] if of_topic is E.NONE else [])
