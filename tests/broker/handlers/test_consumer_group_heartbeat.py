"""ConsumerGroupHeartbeat over the wire, and the other group APIs for consumer groups."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import commit, find, join, stable_member

E = ErrorCode


def beat(
    client: WireClient, member_id: str = "m", epoch: int = 0, version: int = 1, **more: Any
) -> Any:
    if epoch == 0:
        more = {
            "rebalance_timeout_ms": 300_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **more,
        }
    request = ConsumerGroupHeartbeatRequest("g", member_id, epoch, **more)
    return client.call(request, version)


@pytest.fixture
def topic(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 2)
    find(client)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("version", [0, 1])
def test_every_version_joins_stays_and_leaves(client: WireClient, version: int) -> None:
    joined = beat(client, "" if version == 0 else "m", version=version)
    assert (joined.error_code, joined.member_epoch) == (0, 1)
    assert [each.partitions for each in joined.assignment.topic_partitions] == [[0, 1]]
    again = beat(client, joined.member_id, 1, version)
    assert (again.error_code, again.assignment) == (0, None)
    left = beat(client, joined.member_id, -1, version)
    assert (left.error_code, left.member_epoch) == (0, -1)


@pytest.mark.usefixtures("topic")
def test_errors_come_with_a_message(client: WireClient) -> None:
    refused = beat(client, subscribed_topic_regex="(")
    assert refused.error_code == E.INVALID_REGULAR_EXPRESSION
    assert refused.error_message.startswith("SubscribedTopicRegex `(` is not a valid")
    assert beat(client, epoch=3).error_code == E.GROUP_ID_NOT_FOUND
    beat(client)
    assert beat(client, epoch=3).error_code == E.FENCED_MEMBER_EPOCH


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("member", "epoch", "version", "expected"),
    [
        ("m", 1, 9, E.NONE),
        ("m", 0, 9, E.STALE_MEMBER_EPOCH),
        ("m", 2, 9, E.STALE_MEMBER_EPOCH),
        ("other", 1, 9, E.UNKNOWN_MEMBER_ID),
        ("", -1, 9, E.UNKNOWN_MEMBER_ID),
        ("m", 1, 8, E.UNSUPPORTED_VERSION),
    ],
)
def test_member_epochs_fence_commits(
    client: WireClient, member: str, epoch: int, version: int, expected: ErrorCode
) -> None:
    beat(client)
    options = {"member_id": member, "generation_id_or_member_epoch": epoch}
    assert commit(client, version, **options) is expected


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("member", "epoch", "expected"),
    [
        (None, -1, E.NONE),
        ("m", 1, E.NONE),
        ("m", 0, E.STALE_MEMBER_EPOCH),
        ("other", 1, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_member_epochs_fence_fetches(
    client: WireClient, member: str | None, epoch: int, expected: ErrorCode
) -> None:
    beat(client)
    group = OffsetFetchRequestGroup("g", member, epoch, topics=None)
    response = client.call(OffsetFetchRequest(groups=[group]), 9)
    assert response.groups[0].error_code == expected


@pytest.mark.usefixtures("topic")
def test_other_apis_return_the_type_of_the_group(client: WireClient) -> None:
    beat(client)
    listed = client.call(ListGroupsRequest(types_filter=["Consumer"]), 5).groups
    assert [(each.group_id, each.group_type, each.group_state) for each in listed] == [
        ("g", "consumer", "Stable")
    ]
    assert client.call(ListGroupsRequest(types_filter=["classic"]), 5).groups == []
    (classic,) = client.call(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    assert classic.error_message == "Group g is not a classic group."
    (deleted,) = client.call(DeleteGroupsRequest(["g"]), 2).results
    assert deleted.error_code == E.NON_EMPTY_GROUP
    beat(client, epoch=-1)
    (deleted,) = client.call(DeleteGroupsRequest(["g"]), 2).results
    assert deleted.error_code == E.NONE
    assert client.call(ListGroupsRequest(), 5).groups == []


@pytest.mark.usefixtures("topic")
def test_empty_groups_may_change_their_protocol(client: WireClient) -> None:
    beat(client)
    beat(client, epoch=-1)
    assert join(client).error_code == E.NONE
    listed = client.call(ListGroupsRequest(), 5).groups
    assert [each.group_type for each in listed] == ["classic"]


@pytest.mark.parametrize("config", [{"group.consumer.migration.policy": "disabled"}])
def test_groups_with_members_keep_a_protocol_that_cannot_change(
    broker: Broker, client: WireClient
) -> None:
    stable_member(client)
    refused = beat(client)
    assert refused.error_code == E.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Group g is not a consumer group."


def test_members_whose_metadata_cannot_be_read_keep_the_classic_protocol(
    client: WireClient,
) -> None:
    stable_member(client)
    assert beat(client).error_code == E.GROUP_ID_NOT_FOUND
