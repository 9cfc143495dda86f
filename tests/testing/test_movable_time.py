"""`Broker.advance`: work that becomes due by the broker's clock is done when it returns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from odradek.broker.main import loop_factory
from odradek.testing import Broker
from odradek.testing.movable_time import (
    MovableClock,
    MovableTimers,
    QuietLoop,
    quiet_loop_factory,
)
from testkit.requests import produce
from testkit.wire import WireClient

TIMEOUT_S = 120
HOUR_S = 3600.0


@contextmanager
def member(broker: Broker, group: str, topic: str, **options: object) -> Iterator[Any]:
    """Run a consumer in `group`, and close it when the block ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 60_000,
            "heartbeat.interval.ms": 30_000,
            **options,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def transactional(broker: Broker, transactional_id: str, **options: object) -> Any:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            **options,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


@pytest.fixture(params=["uvloop", "asyncio"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    base = None if request.param == "asyncio" else loop_factory()
    if base is None and request.param == "uvloop":
        pytest.skip("uvloop is not here")
    with asyncio.Runner(loop_factory=quiet_loop_factory(base)) as running:
        yield running


async def quiet() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuietLoop)
    await loop.quiet()


def test_timers_that_become_due_run_in_the_order_of_their_times(runner: asyncio.Runner) -> None:
    ran: list[str] = []
    clock = MovableClock()
    timers = MovableTimers(clock)

    async def sleep(seconds: float) -> str:
        await timers.sleep(seconds)
        return "slept"

    async def scenario() -> None:
        timers.call_later(3600, ran.append, "an hour")
        timers.call_later(60, ran.append, "a minute")
        timers.call_later(61, ran.append, "cancelled").cancel()
        timers.call_later(7200, ran.append, "two hours")
        sleeper = asyncio.create_task(sleep(1800))
        await asyncio.sleep(0)
        clock.advance(3_600_000)
        timers.clock_moved()
        await quiet()
        ran.append(sleeper.result())

    runner.run(scenario())
    assert ran == ["a minute", "an hour", "slept"]


def test_timer_that_is_cancelled_after_the_move_does_not_run(runner: asyncio.Runner) -> None:
    ran: list[str] = []
    clock = MovableClock()
    timers = MovableTimers(clock)

    async def scenario() -> None:
        second = timers.call_later(20, ran.append, "second")
        timers.call_later(10, second.cancel)
        clock.advance(30_000)
        timers.clock_moved()
        await quiet()

    runner.run(scenario())
    assert ran == []


def test_real_time_continues_and_a_move_shortens_delays(runner: asyncio.Runner) -> None:
    clock = MovableClock()
    timers = MovableTimers(clock)

    async def scenario() -> None:
        almost_an_hour = asyncio.create_task(timers.sleep(HOUR_S + 0.01))
        await asyncio.sleep(0)
        clock.advance(HOUR_S * 1000)
        timers.clock_moved()
        await asyncio.wait_for(almost_an_hour, TIMEOUT_S)
        await asyncio.wait_for(timers.sleep(0.01), TIMEOUT_S)

    runner.run(scenario())


def test_sleep_that_is_cancelled_leaves_no_timer(runner: asyncio.Runner) -> None:
    timers = MovableTimers(MovableClock())

    async def scenario() -> None:
        sleeper = asyncio.create_task(timers.sleep(HOUR_S))
        await asyncio.sleep(0)
        sleeper.cancel()
        await asyncio.wait([sleeper])
        assert not timers._waiting

    runner.run(scenario())


def test_reset_corrects_the_wall_clock_and_not_the_monotonic_clock() -> None:
    clock = MovableClock()
    before_ms = clock.monotonic_ms()
    clock.advance(HOUR_S * 1000)
    assert clock.time_ms() - time.time() * 1000 > HOUR_S * 900
    clock.reset()
    assert abs(clock.time_ms() - time.time() * 1000) < HOUR_S * 100
    assert clock.monotonic_ms() - before_ms >= HOUR_S * 1000


def test_member_without_heartbeats_is_removed(kafka: Broker) -> None:
    kafka.create_topic("pages", partitions=2)
    # The first heartbeat follows SyncGroup directly, and may arrive after a move of the time.
    unheard = kafka.fail("Heartbeat", "COORDINATOR_LOAD_IN_PROGRESS")
    with unheard, member(kafka, "readers", "pages") as consumer:
        consumer.poll(0)
        kafka.wait_until_group_stable("readers", members=1, timeout_s=TIMEOUT_S)
        kafka.advance(30)
        kafka.wait_until_group_stable("readers", members=1)
        kafka.advance(31)
        kafka.wait_until_group_empty("readers", timeout_s=0)


def test_open_transaction_is_aborted_after_its_timeout(kafka: Broker) -> None:
    kafka.create_topic("pages")
    producer = transactional(kafka, "mover", **{"transaction.timeout.ms": 60_000})
    producer.begin_transaction()
    producer.produce("pages", b"never seen")
    assert producer.flush(TIMEOUT_S) == 0
    kafka.advance(30)  # real time continues too, so the margin is for a slow machine
    kafka.wait_for_open_transactions(1, timeout_s=0)
    kafka.advance(31)
    kafka.wait_for_open_transactions(0, timeout_s=0)
    # The abort marker follows the record.
    kafka.wait_for_high_watermark("pages", 2, timeout_s=0)
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)


