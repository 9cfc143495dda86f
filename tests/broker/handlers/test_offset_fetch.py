"""OffsetFetch over the wire: every version, all topics or some, missing groups."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import commit, committed, fetch_request, find

VERSIONS = range(1, 10)


@pytest.fixture
def offsets(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 3)
    broker.create_topic("u")
    find(client)
    for topic, partition, offset in [("t", 0, 10), ("t", 2, 12), ("u", 0, 20)]:
        commit(client, topic=topic, partition=partition, offset=offset, leader_epoch=3)


def by_partition(topics: Any) -> dict[tuple[str, int], int]:
    return {(t.name, p.partition_index): p.committed_offset for t in topics for p in t.partitions}


@pytest.mark.usefixtures("offsets")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_returns_committed_offsets(client: WireClient, version: int) -> None:
    found = committed(client, "t", 2, version=version)
    assert (found.committed_offset, found.metadata, found.error_code) == (12, "note", 0)
    assert found.committed_leader_epoch == (3 if version >= 5 else -1)


@pytest.mark.usefixtures("offsets")
@pytest.mark.parametrize("version", VERSIONS)
def test_partition_without_a_commit_is_minus_one_without_error(
    client: WireClient, version: int
) -> None:
    for topic, partition, group in [("t", 1, "g"), ("missing", 0, "g"), ("t", 0, "no group")]:
        found = committed(client, topic, partition, version=version, group=group)
        assert (found.committed_offset, found.metadata, found.error_code) == (-1, "", 0)
        assert found.committed_leader_epoch == -1


@pytest.mark.usefixtures("offsets")
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_null_topics_ask_for_all(client: WireClient, version: int) -> None:
    response = client.call(fetch_request(version=version), version)
    topics = response.groups[0].topics if version >= 8 else response.topics
    assert by_partition(topics) == {("t", 0): 10, ("t", 2): 12, ("u", 0): 20}


@pytest.mark.usefixtures("offsets")
def test_no_topics_ask_for_none(client: WireClient) -> None:
    assert client.call(fetch_request(topics={}), 9).groups[0].topics == []


@pytest.mark.usefixtures("offsets")
def test_several_groups_at_once(client: WireClient) -> None:
    commit(client, group_id="h", offset=77)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("h", "none", "g")]
    response = client.call(OffsetFetchRequest(groups=groups, require_stable=True), 8)
    assert [group.group_id for group in response.groups] == ["h", "none", "g"]
    assert by_partition(response.groups[0].topics) == {("t", 0): 77}
    assert response.groups[1].topics == []
    assert len(response.groups[2].topics) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_coordinator_each_version_has_its_error_format(
    client: WireClient, version: int
) -> None:
    response = client.call(fetch_request(version=version, topics={"t": [0]}), version)
    code = ErrorCode.NOT_COORDINATOR
    if version >= 8:
        assert response.groups[0].error_code == code
    elif version >= 2:
        assert response.error_code == code
    else:
        partition = response.topics[0].partitions[0]
        assert (partition.error_code, partition.committed_offset) == (code, -1)
