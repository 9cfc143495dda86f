"""ConsumerGroupDescribe over the wire."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import find, stable_member
from tests.broker.handlers.test_consumer_group_heartbeat import beat

E = ErrorCode


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_returns_epochs_members_and_assignments(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t", 2)
    find(client)
    beat(client, instance_id="i", rack_id="r", server_assignor="range")
    request = ConsumerGroupDescribeRequest(["g"], include_authorized_operations=True)
    (group,) = client.call(request, version).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert (group.assignor_name, group.authorized_operations > 0) == ("range", True)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.member_epoch, member.client_id) == (1, "wire")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == ("t", [0, 1])
    assert member.member_type == (1 if version else -1)


def test_groups_of_another_kind_are_not_found(broker: Broker, client: WireClient) -> None:
    stable_member(client)
    groups = client.call(ConsumerGroupDescribeRequest(["g", "none", ""]), 1).groups
    assert [each.error_code for each in groups] == [
        E.GROUP_ID_NOT_FOUND,
        E.GROUP_ID_NOT_FOUND,
        E.INVALID_GROUP_ID,
    ]
    assert groups[0].error_message == "Group g is not a consumer group."
