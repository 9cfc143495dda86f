"""ListGroups over the wire: every version, and the filters."""

from __future__ import annotations

import pytest

from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import commit, stable_member


@pytest.fixture
def groups(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    stable_member(client)
    commit(client, group_id="simple")


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_groups_with_members_and_without(
    client: WireClient, version: int
) -> None:
    response = client.call(ListGroupsRequest(), version)
    assert response.error_code == 0
    listed = {each.group_id: each for each in response.groups}
    assert {name: each.protocol_type for name, each in listed.items()} == {
        "g": "consumer",
        "simple": "",
    }
    states = ("Stable", "Empty") if version >= 4 else ("", "")
    assert (listed["g"].group_state, listed["simple"].group_state) == states
    assert listed["g"].group_type == ("classic" if version >= 5 else "")


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        (["Stable"], [], ["g"]),
        ([" stable ", "EMPTY"], [], ["g", "simple"]),
        (["Dead"], [], []),
        (["no such state"], [], []),
        ([], ["Classic"], ["g", "simple"]),
        ([], ["consumer"], []),
        (["Empty"], ["consumer", "classic"], ["simple"]),
    ],
)
def test_filters_by_state_and_type(
    client: WireClient, states: list[str], types: list[str], expected: list[str]
) -> None:
    response = client.call(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert sorted(each.group_id for each in response.groups) == expected


def test_without_an_offsets_topic_no_groups_are_listed(client: WireClient) -> None:
    response = client.call(ListGroupsRequest(), 5)
    assert (response.error_code, response.groups) == (0, [])
