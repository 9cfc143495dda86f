"""Requests of the group APIs as a consumer sends them, over a plain connection."""

from __future__ import annotations

from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from testkit.wire import WireClient


def find(client: WireClient, group_id: str = "g", version: int = 4) -> Any:
    """Send FindCoordinator for one group, which creates ``__consumer_offsets``."""
    request = FindCoordinatorRequest(key=group_id)
    if version >= 4:
        request = FindCoordinatorRequest(coordinator_keys=[group_id])
    return client.call(request, version)


def join_request(member_id: str = "", version: int = 9, **options: Any) -> JoinGroupRequest:
    options = {"session_timeout_ms": 300_000, "protocol_type": "consumer", **options}
    if version >= 1:
        options.setdefault("rebalance_timeout_ms", 300_000)
    options.setdefault("protocols", [JoinGroupRequestProtocol(name="range", metadata=b"topics")])
    options.setdefault("group_id", "g")
    return JoinGroupRequest(member_id=member_id, **options)


def join(client: WireClient, version: int = 9, **options: Any) -> Any:
    """Join as a new member, twice if the version requires it. Return the last response."""
    response = client.call(join_request(version=version, **options), version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = client.call(join_request(response.member_id, version, **options), version)
    return response


def sync(client: WireClient, joined: Any, version: int = 5, **options: Any) -> Any:
    """Sync as the leader of a group with one member, unless `assignments` are passed."""
    if version >= 5:
        options = {"protocol_type": "consumer", "protocol_name": "range", **options}
    plan = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")]
    options = {"generation_id": joined.generation_id, "assignments": plan, **options}
    request = SyncGroupRequest(group_id="g", member_id=joined.member_id, **options)
    return client.call(request, version)


def stable_member(client: WireClient) -> Any:
    """Join a new stable group. Return the member's JoinGroup response."""
    find(client)
    joined = join(client)
    assert joined.error_code == 0
    assert sync(client, joined).error_code == 0
    return joined


def heartbeat(client: WireClient, joined: Any, version: int = 4, **options: Any) -> ErrorCode:
    options = {"group_id": "g", "generation_id": joined.generation_id, **options}
    request = HeartbeatRequest(member_id=joined.member_id, **options)
    return ErrorCode(client.call(request, version).error_code)


def leave(client: WireClient, *member_ids: str, version: int = 5, group_id: str = "g") -> Any:
    request = LeaveGroupRequest(group_id=group_id, member_id=member_ids[0])
    if version >= 3:
        members = [MemberIdentity(member_id=each) for each in member_ids]
        request = LeaveGroupRequest(group_id=group_id, members=members)
    return client.call(request, version)


def commit_request(
    offset: int = 5,
    *,
    topic: str = "t",
    partition: int = 0,
    metadata: str | None = "note",
    leader_epoch: int = -1,
    **options: Any,
) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition, offset, leader_epoch, metadata)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[part])]
    options.setdefault("group_id", "g")
    return OffsetCommitRequest(topics=topics, **options)


def commit(client: WireClient, version: int = 9, **options: Any) -> ErrorCode:
    """Commit one offset. Return the error of its partition."""
    response = client.call(commit_request(**options), version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def fetch_request(
    group_id: str = "g", version: int = 9, topics: dict[str, list[int]] | None = None
) -> OffsetFetchRequest:
    """Return an OffsetFetch request for one group. Without topics it requests all of them."""
    if version >= 8:
        requested = None
        if topics is not None:
            requested = [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=requested)]
        )
    old = None
    if topics is not None:
        old = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    return OffsetFetchRequest(group_id=group_id, topics=old)


def committed(
    client: WireClient, topic: str = "t", partition: int = 0, *, version: int = 9, group: str = "g"
) -> Any:
    """Return the result of OffsetFetch for one partition."""
    response = client.call(fetch_request(group, version, {topic: [partition]}), version)
    topics = response.groups[0].topics if version >= 8 else response.topics
    return topics[0].partitions[0]
