"""The consumer of Kafka's first paper on a real ZooKeeper, with records in memory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from odradek.consumers import zookeeper as module
from odradek.consumers.zookeeper import ConsumerError, ZooKeeperConsumer, share
from odradek.environment.clock import ManualClock
from testkit.zookeeper import ZooKeeperProcess
from tests.consumers.registered_topics import SESSION_MS, RegisteredTopics
from tests.helpers.zookeeper_proxy import Loss, ZooKeeperProxy

POLLS_MAX = 600


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess) -> Iterator[RegisteredTopics]:
    found = RegisteredTopics(zookeeper.port)
    yield found
    found.close()


@pytest.fixture
def proxy(zookeeper: ZooKeeperProcess) -> Iterator[ZooKeeperProxy]:
    found = ZooKeeperProxy(zookeeper.port)
    yield found
    found.close()


def poll_until(condition: Callable[[], bool], *consumers: ZooKeeperConsumer) -> list[Any]:
    """Poll the consumers in turn until the condition holds. Return the records."""
    records: list[Any] = []
    for _ in range(POLLS_MAX):
        if condition():
            return records
        for each in consumers:
            if (record := each.poll(0.05)) is not None:
                records.append(record)
    raise AssertionError("the condition does not hold")


def numbers_owned(consumer: ZooKeeperConsumer) -> list[int]:
    return sorted(number for _, number in consumer.claims)


@given(st.sets(st.integers(0, 40)), st.sets(st.text("abc", min_size=1), min_size=1))
def test_shares_are_ranges_of_the_sorted_partitions_and_cover_each_once(
    partitions: set[int], streams: set[str]
) -> None:
    shares = [share([*partitions], [*streams], stream) for stream in sorted(streams)]
    assert [number for each in shares for number in each] == sorted(partitions)
    sizes = [len(each) for each in shares]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_nodes_have_the_layout_of_kafka_0_8(cluster: RegisteredTopics) -> None:
    cluster.create("pages", 1, records=3)
    clock = ManualClock(time_ms=1_700_000_000_123)
    with contextlib.closing(cluster.consumer("readers_host-1", clock=clock)) as consumer:
        assert [consumer.poll(0).offset() for _ in range(2)] == [0, 1]
        consumer.commit()
        registration = cluster.group_node("ids/readers_host-1")
        assert registration is not None
        assert json.loads(registration) == {
            "version": 1,
            "subscription": {"pages": 1},
            "pattern": "static",
            "timestamp": "1700000000123",
        }
        assert cluster.group_node("owners/pages/0") == b"readers_host-1-0"
        assert cluster.group_node("offsets/pages/0") == b"2"
    assert cluster.owners() == {}
    assert cluster.group_node("ids/readers_host-1") is None
    assert cluster.group_node("offsets/pages/0") == b"2"


def test_default_id_is_unique_and_names_the_group_first(cluster: RegisteredTopics) -> None:
    names = {cluster.consumer("").consumer_id for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("readers_") for name in names)


@pytest.mark.parametrize("group", ["a/b", ".", "..", ""])
def test_group_name_must_not_be_a_path(group: str) -> None:
    address = module.ZooKeeperAddress("127.0.0.1:1")
    with pytest.raises(ValueError, match="may have letters"):
        ZooKeeperConsumer(address, group, ["pages"])


@pytest.mark.parametrize("group", ["...", ".a", "a.b"])
def test_group_name_may_have_dots(group: str) -> None:
    assert ZooKeeperConsumer(module.ZooKeeperAddress("127.0.0.1:1"), group, ["pages"])


def test_a_request_that_zookeeper_refuses_is_an_error_and_is_repeated(
    cluster: RegisteredTopics,
) -> None:
    """The owner nodes of the topic may be read only."""
    cluster.create("pages", 1, 1)
    path = f"{cluster.chroot}/consumers/readers/owners/pages"
    cluster.client.ensure_path(path)
    cluster.client.set_acls(path, [make_acl("world", "anyone", read=True, admin=True)])
    with contextlib.closing(cluster.consumer("a")) as consumer:
        for _ in range(2):
            with pytest.raises(ConsumerError, match="NoAuthError"):
                consumer.poll(0)
        cluster.client.set_acls(path, OPEN_ACL_UNSAFE)
        poll_until(lambda: bool(consumer.claims), consumer)


def test_brokers_that_register_after_the_consumer_are_noticed(cluster: RegisteredTopics) -> None:
    """Their parent does not exist before the first broker."""
    cluster.create("pages", 1)
    cluster.client.delete(f"{cluster.chroot}/brokers/ids", recursive=True)
    with contextlib.closing(cluster.consumer("a")) as consumer:
        consumer._backoff_ms = 3_600_000
        assert consumer.poll(0) is None
        cluster.client.ensure_path(f"{cluster.chroot}/brokers/ids")
        cluster.register_broker(1)
        poll_until(lambda: bool(consumer.claims), consumer)


def test_consumers_that_come_and_go_share_the_partitions(cluster: RegisteredTopics) -> None:
    cluster.create("pages", 5)
    first, second, third = (cluster.consumer(name) for name in "abc")
    poll_until(lambda: numbers_owned(first) == [0, 1, 2, 3, 4], first)
    poll_until(lambda: numbers_owned(second) == [3, 4], first, second)
    assert numbers_owned(first) == [0, 1, 2]
    poll_until(
        lambda: [numbers_owned(each) for each in (first, second, third)] == [[0, 1], [2, 3], [4]],
        first,
        second,
        third,
    )
    assert cluster.owners() == {0: "a-0", 1: "a-0", 2: "b-0", 3: "b-0", 4: "c-0"}
    first.close()
    poll_until(lambda: numbers_owned(second) == [0, 1, 2], second, third)
    second.close()
    third.close()


def test_a_consumer_without_a_share_waits_for_one(cluster: RegisteredTopics) -> None:
    cluster.create("pages", 1)
    first, second = cluster.consumer("a"), cluster.consumer("b")
    poll_until(lambda: numbers_owned(first) == [0], first, second)
    assert second.poll(0) is None
    assert len(cluster.fetchers) == 1
    first.close()
    poll_until(lambda: numbers_owned(second) == [0], second)
    second.close()


def test_streams_of_other_clients_count(cluster: RegisteredTopics) -> None:
    """A consumer of Kafka 0.8 may have several streams for a topic."""
    cluster.create("pages", 4)
    node = {"version": 1, "subscription": {"pages": 3, "other": 1}, "pattern": "static"}
    cluster.client.create(cluster.group_path("ids/z"), json.dumps(node).encode(), makepath=True)
    with contextlib.closing(cluster.consumer("a")) as consumer:
        consumer.poll(0)
        assert numbers_owned(consumer) == [0]


def test_records_are_committed_when_the_next_owner_takes_over(cluster: RegisteredTopics) -> None:
    cluster.create("pages", 2, records=4)
    first, second = cluster.consumer("a"), cluster.consumer("b")
    before = [first.poll(0) for _ in range(3)]
    records = poll_until(lambda: numbers_owned(second) == [1], first, second)
    while len(before) + len(records) < 8:
        records += [r for each in (first, second) if (r := each.poll(0)) is not None]
    delivered = sorted((r.partition(), r.offset()) for r in [*before, *records])
    assert delivered == [(p, o) for p in range(2) for o in range(4)]
    first.close()
    second.close()


def test_records_after_the_last_commit_are_delivered_again(cluster: RegisteredTopics) -> None:
    cluster.create("pages", 1, records=5)
    first = cluster.consumer("a")
    offsets = [first.poll(0).offset() for _ in range(2)]
    first.commit()
    offsets.append(first.poll(0).offset())
    first.close()
    with contextlib.closing(cluster.consumer("b")) as second:
        offsets += [second.poll(0).offset() for _ in range(3)]
    assert offsets == [0, 1, 2, 2, 3, 4]


def test_an_existing_owner_makes_a_consumer_release_all_and_try_again(
    cluster: RegisteredTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REBALANCE_TIMEOUT_MS", 0)
    cluster.create("pages", 3, records=1)
    cluster.client.create(
        cluster.group_path("owners/pages/2"), b"other-0", ephemeral=True, makepath=True
    )
    with contextlib.closing(cluster.consumer("a")) as consumer:
        with pytest.raises(ConsumerError, match="owners/pages/2"):
            consumer.poll(0)
        assert cluster.owners() == {2: "other-0"}
        assert consumer.claims == {}
        cluster.client.delete(cluster.group_path("owners/pages/2"))
        assert len(poll_until(lambda: numbers_owned(consumer) == [0, 1, 2], consumer)) <= 1
        assert set(cluster.owners().values()) == {"a-0"}


def test_topics_partitions_and_brokers_that_appear_are_noticed(cluster: RegisteredTopics) -> None:
    with contextlib.closing(cluster.consumer("a", "pages", "visits")) as consumer:
        assert consumer.poll(0) is None
        cluster.create("pages", 1)
        poll_until(lambda: set(consumer.claims) == {("pages", 0)}, consumer)
        cluster.add_partitions("pages", 2)
        poll_until(lambda: set(consumer.claims) == {("pages", 0), ("pages", 1)}, consumer)
        cluster.create("visits", 1)
        poll_until(lambda: ("visits", 0) in consumer.claims, consumer)
        cluster.register_broker(2)
        poll_until(lambda: "9002" in cluster.fetchers[-1].settings["bootstrap.servers"], consumer)
        servers = cluster.fetchers[-1].settings["bootstrap.servers"]
        assert servers == "127.0.0.1:9001,127.0.0.1:9002", "the first listeners without security"


def test_later_owners_have_larger_claims(cluster: RegisteredTopics) -> None:
    cluster.create("pages", 1)
    claims = []
    for name in "abc":
        with contextlib.closing(cluster.consumer(name)) as consumer:
            consumer.poll(0)
            claims.append(consumer.claims["pages", 0])
    assert claims == sorted(set(claims))


def test_a_lost_session_delivers_and_commits_nothing(
    cluster: RegisteredTopics, proxy: ZooKeeperProxy
) -> None:
    cluster.create("pages", 1, records=10)
    lost, other = cluster.consumer("a", port=proxy.port), cluster.consumer("b")
    assert lost.poll(0).offset() == 0
    lost.commit()
    assert lost.poll(0).offset() == 1
    proxy.cut(refuse=True)
    records = poll_until(lambda: numbers_owned(other) == [0], other)
    records += [other.poll(0) for _ in range(2)]
    assert lost.poll(0) is None
    with pytest.raises(ConsumerError):
        lost.commit()
    assert cluster.group_node("offsets/pages/0") == b"1"
    other.commit()
    proxy.accept()
    assert poll_until(lambda: cluster.group_node("ids/a") is not None, lost) == []
    records += poll_until(lambda: numbers_owned(lost) == [0], other, lost)
    while len(records) < 9:
        records += [each for each in (lost.poll(0), other.poll(0)) if each is not None]
    assert [record.offset() for record in records] == list(range(1, 10))
    lost.close()
    other.close()


def suspend(pid: int) -> None:
    """Suspend a child of this process. A busy machine delivers the signal later than it is sent."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def test_nothing_is_delivered_past_the_session_timeout_without_a_response(
    cluster: RegisteredTopics, zookeeper: ZooKeeperProcess
) -> None:
    """The server is stopped, so that the client cannot know whether its session has ended."""
    cluster.create("pages", 1, records=9)
    clock = ManualClock()
    with contextlib.closing(cluster.consumer("a", clock=clock)) as consumer:
        assert consumer.poll(0).offset() == 0
        suspend(zookeeper.child.pid)
        try:
            assert consumer.poll(0).offset() == 1
            clock.advance(SESSION_MS // 2)
            assert consumer.poll(0) is None
        finally:
            os.kill(zookeeper.child.pid, signal.SIGCONT)


@pytest.mark.parametrize("loss", Loss)
def test_a_lost_request_or_response_leaves_no_partition_without_its_owner(
    cluster: RegisteredTopics, proxy: ZooKeeperProxy, loss: Loss
) -> None:
    cluster.create("pages", 3, records=2)
    with contextlib.closing(cluster.consumer("a", port=proxy.port)) as consumer:
        assert consumer.poll(0).offset() == 0
        proxy.lose_next_write(loss)
        cluster.register_broker(2)  # a rebalance, whose commit is lost
        records = poll_until(lambda: len(cluster.fetchers) > 1, consumer)
        while len(records) < 5:
            if (record := consumer.poll(0.05)) is not None:
                records.append(record)
        assert cluster.owners() == dict.fromkeys(range(3), "a-0")
    assert sorted((r.partition(), r.offset()) for r in records) == [
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]


def test_an_address_without_zookeeper_is_an_error() -> None:
    address = module.ZooKeeperAddress("127.0.0.1:1")
    consumer = ZooKeeperConsumer(address, "readers", ["pages"], session_timeout_ms=200)
    with pytest.raises(ConsumerError, match="accepts no session"):
        consumer.poll(0)


def test_the_package_stays_below_four_hundred_lines() -> None:
    modules = sorted(Path(module.__file__).parent.glob("*.py"))
    assert sum(len(path.read_text("utf-8").splitlines()) for path in modules) < 400
