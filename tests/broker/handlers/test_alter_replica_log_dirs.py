"""AlterReplicaLogDirs over the wire: replicas do not move, and errors have Kafka's order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.handlers.alter_replica_log_dirs import handle
from odradek.errors import ErrorCode
from odradek.metadata.image import NO_LEADER
from odradek.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from odradek.result_tasks import wait
from odradek.slicing import ELEMENTS_UNSLICED_MAX
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import WireClient

# "-0" and the suffix that Kafka adds during a move. A file name has at most 255 bytes.
LONGEST_NAME_THAT_MOVES = 255 - len("-0") - len(".") - 32 - len("-future")


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("one", "two")]


@pytest.fixture
def two(paths: list[str]) -> Iterator[Broker]:
    """A broker with two log directories."""
    with Broker({"log.dirs": ",".join(paths)}) as broker:
        yield broker


@pytest.fixture
def client_of_two(two: Broker) -> Iterator[WireClient]:
    with WireClient(two.bootstrap_servers) as connected:
        yield connected


def request_for(*moves: tuple[str, str, list[int]]) -> AlterReplicaLogDirsRequest:
    """Return a request for moves (path, topic, partitions), each in its own element."""
    return AlterReplicaLogDirsRequest(
        [
            AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, numbers)])
            for path, topic, numbers in moves
        ]
    )


def results_of(response: Any) -> list[tuple[str, int, int]]:
    """Return (topic, partition, error code) in the order of the response."""
    return [
        (topic.topic_name, partition.partition_index, partition.error_code)
        for topic in response.results
        for partition in topic.partitions
    ]


def placed(client: WireClient) -> dict[tuple[str, int], str]:
    """Return the directory of each replica, by (topic, partition)."""
    return {
        (topic.name, partition.partition_index): result.log_dir
        for result in client.call(DescribeLogDirsRequest(None), 4).results
        for topic in result.topics
        for partition in topic.partitions
    }


def own_directory(client: WireClient) -> str:
    (result,) = client.call(DescribeLogDirsRequest([]), 4).results
    path: str = result.log_dir
    return path


def take_offline(broker: Broker, path: str) -> None:
    async def fail(server: Any) -> None:
        (log_dir,) = [each for each in server.services.log_manager.log_dirs if each.path == path]
        log_dir.fail(OSError("gone"), "a test")

    broker.call(fail)


@pytest.mark.parametrize("version", [1, 2])
def test_every_version_accepts_the_current_directory_and_changes_nothing(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t", 2)
    records = batch(b"value")
    client.call(produce("t", records, partition=1), 9)
    response = client.call(request_for((own_directory(client), "t", [0, 1])), version)
    assert results_of(response) == [("t", 0, ErrorCode.NONE), ("t", 1, ErrorCode.NONE)]
    assert response.throttle_time_ms == 0
    assert set(placed(client)) == {("t", 0), ("t", 1)}
    ((partition,),) = [
        topic.partitions for topic in client.call(fetch("t", partitions=(1,)), 12).responses
    ]
    assert bytes(partition.records)[16:] == bytes(records)[16:]  # without offset and leader epoch


@pytest.mark.parametrize("change", ["{}/", "{}/.", "{}/t-0", "/nowhere", "relative", ""])
def test_a_path_that_differs_from_every_log_directory_is_not_found(
    broker: Broker, client: WireClient, change: str
) -> None:
    broker.create_topic("t")
    path = change.format(own_directory(client))
    assert results_of(client.call(request_for((path, "t", [0])), 2)) == [
        ("t", 0, ErrorCode.LOG_DIR_NOT_FOUND)
    ]


@pytest.mark.parametrize(("topic", "number"), [("t", 1), ("t", -1), ("no", 0), ("not/a name", 0)])
def test_a_partition_that_does_not_exist_is_unknown(
    broker: Broker, client: WireClient, topic: str, number: int
) -> None:
    broker.create_topic("t")
    response = client.call(request_for((own_directory(client), topic, [number])), 2)
    assert results_of(response) == [(topic, number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_the_replica_of_another_node_is_not_available(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    request = request_for((own_directory(client), "lost", [0, 1]))

    async def ask(server: Any) -> Any:
        image = server.services.image()
        topic = image.topics_by_name["t"]
        lost = replace(topic.partitions[0], leader=NO_LEADER, replicas=(8, 9), isr=(9,))
        moved = image.with_topics({"lost": replace(topic, name="lost", partitions=(lost,))}, {})
        services = replace(server.services, image=lambda: moved)
        return handle(services, None, request).get()  # type: ignore[arg-type]

    assert results_of(broker.call(ask)) == [
        ("lost", 0, ErrorCode.REPLICA_NOT_AVAILABLE),
        ("lost", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_an_offline_directory_is_a_storage_error(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    path = own_directory(client)
    take_offline(broker, path)
    response = client.call(
        request_for((path, "t", [0]), (path, "no", [0]), ("/nowhere", "t", [1])), 2
    )
    assert results_of(response) == [
        ("t", 0, ErrorCode.KAFKA_STORAGE_ERROR),
        ("t", 1, ErrorCode.LOG_DIR_NOT_FOUND),
        ("no", 0, ErrorCode.KAFKA_STORAGE_ERROR),
    ]


def test_a_name_too_long_for_a_move_is_refused_first(broker: Broker, client: WireClient) -> None:
    fits = "n" * LONGEST_NAME_THAT_MOVES
    broker.create_topic(fits, 11)
    broker.create_topic(fits + "n")
    path = own_directory(client)
    response = client.call(request_for((path, fits, [0, 9, 10]), (path, fits + "n", [0])), 2)
    assert results_of(response) == [
        (fits, 0, ErrorCode.NONE),
        (fits, 9, ErrorCode.NONE),
        (fits, 10, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (fits + "n", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    response = client.call(request_for(("/nowhere", fits, [0]), ("/nowhere", fits + "n", [0])), 2)
    assert [code for _, _, code in results_of(response)] == [
        ErrorCode.LOG_DIR_NOT_FOUND,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_a_move_to_another_directory_is_refused_and_logged(
    two: Broker,
    client_of_two: WireClient,
    paths: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    two.create_topic("t", 4)
    before = placed(client_of_two)
    assert set(before.values()) == set(paths)
    response = client_of_two.call(request_for((paths[0], "t", [0, 1, 2, 3])), 2)
    expected = [
        (*key, ErrorCode.NONE if path == paths[0] else ErrorCode.INVALID_REQUEST)
        for key, path in sorted(before.items())
    ]
    assert results_of(response) == expected
    assert placed(client_of_two) == before
    warnings = [each.message for each in caplog.records if "replicas stay" in each.message]
    assert len(warnings) == 1
    assert warnings[0].startswith("2 replicas")


def test_nothing_is_moved_while_a_directory_is_offline(
    two: Broker, client_of_two: WireClient, paths: list[str]
) -> None:
    two.create_topic("t", 2)
    where = {number: path for (_, number), path in placed(client_of_two).items()}
    take_offline(two, where[0])
    response = client_of_two.call(request_for((where[1], "t", [0, 1]), (where[1], "no", [0])), 2)
    assert results_of(response) == [
        ("t", 0, ErrorCode.KAFKA_STORAGE_ERROR),
        ("t", 1, ErrorCode.NONE),
        ("no", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_an_online_replica_is_not_moved_while_another_directory_is_offline(
    tmp_path: Path,
) -> None:
    directories = [str(tmp_path / name) for name in ("one", "two", "three")]
    with (
        Broker({"log.dirs": ",".join(directories)}) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("t", 3)
        where = {number: path for (_, number), path in placed(client).items()}
        request = request_for((where[1], "t", [0]))
        assert results_of(client.call(request, 2)) == [("t", 0, ErrorCode.INVALID_REQUEST)]
        take_offline(broker, where[2])
        assert results_of(client.call(request, 2)) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]


def test_last_directory_of_a_repeated_partition_applies(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 2)
    path = own_directory(client)
    moves = [("/nowhere", "t", [0, 0]), (path, "t", [1, 0]), ("/nowhere", "t", [1])]
    assert results_of(client.call(request_for(*moves), 2)) == [
        ("t", 0, ErrorCode.NONE),
        ("t", 1, ErrorCode.LOG_DIR_NOT_FOUND),
    ]


def test_topics_without_partitions_have_no_result(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    path = own_directory(client)
    assert client.call(AlterReplicaLogDirsRequest([]), 2).results == []
    assert client.call(AlterReplicaLogDirsRequest([AlterReplicaLogDir(path)]), 2).results == []
    assert client.call(request_for((path, "t", [])), 2).results == []


def test_each_of_many_partitions_has_a_result(broker: Broker, client: WireClient) -> None:
    count = 2 * ELEMENTS_UNSLICED_MAX
    broker.create_topic("t", 3)
    path = own_directory(client)
    numbers = list(range(count))
    response = client.call(request_for((path, "t", numbers)), 2)
    assert results_of(response) == [
        ("t", number, ErrorCode.NONE if number < 3 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for number in numbers
    ]


def test_many_partitions_of_one_topic_are_processed_in_slices(broker: Broker) -> None:
    broker.create_topic("t", 3)
    request = request_for(("/nowhere", "t", list(range(2 * ELEMENTS_UNSLICED_MAX))))

    async def ask(server: Any) -> Any:
        rest = handle(server.services, None, request)  # type: ignore[arg-type]
        assert not rest.executed
        return await wait(rest)

    codes = {code for _, _, code in results_of(broker.call(ask))}
    assert codes == {ErrorCode.LOG_DIR_NOT_FOUND}
