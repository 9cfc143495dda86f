"""The steps of one member to its target assignment: revoke before assign (KIP-848). Pure.

Kafka's rules (``CurrentAssignmentBuilder``). A member first has to revoke the partitions that are
not in its target. After it has reported that, it moves to the next epoch. It then gets the
partitions of its target that no other member has any longer. Partitions that it has just revoked
itself are free (KAFKA-19449).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from odradek.coordinator.group.consumer.consumer_member import (
    NO_PARTITIONS,
    Assignment,
    ConsumerMember,
    MemberState,
    common,
    union,
    without,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import Uuid

Held = Mapping[Uuid, Collection[int]]
"""The partitions of each topic that some member has, or has not revoked yet."""


class Target(NamedTuple):
    """The target assignment of a member, and the epoch of that assignment."""

    epoch: int
    assignment: Assignment


def reconcile(
    member: ConsumerMember, target: Target, held: Held, owned: Assignment | None
) -> ConsumerMember:
    """Return the member after its next step, or the member itself when there is no step.

    Args:
        member: The member before the step.
        target: Its target assignment.
        held: The partitions that are not free.
        owned: The partitions that the member reports in its heartbeat, or None.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH for a member in a state that only later versions of Kafka
            have.
    """
    if member.is_reconciled_to(target.epoch):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns(owned, member.pending_revocation):
            return member
        return _next(member, member.member_epoch + 1, target, held, owned)
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its "
                "partitions and rejoin.",
            )
        return _next(member, target.epoch, target, held, owned)
    return _next(member, member.member_epoch, target, held, owned)


def _owns(owned: Assignment | None, revoked: Assignment) -> bool:
    """Return whether the member may still have one of these partitions.

    Without a report it may.
    """
    if owned is None:
        return True
    return any(revoked.get(topic_id, frozenset()) & held for topic_id, held in owned.items())


def _next(
    member: ConsumerMember,
    epoch: int,
    target: Target,
    held: Held,
    owned: Assignment | None,
) -> ConsumerMember:
    kept = common(member.assigned, target.assignment)
    revoked = without(member.assigned, target.assignment)
    if revoked and _owns(owned, revoked):
        return member.moved_to(
            epoch, MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
        )
    missing = without(target.assignment, kept)
    # The partitions that the member has just revoked still count as held by the member itself.
    released = common(missing, member.pending_revocation)
    unheld = {
        each: partitions.difference(held.get(each, ())) for each, partitions in missing.items()
    }
    free = union({each: partitions for each, partitions in unheld.items() if partitions}, released)
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS
    return member.moved_to(
        target.epoch, state, assigned=union(kept, free), pending_revocation=NO_PARTITIONS
    )
