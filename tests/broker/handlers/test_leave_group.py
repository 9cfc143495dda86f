"""LeaveGroup over the wire: one member before version 3, several from then on."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import find, heartbeat, join, leave, stable_member, sync


@pytest.mark.parametrize("version", range(6))
def test_every_version_removes_the_member(client: WireClient, version: int) -> None:
    joined = stable_member(client)
    response = leave(client, joined.member_id, version=version)
    assert response.error_code == 0
    if version >= 3:
        assert [(m.member_id, m.error_code) for m in response.members] == [(joined.member_id, 0)]
    assert heartbeat(client, joined) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("group_id", ["g", "no such group"])
@pytest.mark.parametrize("version", range(6))
def test_unknown_member_is_an_error_of_its_own(
    client: WireClient, version: int, group_id: str
) -> None:
    stable_member(client)
    response = leave(client, "nobody", version=version, group_id=group_id)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    if version >= 3:
        assert (response.error_code, response.members[0].error_code) == (0, unknown)
    else:
        assert response.error_code == unknown


def test_group_needs_a_name(client: WireClient) -> None:
    find(client)
    assert leave(client, "m", group_id="").error_code == ErrorCode.INVALID_GROUP_ID


def test_static_member_is_removed_by_its_instance_id(client: WireClient) -> None:
    find(client)
    joined = join(client, group_instance_id="i")
    sync(client, joined, group_instance_id="i")
    members = [MemberIdentity(group_instance_id="i"), MemberIdentity(group_instance_id="j")]
    response = client.call(LeaveGroupRequest(group_id="g", members=members), 5)
    assert [m.error_code for m in response.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert [m.group_instance_id for m in response.members] == ["i", "j"]
