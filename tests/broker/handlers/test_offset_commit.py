"""OffsetCommit over the wire: every version, allowed members, refused commits, stored data."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import (
    commit,
    commit_request,
    committed,
    find,
    join,
    join_request,
    stable_member,
)

VERSIONS = range(2, 10)


@pytest.fixture(autouse=True)
def coordinator(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 2)
    find(client)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_stores_an_offset(client: WireClient, version: int) -> None:
    epoch = 7 if version >= 6 else -1
    assert commit(client, version, offset=42, leader_epoch=epoch) is ErrorCode.NONE
    found = committed(client)
    assert (found.committed_offset, found.metadata) == (42, "note")
    assert found.committed_leader_epoch == epoch


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_accepts_a_members_commit(client: WireClient, version: int) -> None:
    joined = stable_member(client)
    options = {
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
    }
    assert commit(client, version, **options) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"generation_id_or_member_epoch": 9}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_group_with_members_accepts_only_their_commits(
    client: WireClient, changes: dict[str, object], code: ErrorCode
) -> None:
    joined = stable_member(client)
    options = {
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
        **changes,
    }
    assert commit(client, 9, **options) is code
    assert committed(client).committed_offset == -1


def test_commit_before_the_assignment_is_rebalance_in_progress(client: WireClient) -> None:
    joined = join(client)
    options = {
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
    }
    assert commit(client, 9, **options) is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_may_still_commit_while_the_others_join(broker: Broker, client: WireClient) -> None:
    joined = stable_member(client)
    with WireClient(broker.bootstrap_servers) as other:
        member_id = other.call(join_request(), 9).member_id
        other.send(join_request(member_id), 9)
        options = {
            "generation_id_or_member_epoch": joined.generation_id,
            "member_id": joined.member_id,
        }
        assert commit(client, 9, **options) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_generation_of_a_group_that_does_not_exist(
    client: WireClient, version: int, code: ErrorCode
) -> None:
    options = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert commit(client, version, **options) is code


def test_unknown_topics_and_partitions_do_not_affect_others(client: WireClient) -> None:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[OffsetCommitRequestPartition(index, 5, -1, "") for index in indexes],
        )
        for name, indexes in [("missing", [0]), ("t", [0, 2, -1, 1])]
    ]
    response = client.call(OffsetCommitRequest(group_id="g", topics=topics), 9)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [
        (topic.name, [(p.partition_index, p.error_code) for p in topic.partitions])
        for topic in response.topics
    ] == [("missing", [(0, unknown)]), ("t", [(0, 0), (2, unknown), (-1, unknown), (1, 0)])]
    assert committed(client, partition=1).committed_offset == 5


def test_metadata_has_a_largest_size(client: WireClient) -> None:
    assert commit(client, metadata="x" * 4096) is ErrorCode.NONE
    assert commit(client, offset=9, metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert committed(client).committed_offset == 5


def test_metadata_may_be_null(client: WireClient) -> None:
    assert commit(client, metadata=None) is ErrorCode.NONE
    assert committed(client).metadata == ""


def test_empty_group_id_may_commit(client: WireClient) -> None:
    assert commit(client, group_id="") is ErrorCode.NONE
    assert committed(client, group="").committed_offset == 5


def test_retention_time_of_old_versions_is_stored(client: WireClient) -> None:
    request = commit_request(retention_time_ms=60_000)
    assert client.call(request, 4).topics[0].partitions[0].error_code == 0
    assert committed(client).committed_offset == 5


@pytest.mark.parametrize("config", [{"log.flush.interval.messages": 1}])
def test_retention_time_that_ends_after_the_last_timestamp_never_ends(client: WireClient) -> None:
    assert commit(client, 2, retention_time_ms=2**63 - 1) is ErrorCode.NONE
    assert committed(client).committed_offset == 5


def test_commit_waits_for_the_disk_if_configured(client: WireClient) -> None:
    assert commit(client) is ErrorCode.NONE
    assert committed(client).committed_offset == 5


def test_offsets_of_a_deleted_topic_are_forgotten(broker: Broker, client: WireClient) -> None:
    commit(client)

    async def delete(server: object) -> None:
        controller = server.services.controller  # type: ignore[attr-defined]
        await controller.delete_topics([controller.image.topics_by_name["t"].topic_id])

    broker.call(delete)
    broker.create_topic("t")
    assert committed(client).committed_offset == -1
    assert commit(client, offset=1) is ErrorCode.NONE
    assert committed(client).committed_offset == 1
