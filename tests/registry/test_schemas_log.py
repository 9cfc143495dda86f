"""The reader of the log on a real broker: order, ends, transactions and a lost topic."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from odradek.environment.clock import SystemClock
from odradek.registry import schemas_log
from odradek.registry.kafka_settings import KafkaSettings
from odradek.registry.log_identity import LogLost
from odradek.registry.records import Foreign, ModeRecord, NoopRecord, encode
from odradek.registry.schemas_log import LogBatch, LogEntry, SchemasLog
from odradek.registry.schemas_topic import prepare_topic
from odradek.testing import Broker

TIMEOUT_S = 120.0
NOOP = encode(NoopRecord())


class Slots:
    """The limit of the batches that wait for the event loop, which reports that it was reached."""

    def __init__(self, free: threading.BoundedSemaphore) -> None:
        self._free = free
        self._lock = threading.Lock()
        self._taken = 0
        self.taken_max = 0
        self.is_full = threading.Event()

    def acquire(self, timeout: float) -> bool:
        if not self._free.acquire(timeout=timeout):
            self.is_full.set()
            return False
        with self._lock:
            self._taken += 1
            self.taken_max = max(self.taken_max, self._taken)
        return True

    def release(self) -> None:
        with self._lock:
            self._taken -= 1
        self._free.release()


class Reader:
    """A reader of the log, and all batches up to now."""

    def __init__(self, servers: str) -> None:
        self.batches: list[LogBatch] = []
        self.failures: list[Exception] = []
        self.is_slow = False
        self._changed = asyncio.Event()
        settings = KafkaSettings(servers)
        clock = SystemClock()
        self.log = SchemasLog(settings, self._apply, self._fail, clock.monotonic_ms)
        self.slots = Slots(self.log._free)
        self.log._free = self.slots  # type: ignore[assignment]

    def _apply(self, batch: LogBatch) -> None:
        if self.is_slow:
            self.slots.is_full.wait(TIMEOUT_S)
        self.batches.append(batch)
        self._changed.set()

    def _fail(self, error: Exception) -> None:
        self.failures.append(error)
        self._changed.set()

    @property
    def entries(self) -> list[LogEntry]:
        return [entry for batch in self.batches for entry in batch.entries]

    @property
    def position(self) -> int:
        return self.batches[-1].position if self.batches else -1

    async def wait(self, is_reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not is_reached():
                self._changed.clear()
                await self._changed.wait()


def run(servers: str, test: Callable[[Reader], Coroutine[Any, Any, None]]) -> None:
    async def in_loop() -> None:
        async with reading(servers) as reader:
            await test(reader)

    asyncio.run(in_loop())


@asynccontextmanager
async def reading(servers: str) -> AsyncIterator[Reader]:
    reader = Reader(servers)
    reader.log.start()
    try:
        yield reader
    finally:
        await reader.log.close(TIMEOUT_S)


def send(servers: str, *records: tuple[bytes | None, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for key, value in records:
        producer.produce("_schemas", value, key, 0)
    assert producer.flush(TIMEOUT_S) == 0


def transactional(servers: str, name: str = "t") -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("_schemas", NOOP[1], NOOP[0], 0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


@pytest.fixture
def servers(kafka: Broker) -> str:
    prepare_topic(KafkaSettings(kafka.bootstrap_servers))
    return kafka.bootstrap_servers


def test_an_empty_log_has_its_end_at_once(servers: str) -> None:
    async def test(reader: Reader) -> None:
        await reader.wait(lambda: bool(reader.batches))
        assert reader.batches[0] == LogBatch((), 0, is_end=True)
        assert await reader.log.end_offset() == 0

    run(servers, test)


def test_records_arrive_in_order_with_offsets_and_timestamps(servers: str) -> None:
    count = 3 * schemas_log.BATCH_RECORDS_MAX
    send(servers, *[NOOP] * count)

    async def test(reader: Reader) -> None:
        await reader.wait(lambda: bool(reader.batches) and reader.batches[-1].is_end)
        assert [entry.offset for entry in reader.entries] == list(range(count))
        assert all(entry.record == NoopRecord() for entry in reader.entries)
        assert all(entry.timestamp_ms for entry in reader.entries)
        assert all(len(each.entries) <= schemas_log.BATCH_RECORDS_MAX for each in reader.batches)

    run(servers, test)


def test_records_that_do_not_decode_are_passed_on_as_foreign(servers: str) -> None:
    send(servers, (b"text", b"text"), (b'{"keytype":"FUTURE","magic":0}', b"{}"), NOOP)

    async def test(reader: Reader) -> None:
        await reader.wait(lambda: reader.position == 3)
        kinds = [type(entry.record) for entry in reader.entries]
        assert kinds == [Foreign, Foreign, NoopRecord]

    run(servers, test)


def test_new_records_arrive_while_the_reader_waits(servers: str) -> None:
    async def test(reader: Reader) -> None:
        await reader.wait(lambda: bool(reader.batches))
        await asyncio.to_thread(send, servers, encode(ModeRecord(None, None)))
        await reader.wait(lambda: len(reader.entries) == 1)
        assert reader.entries[0].record == ModeRecord(None, None)

    run(servers, test)


def test_the_end_passes_the_markers_of_transactions(servers: str) -> None:
    """A position is reached although no record has the offsets before it."""

    async def test(reader: Reader) -> None:
        committed = await asyncio.to_thread(transactional, servers)
        assert await reader.log.end_offset() == 0
        await asyncio.to_thread(committed.commit_transaction, TIMEOUT_S)
        await reader.wait(lambda: reader.position == 2)
        aborted = await asyncio.to_thread(transactional, servers)
        await asyncio.to_thread(aborted.abort_transaction, TIMEOUT_S)
        await reader.wait(lambda: reader.position == 4)
        assert [entry.offset for entry in reader.entries] == [0]
        assert await reader.log.end_offset() == 4

    run(servers, test)


def test_the_thread_waits_for_a_slow_event_loop(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas_log, "BATCH_RECORDS_MAX", 2)
    send(servers, *[NOOP] * 50)

    async def test(reader: Reader) -> None:
        reader.is_slow = True
        await reader.wait(lambda: reader.position == 50)
        assert reader.slots.is_full.is_set()
        assert reader.slots.taken_max == schemas_log.BATCHES_MAX
        assert [entry.offset for entry in reader.entries] == list(range(50))

    run(servers, test)


def test_a_topic_that_was_created_again_ends_the_reader(kafka: Broker, servers: str) -> None:
    send(servers, *[NOOP] * 3)

    async def test(reader: Reader) -> None:
        await reader.wait(lambda: reader.position == 3)
        await asyncio.to_thread(recreate, servers)
        await reader.wait(lambda: bool(reader.failures))
        (failure,) = reader.failures
        assert isinstance(failure, LogLost)
        assert "Start the registry again" in str(failure)

    run(servers, test)


def recreate(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics(["_schemas"])["_schemas"].result(TIMEOUT_S)
    prepare_topic(KafkaSettings(servers))


def test_close_ends_the_thread_without_a_broker() -> None:
    async def in_loop() -> None:
        async with reading("127.0.0.1:1") as reader:
            await asyncio.sleep(0)
        assert not reader.log._thread.is_alive()

    asyncio.run(in_loop())
