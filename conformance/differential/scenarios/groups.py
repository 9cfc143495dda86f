"""FindCoordinator, the classic group APIs, ListGroups, DescribeGroups."""

from __future__ import annotations

import struct
from typing import Any

from conformance.differential.registry import scenario
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

MEMBER_ID_REQUIRED = 79


def join(
    group: str, member: str = "", protocols: str = "range", **options: Any
) -> JoinGroupRequest:
    names = [name for name in protocols.split(",") if name]
    options = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        **options,
    }
    offered = [JoinGroupRequestProtocol(name, subscription(name)) for name in names]
    return JoinGroupRequest(group, member_id=member, protocols=offered, **options)


def subscription(data: str) -> bytes:
    """Return a consumer's subscription to no topics (ConsumerProtocolSubscription v0).

    Kafka parses the metadata of members of type consumer. It never responds to a join whose
    metadata has another format.
    """
    return struct.pack(">hii", 0, 0, len(data)) + data.encode()


def joined(s: Session, step: str, group: str, **options: Any) -> Any:
    """Join as a new member. Join again with the returned member id if the version requires it."""
    response = s.ask(step, join(group, **options))
    if response is not None and response.error_code == MEMBER_ID_REQUIRED:
        response = s.ask(f"{step}, with its id", join(group, response.member_id, **options))
    return response


def member(s: Session, group: str, *, version: int = 3, **options: Any) -> tuple[str, int]:
    """Join and sync as the only member, without keeping responses. Return id and generation."""
    response = s.quiet(join(group, **options), version)
    sync = SyncGroupRequest(group, response.generation_id, response.member_id)
    sync.assignments = [SyncGroupRequestAssignment(response.member_id, b"plan")]
    s.quiet(sync, 2)
    return response.member_id, response.generation_id


@scenario(ApiKey.FIND_COORDINATOR, versions=(0, 1, 2, 3, 4, 5, 6))
def coordinators(s: Session) -> None:
    group = s.group()
    keys = [[group], [""], [s.name("other")], [group, ""], [group, group], []]
    kinds = (0, 2, 3, 5, -1) if s.version else (0,)
    for kind in kinds:
        for key in keys[: 6 if s.version >= 4 else 2]:
            step = f"kind {kind}, {[k[-1:] for k in key]}"
            s.ask(step, FindCoordinatorRequest(key[0] if key else "", kind, key))


@scenario(ApiKey.FIND_COORDINATOR, versions=(6,))
def share_keys(s: Session) -> None:
    for key in ("g", "g:t:0", "g:AAAAAAAAAAAAAAAAAAAAAA:0", "::"):
        s.ask(f"{key!r}", FindCoordinatorRequest("", 2, [key]))


@scenario(ApiKey.JOIN_GROUP)
def alone(s: Session) -> None:
    group = s.group()
    response = joined(s, "join", group)
    again = join(group, response.member_id)
    s.ask("join again", again)
    s.ask("join with other metadata", join(group, response.member_id, "range,roundrobin"))
    leave = LeaveGroupRequest(group, response.member_id, [MemberIdentity(response.member_id)])
    s.ask("leave", leave, 2 if s.version < 5 else 5)
    joined(s, "after that", group)


@scenario(ApiKey.JOIN_GROUP)
def refused(s: Session) -> None:
    group = s.group()
    s.ask("no group", join(""))
    for timeout in (5999, 1_800_001, 0, -1):
        s.ask(f"session timeout {timeout}", join(group, session_timeout_ms=timeout))
    s.ask("unknown member", join(group, "nobody"))
    s.ask("no protocols", join(group, protocols=""))
    s.ask("no protocol type", join(group, protocol_type=""))
    first = joined(s, "a member", group)
    s.ask("other protocol", join(group, protocols="cooperative"), on="b")
    s.ask("other type", join(group, protocol_type="connect"), on="b")
    s.ask("unknown in a group that is", join(group, "nobody"), on="b")
    s.ask("protocols of the member", join(group, first.member_id, protocols=""))
    if s.version >= 1:
        s.ask("rebalance timeout -1", join(s.name("other"), rebalance_timeout_ms=-1))


