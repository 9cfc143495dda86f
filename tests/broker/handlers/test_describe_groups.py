"""DescribeGroups over the wire: every version, groups in each state, and missing groups."""

from __future__ import annotations

import pytest

from odradek.broker.requests.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import find, join, stable_member


@pytest.mark.parametrize("version", range(7))
def test_every_version_describes_a_stable_group(client: WireClient, version: int) -> None:
    joined = stable_member(client)
    (group,) = client.call(DescribeGroupsRequest(groups=["g"]), version).groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id) == (joined.member_id, "wire")
    assert member.client_host == "/127.0.0.1"
    assert (member.member_metadata, member.member_assignment) == (b"topics", b"mine")


def test_members_of_an_unstable_group_have_no_metadata(client: WireClient) -> None:
    find(client)
    join(client)
    (group,) = client.call(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert group.members[0].member_metadata == b""


@pytest.mark.parametrize("version", range(7))
def test_group_that_does_not_exist_is_dead(client: WireClient, version: int) -> None:
    find(client)
    (group,) = client.call(DescribeGroupsRequest(groups=["none"]), version).groups
    assert (group.group_state, group.members) == ("Dead", [])
    if version >= 6:
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group.error_message == "Group none not found."
    else:
        assert group.error_code == 0


def test_operations_are_returned_on_request(client: WireClient) -> None:
    stable_member(client)
    request = DescribeGroupsRequest(groups=["g", "none"])
    assert [g.authorized_operations for g in client.call(request, 6).groups] == [NOT_REQUESTED] * 2
    request.include_authorized_operations = True
    groups = client.call(request, 6).groups
    assert [g.authorized_operations for g in groups] == [GROUP_OPERATIONS, NOT_REQUESTED]


def test_without_an_offsets_topic_there_is_no_coordinator(client: WireClient) -> None:
    (group,) = client.call(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR
