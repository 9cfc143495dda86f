"""ConsumerGroupDescribe, versions 0-1: return the members and assignments of consumer groups.

The response also has the state and the epochs of each group. A classic group, or a group that does
not exist, is GROUP_ID_NOT_FOUND. Deleted topics are left out of the assignments. The regular
expression of a member without one is empty, as in Kafka. From version 1 on the response has the
protocol of each member (KIP-1099).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.authorized_operations import GROUP_OPERATIONS
from odradek.broker.requests.elements import each
from odradek.coordinator.coordinator_result import response_code
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.consumer.consumer_member import (
    NO_PARTITIONS,
    Assignment,
    ConsumerMember,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages import consumer_group_describe_response as messages
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.metadata.image import MetadataImage
    from odradek.protocol.messages.consumer_group_describe_request import (
        ConsumerGroupDescribeRequest,
    )

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Result[messages.ConsumerGroupDescribeResponse]:
    """Describe the groups in the order of the request."""

    def describe(group_id: str) -> messages.DescribedGroup:
        group = _describe(services, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        return group

    groups = each(
        describe, request.group_ids, lambda group: sum(_size(each) for each in group.members)
    )
    return groups.then(lambda groups: messages.ConsumerGroupDescribeResponse(groups=groups))


def _size(member: messages.Member) -> int:
    """Return the number of elements in the description of a member."""
    held = (member.assignment, member.target_assignment)
    topics = [topic for assignment in held for topic in assignment.topic_partitions]
    return 1 + len(member.subscribed_topic_names) + len(topics)


def _describe(services: Services, group_id: str) -> messages.DescribedGroup:
    try:
        group = services.groups.shards.of_members(group_id).committed_group(group_id)
    except KafkaError as error:
        return messages.DescribedGroup(group_id=group_id, error_code=response_code(error.code))
    if not isinstance(group, ConsumerGroup):
        missing = "not found" if group is None else "is not a consumer group"
        return messages.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {missing}.",
        )
    votes = [each.server_assignor for each in group.members.values() if each.server_assignor]
    assignor = max(set(votes), key=lambda name: (votes.count(name), name), default=None)
    image = services.image()
    return messages.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor or services.groups.consumers.settings(group_id).assignors[0],
        members=[_member(group, member, image) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> messages.Member:
    return messages.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(member.assigned, image),
        target_assignment=_assignment(group.targets.get(member.member_id, NO_PARTITIONS), image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(held: Assignment, image: MetadataImage) -> messages.Assignment:
    topics = ((image.topics_by_id.get(each), partitions) for each, partitions in held.items())
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(topic.topic_id, topic.name, sorted(partitions))
            for topic, partitions in topics
            if topic is not None
        ]
    )
