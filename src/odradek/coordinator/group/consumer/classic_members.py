"""Members of the classic protocol in a consumer group: Join, Sync, Heartbeat, Leave. Pure.

Kafka's rules (``GroupMetadataManager``: classicGroupJoinToConsumerGroup and related methods). A
JoinGroup of such a member is handled as a consumer group heartbeat. Its response does not wait for
other members, and its generation is the member epoch. SyncGroup returns the current assignment. The
response to a Heartbeat is REBALANCE_IN_PROGRESS until the member has reached its target assignment.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.coordinator.group.classic.classic_group import MEMBER_ID_REQUIRED_FROM
from odradek.coordinator.group.classic.classic_member import CONSUMER, NO_MEMBER_ID
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup, Deadline, TimerKind
from odradek.coordinator.group.consumer.consumer_heartbeat import (
    ConsumerContext,
    ConsumerGroupResult,
    MemberTimer,
    advance,
    downgrade,
    fence,
    static_member,
    throw_if_full,
)
from odradek.coordinator.group.consumer.consumer_member import (
    ClassicMember,
    ConsumerMember,
    MemberState,
)
from odradek.coordinator.group.consumer.migration import (
    by_topic_id,
    held_bytes,
    may_downgrade,
    read_subscription,
    read_version,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

E = ErrorCode


def join(
    group: ConsumerGroup, request: JoinGroupRequest, context: ConsumerContext
) -> ConsumerGroupResult[JoinGroupResponse]:
    """Decide about a JoinGroup to a consumer group that has members."""
    unknown = request.member_id == NO_MEMBER_ID
    member_id = context.new_member_id if unknown else request.member_id
    throw_if_full(group, member_id, context.settings)
    protocols = tuple((each.name, each.metadata) for each in request.protocols)
    if not group.supports_protocols(request.protocol_type, dict(protocols)):
        raise KafkaError(
            E.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
        )
    instance_id = request.group_instance_id
    if unknown and instance_id is None and context.version >= MEMBER_ID_REQUIRED_FROM:
        refused = JoinGroupResponse(error_code=E.MEMBER_ID_REQUIRED, member_id=member_id)
        return ConsumerGroupResult([], refused, seen_metadata=group.seen_metadata)
    subscription = _subscription(protocols)
    response = JoinGroupResponse(member_id=member_id, protocol_type=CONSUMER)
    result = ConsumerGroupResult([], response)
    former = group.static_member(instance_id)
    if instance_id is None:
        member = group.members.get(member_id) or ConsumerMember(member_id)
    else:
        member = static_member(group, member_id, instance_id, unknown, True, result.records)
    updated = replace(
        member,
        instance_id=instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex=None,
        client_id=context.client.client_id,
        client_host=context.client.client_host,
        classic=ClassicMember(request.session_timeout_ms, protocols),
    )
    owned = by_topic_id(subscription.owned_partitions, context.image)
    reached = advance(group, member, updated, owned, context, result)
    if former is not None and context.settings.downgrade:
        gone = {former.member_id}
        # The last member of the consumer protocol has returned with the classic protocol.
        alone = len(group.members) == 1 and former.classic is None
        if alone or may_downgrade(group, gone, context.settings.classic_max_size):
            downgrade(group, gone, reached, context, result)
            result.settled = _is_settled(group, former, reached, result.target_epoch)
    if result.downgraded is None:
        result.member_timers += _join_timers(reached, request, context)
    response.generation_id = reached.member_epoch
    response.protocol_name = protocols[0][0]
    return result


def _is_settled(
    group: ConsumerGroup, former: ConsumerMember, joins: ConsumerMember, target_epoch: int
) -> bool:
    """Return whether the downgraded group needs no rebalance.

    That is the case if all members have their target assignments, and the member that replaces
    `former` has not changed the target.
    """
    others = [member for member in group.members.values() if member is not former]
    return target_epoch == group.target_epoch and all(
        member.is_reconciled_to(target_epoch) for member in [*others, joins]
    )


def _subscription(protocols: tuple[tuple[str, bytes], ...]) -> ConsumerProtocolSubscription:
    """Return the subscription of the member. It is the same in all of its protocols."""
    try:
        return read_subscription(protocols[0][1])
    except MalformedMessage as error:
        raise KafkaError(
            E.INCONSISTENT_GROUP_PROTOCOL, f"Malformed embedded consumer protocol: {error}"
        ) from error


def _join_timers(
    member: ConsumerMember, request: JoinGroupRequest, context: ConsumerContext
) -> list[MemberTimer]:
    """Return the timers after a JoinGroup.

    They are the member's session, and the time in which it has to send SyncGroup.
    """
    now_ms, member_id = context.now.monotonic_ms, member.member_id
    return [
        MemberTimer(TimerKind.JOIN, member_id, None),
        MemberTimer(TimerKind.SESSION, member_id, Deadline(now_ms + request.session_timeout_ms)),
        MemberTimer(TimerKind.SYNC, member_id, Deadline(now_ms + request.rebalance_timeout_ms)),
    ]


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return a member of the classic protocol. Raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = static_member(group, member_id, instance_id, False, True, [])
    if member.classic is None:
        raise KafkaError(
            E.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    return member


def _in_generation(
    group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest
) -> ConsumerMember:
    member = _member(group, request.member_id, request.group_instance_id)
    if request.generation_id != member.member_epoch:
        raise KafkaError(
            E.ILLEGAL_GENERATION,
            f"The request generation id {request.generation_id} is not equal to the member epoch "
            f"{member.member_epoch} of member {member.member_id}.",
        )
    return member


def sync(
    group: ConsumerGroup, request: SyncGroupRequest, context: ConsumerContext
) -> tuple[SyncGroupResponse, list[MemberTimer]]:
    """Return the current assignment of a member (SyncGroup), and its timers.

    The response is REBALANCE_IN_PROGRESS when the member has to join again first. It has its
    rebalance timeout for that.

    Raises:
        KafkaError: The request is refused.
    """
    member = _in_generation(group, request)
    assert member.classic is not None
    name, metadata = member.classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
        raise KafkaError(E.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return SyncGroupResponse(error_code=E.REBALANCE_IN_PROGRESS), _rejoin(
            group, member, context
        )
    try:
        version = read_version(metadata)
    except MalformedMessage:
        version = 0
    response = SyncGroupResponse(
        protocol_type=CONSUMER,
        protocol_name=name,
        assignment=held_bytes(member.assigned, version, context.image),
    )
    return response, [
        MemberTimer(TimerKind.SYNC, member.member_id, None),
        _session(member, context),
    ]


def _session(member: ConsumerMember, context: ConsumerContext) -> MemberTimer:
    assert member.classic is not None
    at_ms = context.now.monotonic_ms + member.classic.session_timeout_ms
    return MemberTimer(TimerKind.SESSION, member.member_id, Deadline(at_ms))


def must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether the member has to join again.

    It has to if the epoch of the group has changed, or if the member has to revoke partitions or
    can get more.
    """
    if member.member_epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    waits = member.state is MemberState.UNRELEASED_PARTITIONS
    return waits and not group.waits_for_release(member)


def heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, context: ConsumerContext
) -> tuple[ErrorCode, list[MemberTimer]]:
    """Return the code for a Heartbeat, and the timers of the member.

    After REBALANCE_IN_PROGRESS the member has its rebalance timeout to join again.

    Raises:
        KafkaError: The request is refused.
    """
    member = _in_generation(group, request)
    timers = [_session(member, context)]
    if not must_rejoin(group, member):
        return E.NONE, timers
    return E.REBALANCE_IN_PROGRESS, timers + _rejoin(group, member, context)


def _rejoin(
    group: ConsumerGroup, member: ConsumerMember, context: ConsumerContext
) -> list[MemberTimer]:
    """Return the timer within which the member has to join again.

    It begins with the first response that requires it.
    """
    if (TimerKind.JOIN, member.member_id) in group.deadlines:
        return []
    at_ms = context.now.monotonic_ms + member.rebalance_timeout_ms
    return [MemberTimer(TimerKind.JOIN, member.member_id, Deadline(at_ms))]


def leave(
    group: ConsumerGroup, identities: list[MemberIdentity], context: ConsumerContext
) -> ConsumerGroupResult[LeaveGroupResponse]:
    """Remove the named members (LeaveGroup).

    An administrator names static members by instance id alone.
    """
    gone: dict[str, ConsumerMember] = {}
    responses = []
    for identity in identities:
        code = E.NONE
        try:
            member = _leaving(group, identity)
            if member.member_id in gone:
                raise KafkaError(E.UNKNOWN_MEMBER_ID)
            gone[member.member_id] = member
        except KafkaError as error:
            code = error.code
        responses.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=code,
            )
        )
    response = LeaveGroupResponse(members=responses)
    if not gone:
        return ConsumerGroupResult([], response, seen_metadata=group.seen_metadata)
    return fence(group, list(gone.values()), context, response)


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.member_id == NO_MEMBER_ID:
        member = group.static_member(identity.group_instance_id)
        if member is None:
            raise KafkaError(E.UNKNOWN_MEMBER_ID)
        return member
    return _member(group, identity.member_id, identity.group_instance_id)
