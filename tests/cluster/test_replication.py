"""Three processes on a real ZooKeeper: SIGKILLs and stops of leaders of replicated partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from conformance.histories.analysis import idle, render
from conformance.histories.run import PARTITIONS, TOPICS, Plan, run

from testkit.zookeeper import start_zookeeper
from tests.cluster.conftest import SESSION_MS, Processes

LIMIT_S = 60.0
QUIET = {"log_level": 0}
RECORDS = 50


@pytest.fixture
def replicated(processes: Processes) -> Iterator[Processes]:
    """Three brokers with the topic `t`, of which two replicas must be in sync."""
    processes.start(1, 2, 3)
    _create(processes, "t")
    _await_in_sync(processes)
    yield processes


def _create(processes: Processes, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": processes.bootstrap, **QUIET})
    topic = NewTopic(name, 1, 3, config={"min.insync.replicas": "2"})
    (created,) = admin.create_topics([topic], request_timeout=LIMIT_S).values()
    created.result(LIMIT_S)


def _partition(processes: Processes) -> tuple[int, list[int]]:
    """Return leader and in-sync replicas."""
    admin = AdminClient({"bootstrap.servers": processes.bootstrap, **QUIET})
    found = admin.list_topics("t", timeout=LIMIT_S).topics["t"].partitions[0]
    return found.leader, sorted(found.isrs)


def _await_in_sync(processes: Processes) -> None:
    deadline = time.monotonic() + LIMIT_S
    while (found := _partition(processes))[1] != [1, 2, 3]:
        assert time.monotonic() < deadline, f"leader and in-sync replicas are {found}"
        time.sleep(0.1)


def _produce(processes: Processes, first: int, *, idempotent: bool = True) -> None:
    settings = {"bootstrap.servers": processes.bootstrap, "enable.idempotence": idempotent}
    producer = Producer({**settings, "acks": "all", **QUIET})
    failed: list[object] = []
    for value in range(first, first + RECORDS):
        producer.produce(
            "t", str(value), on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(LIMIT_S) == 0
    assert not failed


def test_records_survive_the_sigkill_of_each_leader_in_turn(replicated: Processes) -> None:
    killed = []
    for turn in range(3):
        _produce(replicated, turn * RECORDS)
        leader, _ = _partition(replicated)
        replicated.brokers[leader].kill()
        killed.append(leader)
        _produce(replicated, 1000 + turn * RECORDS)
        replicated.restart(leader)
        _await_in_sync(replicated)
    assert len(set(killed)) > 1
    expected = [
        str(value) for turn in range(3) for first in (0, 1000) for value in _run(turn, first)
    ]
    assert replicated.read("t") == expected


def _run(turn: int, first: int) -> range:
    return range(first + turn * RECORDS, first + (turn + 1) * RECORDS)


def test_a_stopped_leader_hands_over_before_it_ends(replicated: Processes) -> None:
    _produce(replicated, 0)
    leader, _ = _partition(replicated)
    replicated.brokers[leader].stop()
    follower, in_sync = _partition(replicated)
    assert follower not in (leader, -1)
    assert leader not in in_sync
    _produce(replicated, RECORDS)
    replicated.restart(leader)
    _await_in_sync(replicated)
    assert replicated.read("t") == [str(value) for value in range(2 * RECORDS)]


def test_brokers_serve_while_zookeeper_is_down(tmp_path: Path) -> None:
    with start_zookeeper(tmp_path / "zookeeper") as zookeeper:
        processes = Processes(zookeeper, tmp_path)
        try:
            processes.start(1, 2, 3)
            _create(processes, "t")
            _await_in_sync(processes)
            _produce(processes, 0)
            zookeeper.kill()
            # New producer ids cannot be allocated now.
            _produce(processes, RECORDS, idempotent=False)
            time.sleep(2 * SESSION_MS / 1000)  # no session can be renewed, and none expires
            _produce(processes, 2 * RECORDS, idempotent=False)
            zookeeper.restart()
            _create(processes, "u")
            _produce(processes, 3 * RECORDS)
            _await_in_sync(processes)
            assert processes.read("t") == [str(value) for value in range(4 * RECORDS)]
        finally:
            processes.stop()


def test_histories_of_clients_are_clean_while_leaders_are_killed(tmp_path: Path, seed: int) -> None:
    plan = Plan(
        seed=seed,
        seconds=20,
        start="odradek",
        brokers=3,
        on_zookeeper=True,
        kills=2,
        faults=(),
        clients={"producer": 2, "plain": 1, "consumer": 1},
    )
    report = run(plan, tmp_path / "run", tmp_path / "history.jsonl")
    assert not report.forbidden, render(report)
    assert not idle(report.history)
    assert [fault["f"] for fault in report.history.faults] == ["leader-kill"] * 2
    assert len(report.history.replicas) == TOPICS * PARTITIONS
    assert report.history.complete
