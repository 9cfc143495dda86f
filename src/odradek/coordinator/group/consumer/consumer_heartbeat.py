"""Decisions about ConsumerGroupHeartbeat requests to a consumer group (KIP-848). Pure.

Kafka's rules (``GroupMetadataManager``: consumerGroupHeartbeat, consumerGroupLeave and related
methods). The functions take (group, request, context) and return a `ConsumerGroupResult`. They
change no state. An error of the sender is a `KafkaError` with Kafka's code and message.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias, TypeVar

from odradek.coordinator.coordinator_result import (
    CoordinatorRecord,
    CoordinatorResult,
    Timestamp,
)
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.consumer import consumer_records as write
from odradek.coordinator.group.consumer.assignors import ASSIGNORS, Subscriber
from odradek.coordinator.group.consumer.consumer_group import (
    ConsumerGroup,
    Deadline,
    Resolved,
    TimerKind,
)
from odradek.coordinator.group.consumer.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    Assignment,
    ConsumerMember,
    MemberState,
    read_assignment,
)
from odradek.coordinator.group.consumer.migration import may_downgrade, to_classic
from odradek.coordinator.group.consumer.pattern_matches import (
    NO_MATCHES,
    PatternMatches,
    PatternsNeeded,
)
from odradek.coordinator.group.consumer.reconciliation import Target, reconcile
from odradek.coordinator.group.consumer.subscriptions import metadata_hash, partition_counts
from odradek.coordinator.group.group_client import GroupClient
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import Uuid
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages import consumer_group_heartbeat_response as heartbeat_response
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)

logger = logging.getLogger(__name__)

R = TypeVar("R")

# From this version on, clients choose the ids of their members.
CLIENT_MEMBER_ID_FROM = 1
# The space and all control characters before it. Other Unicode spaces do not count.
JAVA_BLANKS = "".join(map(chr, range(ord(" ") + 1)))

E = ErrorCode


class ConsumerSettings(NamedTuple):
    """``group.consumer.*`` of the broker's configuration. The first assignor is the default."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    upgrade: bool = True
    downgrade: bool = True
    classic_max_size: int = 2_147_483_647


class ConsumerContext(NamedTuple):
    """The other inputs of a decision: client, settings, topics and time."""

    client: GroupClient
    version: int
    settings: ConsumerSettings
    image: MetadataImage
    now: Timestamp
    new_member_id: str = ""
    matches: PatternMatches = NO_MATCHES


class MemberTimer(NamedTuple):
    """A deadline to set for a member. None removes it."""

    kind: TimerKind
    member_id: str
    deadline: Deadline | None


@dataclass(slots=True)
class ConsumerGroupResult(CoordinatorResult[R]):
    """A decision about a consumer group, with the changes of the state that is not in records.

    Attributes:
        member_timers: Deadlines to set.
        seen_metadata: The `topics_offset` of the image that the decision has used.
        target_epoch: The epoch of the target assignment after the decision.
        downgraded: The classic group that replaces this one, because all of its members use the
            classic protocol.
        settled: Each member of the downgraded group has its assigned partitions, so none of them
            has to join again.
        upgraded: The classic group that this one replaces. Its waiting members have to join again.
    """

    member_timers: list[MemberTimer] = field(default_factory=list)
    seen_metadata: int = -1
    target_epoch: int = -1
    downgraded: ClassicGroup | None = None
    settled: bool = False
    upgraded: ClassicGroup | None = None


HeartbeatResult: TypeAlias = ConsumerGroupResult[heartbeat_response.ConsumerGroupHeartbeatResponse]


