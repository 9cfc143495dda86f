"""The way of one member to its target assignment: revoke before assign (KIP-848). Pure.

Kafka's rules (``CurrentAssignmentBuilder``). A member is first told to let go of what is not in its
target; once it reports that it has, it moves to the next epoch and gets those partitions of its
target that nobody else holds any more. What it has itself just let go of is free (KAFKA-19449).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.coordinator.group.consumer.consumer_member import (
    NO_PARTITIONS,
    Assignment,
    ConsumerMember,
    MemberState,
    assignment_of,
    partitions_of,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import Uuid

# Whether somebody holds a partition, or has not let go of it yet.
IsHeld = Callable[[tuple[Uuid, int]], bool]


class Target(NamedTuple):
    """A member's part of the target assignment, and that assignment's epoch."""

    epoch: int
    assignment: Assignment


def reconcile(
    member: ConsumerMember, target: Target, is_held: IsHeld, owned: Assignment | None
) -> ConsumerMember:
    """The member's next step; itself when there is none.

    `owned` is what its heartbeat says that it holds, None when it does not say. Raises
    FENCED_MEMBER_EPOCH for a member in a state of a later Kafka.
    """
    if member.is_reconciled_to(target.epoch):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns(owned, member.pending_revocation):
            return member
        return _next(member, member.member_epoch + 1, target, is_held, owned)
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its "
                "partitions and rejoin.",
            )
        return _next(member, target.epoch, target, is_held, owned)
    return _next(member, member.member_epoch, target, is_held, owned)


def _owns(owned: Assignment | None, revoked: Assignment) -> bool:
    """Whether the member may still hold one of these; it does when it does not say."""
    if owned is None:
        return True
    return any(revoked.get(topic_id, frozenset()) & held for topic_id, held in owned.items())


def _next(
    member: ConsumerMember,
    epoch: int,
    target: Target,
    is_held: IsHeld,
    owned: Assignment | None,
) -> ConsumerMember:
    target_partitions = frozenset(partitions_of(target.assignment))
    held = frozenset(partitions_of(member.assigned))
    kept = held & target_partitions
    revoked = assignment_of(held - target_partitions)
    if revoked and _owns(owned, revoked):
        return member.moved_to(
            epoch,
            MemberState.UNREVOKED_PARTITIONS,
            assigned=assignment_of(kept),
            pending_revocation=revoked,
        )
    missing = target_partitions - kept
    # What it was waited for to let go of, and has, is still on the books as held: by itself.
    released = frozenset(partitions_of(member.pending_revocation))
    free = {each for each in missing if each in released or not is_held(each)}
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS
    return member.moved_to(
        target.epoch, state, assigned=assignment_of(kept | free), pending_revocation=NO_PARTITIONS
    )
