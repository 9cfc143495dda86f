"""Repeated produce requests with acks=all to partitions with other replicas.

They get the same responses on the fast path as on the general path, for all ends of their wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.broker.requests.repeated_produce import RepeatedProduce
from odradek.ids import BrokerId
from odradek.metadata.image import PartitionImage
from odradek.replication.partition import Partition
from odradek.result_tasks import wait
from odradek.results import Result
from testkit.wire import request_bytes
from tests.broker.requests.test_repeated_produce import Side, several
from tests.broker.test_call_count import running_broker
from tests.helpers.fast_path_hits import observed_hits
from tests.helpers.led_partitions import led
from tests.replication.cluster_fakes import ALL, EPOCH, A, B, Cluster, Target

Key = tuple[str, int]
Event = Callable[["Leader", Key], None]
ONE = (("t", (0,)),)
THREE = (("t", (0, 2)), ("second", (1,)))
VERSIONS = (7, 9, 12, 13)
ROUNDS = 3


class Leader:
    """A broker that leads the partitions of `THREE`, which have two followers."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.cluster = Cluster()
        self.partitions = {
            (name, number): side.server.services.replica_manager.partition(name, number)
            for name, numbers in THREE
            for number in numbers
        }
        for partition in self.partitions.values():
            partition._factory = self.cluster.parts
            self.lead(partition)

    def lead(self, partition: Partition) -> PartitionImage:
        """Begin a leader epoch in which all replicas are in sync and have all records."""
        image = led(partition.leader_epoch + 1, ALL)
        partition.become_leader(image)
        self.fetch(partition)
        return image

    def fetch(self, partition: Partition) -> None:
        """Fetch at the log end in the name of both followers."""
        leader = partition.replication
        assert leader is not None
        target = Target(partition.log.log_end_offset, partition.leader_epoch)
        for replica in (A, B):
            leader.fetch(replica, EPOCH, target, 0, updates=True)

    def ends(self) -> list[tuple[int, int]]:
        logs = [partition.log for partition in self.partitions.values()]
        return [(log.log_end_offset, log.high_watermark) for log in logs]

    def execute(self, frame: bytes, events: dict[Key, Event]) -> bytes:
        """Execute a request. The events end its wait."""

        async def executed() -> bytes:
            side = self.side
            if not side._remembers:
                side.connection.remembered = None
            reply = side._dispatch(side.connection, memoryview(bytearray(frame)))
            assert isinstance(reply, Result)
            assert reply.executed
            for key, event in events.items():
                assert not reply.done
                event(self, key)
            return b"".join(map(bytes, await wait(reply)))  # type: ignore[arg-type]

        response = self.side._runner.run(executed())
        for name in ("t", "second"):
            response = response.replace(self.side.topic_id(name), b"")
        return response


def committed(leader: Leader, key: Key) -> None:
    leader.fetch(leader.partitions[key])


def deposed(leader: Leader, key: Key) -> None:
    epoch = leader.partitions[key].leader_epoch + 1
    leader.partitions[key].become_follower(led(epoch, ALL, leader=A))


def failed(leader: Leader, key: Key) -> None:
    leader.partitions[key].storage_failed()


@pytest.fixture
def leaders(tmp_path: Path) -> Iterator[tuple[Leader, Leader]]:
    """A broker that remembers shapes, and a broker without shapes that takes the general path."""
    with (
        running_broker(tmp_path / "remembers") as ours,
        running_broker(tmp_path / "forgets") as theirs,
    ):
        for runner, server in (ours, theirs):
            runner.run(server.create_topic("second", 2))
        yield Leader(Side(*ours, remembers=True)), Leader(Side(*theirs, remembers=False))


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    return observed_hits(monkeypatch, RepeatedProduce)


def responses(
    leaders: tuple[Leader, Leader],
    version: int,
    topics: tuple[tuple[str, tuple[int, ...]], ...],
    events: dict[Key, Event],
    timeout_ms: int = 60_000,
) -> bytes:
    """Return the response, which is the same of both brokers."""
    replies = []
    for leader in leaders:
        request = several(leader.side, *topics, acks=-1)
        request.timeout_ms = timeout_ms
        replies.append(leader.execute(request_bytes(request, version, client_id="me"), events))
    assert replies[0] == replies[1]
    assert leaders[0].ends() == leaders[1].ends()
    return replies[0]


def keys(topics: tuple[tuple[str, tuple[int, ...]], ...]) -> list[Key]:
    return [(name, number) for name, numbers in topics for number in numbers]


@pytest.mark.parametrize("topics", [ONE, THREE])
@pytest.mark.parametrize("version", VERSIONS)
def test_r3_repeated_request_with_acks_all_waits_for_the_high_watermark(
    leaders: tuple[Leader, Leader],
    hits: list[bool],
    version: int,
    topics: tuple[tuple[str, tuple[int, ...]], ...],
) -> None:
    for _ in range(ROUNDS):
        responses(leaders, version, topics, dict.fromkeys(keys(topics), committed))
    assert hits == [True] * (ROUNDS - 1)


@pytest.mark.parametrize("event", [deposed, failed])
@pytest.mark.parametrize("topics", [ONE, THREE])
@pytest.mark.parametrize("version", VERSIONS)
def test_r3_repeated_request_fails_with_its_partition(
    leaders: tuple[Leader, Leader],
    hits: list[bool],
    version: int,
    topics: tuple[tuple[str, tuple[int, ...]], ...],
    event: Event,
) -> None:
    for key in keys(topics):
        for ending in (committed, event):
            events = dict.fromkeys(keys(topics), committed) | {key: ending}
            responses(leaders, version, topics, events)
        for leader in leaders:
            leader.lead(leader.partitions[key])
    assert hits == [True] * (2 * len(keys(topics)) - 1)


@pytest.mark.parametrize("topics", [ONE, THREE])
def test_r3_repeated_request_times_out_and_keeps_the_records(
    leaders: tuple[Leader, Leader],
    hits: list[bool],
    topics: tuple[tuple[str, tuple[int, ...]], ...],
) -> None:
    for _ in range(2):
        responses(leaders, 9, topics, dict.fromkeys(keys(topics)[1:], committed), timeout_ms=1)
    assert hits == [True]
    assert [end - high for end, high in leaders[0].ends()] == [2] + [0] * (
        len(keys(topics)) - 1
    ) + [0] * (3 - len(keys(topics)))


@pytest.mark.parametrize("at", range(3))
def test_r2_refused_partition_of_a_repeated_request_leaves_the_others_waiting(
    leaders: tuple[Leader, Leader], hits: list[bool], at: int
) -> None:
    key = keys(THREE)[at]
    responses(leaders, 9, THREE, dict.fromkeys(keys(THREE), committed))
    for leader in leaders:
        partition = leader.partitions[key]
        log = partition.log
        log.update_config(replace(log.config, min_insync_replicas=2))
        partition.config_changed()
        image = led(partition.leader_epoch, ALL, (BrokerId(1),), partition_epoch=1)
        partition.become_leader(image)
    others = [each for each in keys(THREE) if each != key]
    responses(leaders, 9, THREE, dict.fromkeys(others, committed))
    assert hits == [True]
    ends = dict(zip(keys(THREE), leaders[0].ends(), strict=True))
    assert ends == {key: (1, 1)} | dict.fromkeys(others, (2, 2))