@scenario(ApiKey.JOIN_GROUP)
def together(s: Session) -> None:
    """A second member joins, both members get their assignments, and one leaves."""
    group = s.group()
    first = joined(s, "a", group, protocols="range,roundrobin")
    _sync(s, "a syncs", group, first, {first.member_id: b"all"})
    second = join(group, protocols="roundrobin,range")
    if s.version >= 4:
        response = s.ask("b asks", second, on="b")
        second = join(group, response.member_id, protocols="roundrobin,range")
    s.send(second, on="b")
    beat = HeartbeatRequest(group, first.generation_id, first.member_id)
    s.until(lambda response: response.error_code == 27, beat, 2)
    s.ask("a beats", beat, 2, on="beat")
    first = s.ask("a again", join(group, first.member_id, "range,roundrobin"))
    response = s.take("b joins", on="b")
    second_sync = SyncGroupRequest(group, response.generation_id, response.member_id)
    s.send(second_sync, 2, on="b")
    plans = {first.member_id: b"one", response.member_id: b"two"}
    _sync(s, "a syncs both", group, first, plans)
    s.take("b gets its plan", on="b")
    s.ask("b syncs again", second_sync, 2, on="b")
    s.ask("described", DescribeGroupsRequest([group], True), 5, on="other")
    leave = LeaveGroupRequest(group, response.member_id, [MemberIdentity(response.member_id)])
    s.ask("b leaves", leave, 4, on="b")
    s.ask("a beats then", HeartbeatRequest(group, first.generation_id, first.member_id), 2)
    s.ask("b beats then", HeartbeatRequest(group, response.generation_id, response.member_id), 2)


def _sync(s: Session, step: str, group: str, response: Any, plans: dict[str, bytes]) -> None:
    request = SyncGroupRequest(group, response.generation_id, response.member_id)
    request.assignments = [SyncGroupRequestAssignment(*plan) for plan in plans.items()]
    s.ask(step, request, 2)


@scenario(ApiKey.JOIN_GROUP, least=5)
def static_members(s: Session) -> None:
    group = s.group()
    first = s.ask("static", join(group, group_instance_id="i-1"))
    _sync(s, "synced", group, first, {first.member_id: b"all"})
    second = s.ask("the same instance", join(group, group_instance_id="i-1"), on="b")
    if second is None:
        return
    s.ask("the old one", join(group, first.member_id, group_instance_id="i-1"))
    old = HeartbeatRequest(group, first.generation_id, first.member_id, "i-1")
    s.ask("the old one beats", old, 4)
    new = HeartbeatRequest(group, second.generation_id, second.member_id, "i-1")
    s.ask("the new one beats", new, 4)
    other = HeartbeatRequest(group, second.generation_id, second.member_id, "i-2")
    s.ask("unknown instance", other, 4)
    s.ask("unknown member of it", join(group, "nobody", group_instance_id="i-1"))
    s.ask("unknown member, new instance", join(group, "nobody", group_instance_id="i-3"))
    s.ask("no instance", join(group, group_instance_id=""))
    s.ask("described", DescribeGroupsRequest([group]), 5, on="other")
    both = [MemberIdentity("", "i-1"), MemberIdentity("", "i-9"), MemberIdentity("nobody")]
    s.ask("leave", LeaveGroupRequest(group, "", both), 5)


@scenario(ApiKey.SYNC_GROUP)
def syncs(s: Session) -> None:
    group = s.group()
    mine, generation = member(s, group)

    def ask(step: str, *identity: Any, **options: Any) -> None:
        request = SyncGroupRequest(*identity, **options)
        if s.version >= 5:
            request.protocol_type = options.get("protocol_type", "consumer")
            request.protocol_name = options.get("protocol_name", "range")
        s.ask(step, request)

    ask("again", group, generation, mine)
    ask("unknown group", s.name("nobody"), 1, mine)
    ask("no group", "", 1, mine)
    ask("unknown member", group, generation, "nobody")
    ask("no member", group, generation, "")
    for wrong in (generation - 1, generation + 1, -1):
        ask(f"generation {wrong}", group, wrong, mine)
    if s.version >= 5:
        ask("other type", group, generation, mine, protocol_type="connect")
        ask("other protocol", group, generation, mine, protocol_name="roundrobin")
        nulls = SyncGroupRequest(group, generation, mine)
        s.ask("neither", nulls)
    if s.version >= 3:
        ask("instance of nobody", group, generation, mine, group_instance_id="i-1")


