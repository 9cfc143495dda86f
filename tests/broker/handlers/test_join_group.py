"""JoinGroup over the wire: every version, checks of the request, and pending responses."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import find, heartbeat, join, join_request, stable_member


@pytest.mark.parametrize("version", range(10))
def test_every_version_returns_the_leader(client: WireClient, version: int) -> None:
    find(client)
    response = join(client, version)
    assert (response.error_code, response.generation_id) == (0, 1)
    assert response.leader == response.member_id
    assert response.member_id.startswith("wire-")
    assert response.protocol_name == "range"
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    assert [(m.member_id, m.metadata) for m in response.members] == [
        (response.member_id, b"topics")
    ]


@pytest.mark.parametrize("version", range(10))
def test_refused_member_has_no_protocol(client: WireClient, version: int) -> None:
    find(client)
    response = client.call(join_request("nobody", version), version)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert response.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(10))
def test_second_member_waits_for_the_first(
    broker: Broker, client: WireClient, version: int
) -> None:
    first = stable_member(client)
    with WireClient(broker.bootstrap_servers) as other:
        member_id = ""
        if version >= 4:
            member_id = other.call(join_request("", version), version).member_id
        other.send(join_request(member_id, version), version)
        while heartbeat(client, first) is not ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        again = client.call(join_request(first.member_id), 9)
        second = other.receive()
    assert second.error_code == again.error_code == 0
    assert second.generation_id == again.generation_id == 2
    assert {m.member_id for m in again.members} == {first.member_id, second.member_id}
    assert second.members == []


def test_requests_behind_a_waiting_join_are_executed(broker: Broker, client: WireClient) -> None:
    first = stable_member(client)
    with WireClient(broker.bootstrap_servers) as other:
        member_id = other.call(join_request(), 9).member_id
        other.send(join_request(member_id), 9)
        other.send(join_request("nobody"), 9)
        while heartbeat(client, first) is not ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        client.call(join_request(first.member_id), 9)
        assert other.receive().error_code == 0
        assert other.receive().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("timeout_ms", [0, 5_999, 1_800_001, -1])
def test_session_timeout_has_limits(client: WireClient, timeout_ms: int) -> None:
    find(client)
    response = join(client, session_timeout_ms=timeout_ms)
    assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_group_needs_a_name(client: WireClient) -> None:
    find(client)
    assert join(client, group_id="").error_code == ErrorCode.INVALID_GROUP_ID


def test_without_an_offsets_topic_joining_has_no_coordinator(client: WireClient) -> None:
    assert join(client).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("config", [{"group.max.size": 1}])
def test_full_group_refuses_another_member(broker: Broker, client: WireClient) -> None:
    stable_member(client)
    with WireClient(broker.bootstrap_servers) as other:
        assert join(other).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_stopping_broker_completes_waiting_joins(broker: Broker, client: WireClient) -> None:
    first = stable_member(client)
    with WireClient(broker.bootstrap_servers) as other:
        member_id = other.call(join_request(), 9).member_id
        other.send(join_request(member_id), 9)
        while heartbeat(client, first) is not ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        broker.close()
        assert other.receive().error_code == ErrorCode.NOT_COORDINATOR
