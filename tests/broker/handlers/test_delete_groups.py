"""DeleteGroups over the wire: every version, and each result of a group."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import commit, committed, find, leave, stable_member

E = ErrorCode


def delete(client: WireClient, *group_ids: str, version: int = 2) -> dict[str, ErrorCode]:
    response = client.call(DeleteGroupsRequest(list(group_ids)), version)
    return {each.group_id: ErrorCode(each.error_code) for each in response.results}


@pytest.mark.parametrize("version", range(3))
def test_every_version_deletes_a_group_with_its_offsets(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t")
    find(client)
    commit(client)
    assert delete(client, "g", version=version) == {"g": E.NONE}
    assert committed(client).committed_offset == -1
    assert delete(client, "g", version=version) == {"g": E.GROUP_ID_NOT_FOUND}


def test_group_with_members_is_not_deleted(broker: Broker, client: WireClient) -> None:
    joined = stable_member(client)
    assert delete(client, "g", "other", "") == {
        "g": E.NON_EMPTY_GROUP,
        "other": E.GROUP_ID_NOT_FOUND,
        "": E.GROUP_ID_NOT_FOUND,
    }
    leave(client, joined.member_id)
    assert delete(client, "g") == {"g": E.NONE}


@pytest.mark.parametrize("config", [{"log.flush.interval.messages": 1}])
def test_responses_wait_for_the_disk(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    find(client)
    commit(client)
    assert delete(client, "g", "g") == {"g": E.NONE}
    assert committed(client).committed_offset == -1