def validate(
    request: ConsumerGroupHeartbeatRequest, version: int, settings: ConsumerSettings
) -> None:
    """Check a request without its group.

    The checks have Kafka's order, because the first failed check determines the message.

    Raises:
        KafkaError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    checks = []
    if version >= CLIENT_MEMBER_ID_FROM or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        checks.append((_is_blank(request.member_id), "MemberId can't be empty."))
    checks += [
        (_is_blank(request.group_id), "GroupId can't be empty."),
        (_is_blank(request.instance_id), "InstanceId can't be empty."),
        (_is_blank(request.rack_id), "RackId can't be empty."),
    ]
    if epoch == JOIN_EPOCH:
        checks += _checks_of_joining(request)
    checks += [
        (
            epoch == LEAVE_STATIC_EPOCH and request.instance_id is None,
            "InstanceId can't be null.",
        ),
        (epoch < LEAVE_STATIC_EPOCH, "MemberEpoch is invalid."),
    ]
    for wrong, message in checks:
        if wrong:
            raise KafkaError(E.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise KafkaError(
            E.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(settings.assignors)}.",
        )


def _is_blank(text: str | None) -> bool:
    """Return whether Java's ``String.trim`` would make the text empty. None is not blank."""
    return text is not None and not text.strip(JAVA_BLANKS)


def _checks_of_joining(request: ConsumerGroupHeartbeatRequest) -> list[tuple[bool, str]]:
    return [
        (
            request.rebalance_timeout_ms == -1,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            request.topic_partitions is None or bool(request.topic_partitions),
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            request.subscribed_topic_names is None and request.subscribed_topic_regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
    ]


def heartbeat(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: ConsumerContext
) -> HeartbeatResult:
    """Decide about the heartbeat of a member that stays or joins.

    Raises:
        KafkaError: The request is refused.
        PatternsNeeded: `context.matches` lacks an expression whose topics the decision needs.
    """
    result: HeartbeatResult = ConsumerGroupResult(
        [], heartbeat_response.ConsumerGroupHeartbeatResponse()
    )
    member_id = request.member_id or context.new_member_id
    throw_if_full(group, member_id, context.settings)
    owned = None
    if request.topic_partitions is not None:
        owned = read_assignment(request.topic_partitions)
    member = _member(group, member_id, request, owned, result.records)
    names = request.subscribed_topic_names
    updated = replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        rebalance_timeout_ms=_value_or(request.rebalance_timeout_ms, member.rebalance_timeout_ms),
        server_assignor=request.server_assignor or member.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        regex=_regex(group, request.subscribed_topic_regex, member.regex, context.matches),
        client_id=context.client.client_id,
        client_host=context.client.client_host,
        classic=None,
    )
    reached = advance(group, member, updated, owned, context, result)
    at_ms = context.now.monotonic_ms + context.settings.session_timeout_ms
    result.member_timers.append(MemberTimer(TimerKind.SESSION, member_id, Deadline(at_ms)))
    full = request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (names is not None or request.subscribed_topic_regex is not None)
        and owned is not None
    )
    result.response = heartbeat_response.ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=reached.member_epoch,
        heartbeat_interval_ms=context.settings.heartbeat_interval_ms,
    )
    if full or reached.assigned != member.assigned:
        result.response.assignment = heartbeat_response.Assignment(
            [
                heartbeat_response.TopicPartitions(each, sorted(held))
                for each, held in reached.assigned.items()
            ]
        )
    return result


def _value_or(value: int, otherwise: int) -> int:
    return otherwise if value == -1 else value


def _regex(
    group: ConsumerGroup, asked: str | None, known: str | None, matches: PatternMatches
) -> str | None:
    """Return the expression of the member: the requested one or the known one.

    An empty request removes it.

    Raises:
        KafkaError: A new expression is refused.
    """
    if asked is None or asked == known:
        return known
    if asked and asked not in group.regexes:
        matches.require(asked)
    return asked or None


# -- the member ------------------------------------------------------------------------------------


def throw_if_full(group: ConsumerGroup, member_id: str, settings: ConsumerSettings) -> None:
    if len(group.members) >= settings.max_size and member_id not in group.members:
        raise KafkaError(
            E.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {settings.max_size} members.",
        )


def _member(
    group: ConsumerGroup,
    member_id: str,
    request: ConsumerGroupHeartbeatRequest,
    owned: Assignment | None,
    records: list[CoordinatorRecord],
) -> ConsumerMember:
    """Return the member that sent the request. With epoch 0 it may be a new one."""
    joins = request.member_epoch == JOIN_EPOCH
    if request.instance_id is not None:
        member = static_member(group, member_id, request.instance_id, joins, False, records)
        if joins:
            return member
    elif joins:
        member = group.members.get(member_id) or ConsumerMember(member_id)
    else:
        member = group.member(member_id)
    _check_epoch(member, request.member_epoch, owned)
    return member


def static_member(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    joins: bool,
    classic: bool,
    records: list[CoordinatorRecord],
) -> ConsumerMember:
    """Return the member of an instance id. A member that joins replaces the former member.

    Raises:
        KafkaError: UNRELEASED_INSTANCE_ID if the former member uses the consumer protocol and has
            not left temporarily. For a member that does not join, UNKNOWN_MEMBER_ID if the instance
            id is unknown, or FENCED_INSTANCE_ID if another member has it.
    """
    holder = group.static_member(instance_id)
    if not joins:
        if holder is None:
            raise KafkaError(E.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder.member_id != member_id:
            raise KafkaError(
                E.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{holder.member_id}.",
            )
        return holder
    if holder is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if not classic and holder.classic is None and holder.member_epoch != LEAVE_STATIC_EPOCH:
        raise KafkaError(
            E.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {holder.member_id} member.",
        )
    successor = replace(holder, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    group_id = group.group_id
    records += write.member_tombstones(group_id, holder.member_id)
    records.append(write.member_record(group_id, successor))
    target = group.targets.get(holder.member_id, NO_PARTITIONS)
    records.append(write.target_record(group_id, member_id, target))
    records.append(write.current_record(group_id, successor))
    return successor


def _check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Raise FENCED_MEMBER_EPOCH for an epoch that the member cannot have.

    The present epoch is accepted, and epoch 0, with which a member may always join again. The
    previous epoch is also accepted when the response with the present one may have been lost.
    """
    known = member.member_epoch
    if epoch == JOIN_EPOCH:
        return
    if epoch > known:
        raise KafkaError(
            E.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a greater member epoch ({epoch}) than the one known by "
            f"the group coordinator ({known}). The member must abandon all its partitions and "
            "rejoin.",
        )
    if epoch < known and not (
        epoch == member.previous_member_epoch and _is_within(owned, member.assigned)
    ):
        raise KafkaError(
            E.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a smaller member epoch ({epoch}) than the one known by "
            f"the group coordinator ({known}). The member must abandon all its partitions and "
            "rejoin.",
        )


def _is_within(owned: Assignment | None, assigned: Assignment) -> bool:
    return owned is not None and all(
        held <= assigned.get(topic_id, frozenset()) for topic_id, held in owned.items()
    )


# -- epochs and assignments ------------------------------------------------------------------------


def advance(
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    owned: Assignment | None,
    context: ConsumerContext,
    result: ConsumerGroupResult[R],
) -> ConsumerMember:
    """Store the member's new fields and reconcile the member by one step.

    Before the step, increment the group epoch and compute a new target assignment if necessary.

    Returns:
        The member after the step. The records are added to `result`.
    """
    records, group_id = result.records, group.group_id
    result.seen_metadata = context.image.topics_offset
    new = (
        member.member_id not in group.members
        and (member.instance_id or updated.instance_id) not in group.static_members
    )
    if updated != member or new:
        records.append(write.member_record(group_id, updated))
    epoch = group.epoch
    # A member that joins without subscriptions changes no assignment, as in Kafka 4.1.
    bump = epoch == 0 or updated.topics != member.topics or updated.regex != member.regex
    members = _members_with(group, updated)
    regexes = group.regexes
    counts: dict[Uuid, int] | None = None
    if bump or group.seen_metadata != context.image.topics_offset:
        regexes, resolved_again = resolve(group, members, context, records)
        counts = partition_counts(context.image, _subscribed(members, regexes))
        hashed = metadata_hash(counts)
        if bump or resolved_again or hashed != group.metadata_hash:
            epoch += 1
            records.append(write.epoch_record(group_id, epoch, hashed))
            logger.info("group %s: epoch %d", group_id, epoch)
    if epoch > group.target_epoch:
        if counts is None:
            counts = partition_counts(context.image, _subscribed(members, regexes))
        target = Target(epoch, _assign(group, members, regexes, updated, context, counts, records))
        records.append(write.target_epoch_record(group_id, epoch))
    else:
        mine = group.target_of(updated.member_id, updated.instance_id)
        target = Target(group.target_epoch, mine)
    result.target_epoch = target.epoch
    reached = reconcile(updated, target, group.partition_epochs, owned)
    if reached != updated or new:
        records.append(write.current_record(group_id, reached))
        if reached.classic is None:
            result.member_timers.append(_rebalance_timer(reached, context.now))
    return reached


def _members_with(group: ConsumerGroup, updated: ConsumerMember) -> dict[str, ConsumerMember]:
    """Return the members after the update, without the member that a static member replaces."""
    members = dict(group.members)
    holder = group.static_members.get(updated.instance_id or "")
    if holder is not None and holder != updated.member_id:
        del members[holder]
    members[updated.member_id] = updated
    return members


def _rebalance_timer(member: ConsumerMember, now: Timestamp) -> MemberTimer:
    """Return the timer within which a member has to revoke partitions: its rebalance timeout."""
    deadline = None
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        at_ms = now.monotonic_ms + member.rebalance_timeout_ms
        deadline = Deadline(at_ms, member.member_epoch)
    return MemberTimer(TimerKind.REBALANCE, member.member_id, deadline)


def resolve(
    group: ConsumerGroup,
    members: dict[str, ConsumerMember],
    context: ConsumerContext,
    records: list[CoordinatorRecord],
) -> tuple[dict[str, Resolved], bool]:
    """Return the topics of each regular expression in use, and whether they have changed.

    Topics that are known for the present metadata are not matched again. An expression that is
    refused now, but was accepted by another version of the broker, keeps the topics that it had.

    Raises:
        PatternsNeeded: The context lacks the matches of some expressions.
    """
    used = {member.regex for member in members.values() if member.regex}
    current = group.seen_metadata == context.image.topics_offset
    needed = [each for each in used if not (current and each in group.regexes)]
    missing = [each for each in sorted(needed) if context.matches.lacks(each)]
    if missing:
        raise PatternsNeeded(missing)
    found = {each: known for each, known in group.regexes.items() if each in used}
    changed = False
    for regex in sorted(needed):
        known = found.get(regex)
        topics = context.matches.topics.get(regex)
        if topics is None:
            topics = frozenset() if known is None else known.topics
        if known is not None and known.topics == topics:
            continue
        changed = True
        found[regex] = Resolved(topics, context.image.offset, context.now.time_ms)
        records.append(write.regex_record(group.group_id, regex, found[regex]))
    records += unused_regexes(group, used)
    return found, changed


def unused_regexes(group: ConsumerGroup, used: set[str]) -> list[CoordinatorRecord]:
    """Return tombstones for the expressions that no member uses any longer."""
    return [
        write.regex_tombstone(group.group_id, regex) for regex in group.regexes if regex not in used
    ]


def _topics(member: ConsumerMember, regexes: dict[str, Resolved]) -> frozenset[str]:
    resolved = regexes.get(member.regex or "")
    return member.topics if resolved is None else member.topics | resolved.topics


def _subscribed(members: dict[str, ConsumerMember], regexes: dict[str, Resolved]) -> frozenset[str]:
    return frozenset().union(*(_topics(member, regexes) for member in members.values()))


def _assign(
    group: ConsumerGroup,
    members: dict[str, ConsumerMember],
    regexes: dict[str, Resolved],
    updated: ConsumerMember,
    context: ConsumerContext,
    counts: dict[Uuid, int],
    records: list[CoordinatorRecord],
) -> Assignment:
    """Compute the target assignment and return the part of `updated`.

    Add a record for each changed member.
    """
    votes = [member.server_assignor for member in members.values() if member.server_assignor]
    name = max(set(votes), key=lambda each: (votes.count(each), each), default="")
    image = context.image
    subscribers = [
        Subscriber(
            member.member_id,
            member.instance_id,
            frozenset(partition_counts(image, _topics(member, regexes))),
            group.target_of(member.member_id, member.instance_id),
        )
        for member in members.values()
    ]
    targets = ASSIGNORS[name or context.settings.assignors[0]](subscribers, counts)
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            records.append(write.target_record(group.group_id, member_id, target))
    return targets[updated.member_id]


# -- leaving ---------------------------------------------------------------------------------------


def leave(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: ConsumerContext
) -> HeartbeatResult:
    """Decide about the heartbeat of a member that leaves.

    The member leaves permanently (-1), or as a static member temporarily (-2).
    """
    member_id, epoch = request.member_id, request.member_epoch
    response = heartbeat_response.ConsumerGroupHeartbeatResponse(
        member_id=member_id, member_epoch=epoch
    )
    if request.instance_id is None:
        member = group.member(member_id)
    else:
        member = static_member(group, member_id, request.instance_id, False, False, [])
    if epoch == LEAVE_EPOCH or request.instance_id is None:
        return fence(group, [member], context, response)
    away = replace(member, member_epoch=LEAVE_STATIC_EPOCH, pending_revocation=NO_PARTITIONS)
    record = write.current_record(group.group_id, away)
    return ConsumerGroupResult([record], response, seen_metadata=group.seen_metadata)


def fence(
    group: ConsumerGroup, gone: list[ConsumerMember], context: ConsumerContext, response: R
) -> ConsumerGroupResult[R]:
    """Remove members. The next heartbeat of another member computes the new target assignment.

    When only members of the classic protocol are left, the group becomes a classic group, if the
    migration policy allows it.
    """
    result = ConsumerGroupResult([], response, seen_metadata=group.seen_metadata)
    records, group_id = result.records, group.group_id
    ids = {member.member_id for member in gone}
    if context.settings.downgrade and may_downgrade(group, ids, context.settings.classic_max_size):
        downgrade(group, ids, None, context, result)
        if result.downgraded is not None:
            return result
    left = {each: member for each, member in group.members.items() if each not in ids}
    for member_id in [member.member_id for member in gone]:
        records += write.member_tombstones(group_id, member_id)
    # New topics that an expression matches are found by the next heartbeat of another member.
    records += unused_regexes(group, {member.regex for member in left.values() if member.regex})
    counts = partition_counts(context.image, _subscribed(left, group.regexes))
    records.append(write.epoch_record(group_id, group.epoch + 1, metadata_hash(counts)))
    return result


def downgrade(
    group: ConsumerGroup,
    gone: set[str],
    joins: ConsumerMember | None,
    context: ConsumerContext,
    result: ConsumerGroupResult[R],
) -> None:
    """Replace the group by a classic group, if the metadata of its members can be read."""
    classic = to_classic(group, gone, joins, context.image, context.now)
    if classic is None:
        return
    renamed = None
    if joins is not None:
        renamed = (next(iter(gone)), joins.member_id)
    result.records += write.group_tombstones(group, renamed)
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    result.records.append(classic.metadata_record(assignments))
    result.downgraded = classic