def test_retention_deletes_old_records(kafka: Broker) -> None:
    kafka.create_topic("pages", config={"retention.ms": 3_600_000, "segment.ms": 600_000})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("pages", b"old")
    assert producer.flush(TIMEOUT_S) == 0
    assert watermarks(kafka, "pages") == (0, 1)
    kafka.advance(2 * HOUR_S)
    assert watermarks(kafka, "pages") == (1, 1)


def test_compaction_is_done_when_it_is_due(kafka: Broker) -> None:
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0.01,
        "segment.ms": 60_000,
        # The topic uses the broker's time, which moves, because a client's time does not.
        "message.timestamp.type": "LogAppendTime",
    }
    kafka.create_topic("profiles", config=config)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
    for value in (b"1", b"2", b"3"):
        producer.produce("profiles", value, key=b"user")
        assert producer.flush(TIMEOUT_S) == 0
    kafka.advance(120)
    producer.produce("profiles", b"other", key=b"other")
    assert producer.flush(TIMEOUT_S) == 0
    kafka.advance(0)
    assert values(kafka, "profiles", 2) == [b"3", b"other"]


def test_unused_transactional_id_expires(kafka: Broker) -> None:
    producer = transactional(kafka, "once")
    del producer
    kafka.advance(8 * 24 * HOUR_S)

    async def known(server: Any) -> list[str]:
        return [each.transactional_id for each in server.services.transactions.all_transactions()]

    assert kafka.call(known) == []


def test_clients_stay_connected_after_a_long_move_of_the_time(kafka: Broker) -> None:
    kafka.create_topic("pages")
    with WireClient(kafka.bootstrap_servers) as client:
        client.call(produce("pages"), 9)
        kafka.advance(24 * HOUR_S)
        [response] = client.call(produce("pages"), 9).responses
        assert response.partition_responses[0].base_offset == 1


def test_reset_resets_the_clock(kafka: Broker) -> None:
    kafka.advance(30 * 24 * HOUR_S)
    kafka.reset()

    async def time_ms(server: Any) -> int:
        return int(server.services.clock.time_ms())

    assert abs(kafka.call(time_ms) - time.time() * 1000) < HOUR_S * 1000


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_advance_refuses_negative_and_infinite_times(kafka: Broker, seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds must be finite"):
        kafka.advance(seconds)


def watermarks(broker: Broker, topic: str) -> tuple[int, int]:
    consumer = reader(broker)
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        return low, high
    finally:
        consumer.close()


def values(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    consumer = reader(broker)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, TIMEOUT_S)]
    finally:
        consumer.close()


def reader(broker: Broker) -> Any:
    servers = broker.bootstrap_servers
    return Consumer({"bootstrap.servers": servers, "group.id": "nobody"})