@scenario(ApiKey.HEARTBEAT)
def beats(s: Session) -> None:
    group = s.group()
    mine, generation = member(s, group)
    s.ask("right", HeartbeatRequest(group, generation, mine))
    s.ask("unknown group", HeartbeatRequest(s.name("nobody"), 1, mine))
    s.ask("no group", HeartbeatRequest("", 1, mine))
    s.ask("unknown member", HeartbeatRequest(group, generation, "nobody"))
    s.ask("no member", HeartbeatRequest(group, generation, ""))
    for wrong in (generation - 1, generation + 1, -1):
        s.ask(f"generation {wrong}", HeartbeatRequest(group, wrong, mine))
    if s.version >= 3:
        s.ask("instance of nobody", HeartbeatRequest(group, generation, mine, "i-1"))
    s.quiet(join(group, mine, "roundrobin"), 3)
    s.ask("not synced yet", HeartbeatRequest(group, generation + 1, mine))
    s.ask("the generation before", HeartbeatRequest(group, generation, mine))


@scenario(ApiKey.LEAVE_GROUP)
def leaves(s: Session) -> None:
    group = s.group()
    mine, _ = member(s, group)

    def ask(step: str, name: str, *members: MemberIdentity) -> None:
        first = members[0].member_id if members else ""
        s.ask(step, LeaveGroupRequest(name, first, list(members)))

    ask("unknown group", s.name("nobody"), MemberIdentity(mine))
    ask("no group", "", MemberIdentity(mine))
    ask("unknown member", group, MemberIdentity("nobody"))
    ask("no member", group, MemberIdentity(""))
    ask("no members", group)
    if s.version >= 3:
        ask("unknown instance", group, MemberIdentity("", "i-1"))
        ask("instance and member", group, MemberIdentity(mine, "i-1"))
        ask("two", group, MemberIdentity("nobody"), MemberIdentity(mine))
        ask("again", group, MemberIdentity(mine))
    else:
        ask("right", group, MemberIdentity(mine))
        ask("again", group, MemberIdentity(mine))
    s.ask("described", DescribeGroupsRequest([group]), 5, on="other")


@scenario(ApiKey.DESCRIBE_GROUPS)
def descriptions(s: Session) -> None:
    group = s.group()
    s.ask("unknown", DescribeGroupsRequest([s.name("nobody")]))
    s.ask("no name", DescribeGroupsRequest([""]))
    s.ask("none", DescribeGroupsRequest([]))
    mine, _ = member(s, group)
    s.ask("stable", DescribeGroupsRequest([group]))
    s.ask("operations", DescribeGroupsRequest([group], True))
    s.ask("operations of unknown", DescribeGroupsRequest([s.name("nobody")], True))
    s.ask("twice", DescribeGroupsRequest([group, group]))
    s.ask("good and bad", DescribeGroupsRequest([group, s.name("nobody"), ""]))
    s.quiet(join(group, mine, "roundrobin"), 3)
    s.ask("waits for the plan", DescribeGroupsRequest([group]))
    leave = LeaveGroupRequest(group, mine, [])
    s.quiet(leave, 2)
    s.ask("empty", DescribeGroupsRequest([group]))


@scenario(ApiKey.LIST_GROUPS)
def lists(s: Session) -> None:
    group, empty = s.group(), s.name("empty")
    member(s, group)
    gone, _ = member(s, empty)
    s.quiet(LeaveGroupRequest(empty, gone), 2)

    def ask(step: str, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> None:
        s.send(ListGroupsRequest(list(states), list(types)))
        response = s.wire().receive()
        s.note(f"{step}: error", response.error_code)
        mine = [found for found in response.groups if found.group_id in {group, empty}]
        mine.sort(key=lambda found: found.group_id)
        s.note(step, [s.plainer.plain(found) for found in mine])

    ask("all")
    if s.version >= 4:
        for state in ("Stable", "Empty", "stable", "Dead", "nonsense", ""):
            ask(f"state {state!r}", (state,))
        ask("two states", ("Stable", "Empty"))
    if s.version >= 5:
        for kind in ("classic", "Classic", "consumer", "share", "nonsense", ""):
            ask(f"type {kind!r}", (), (kind,))
