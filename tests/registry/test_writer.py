"""The writer of one term: order of decisions, failures of the brokers, and its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from odradek.registry import writer as writer_module
from odradek.registry.applied_log import AppliedLog
from odradek.registry.decisions.decision import Decision
from odradek.registry.errors import RegistryError, RegistryErrorCode, unknown_leader
from odradek.registry.json_value import JsonValue
from odradek.registry.records import ConfigRecord, NoopRecord, Record, SchemaRecord, decode
from odradek.registry.schemas_log import LogBatch, LogEntry
from odradek.registry.state import RegistryState
from odradek.registry.transactions import (
    EncodedRecord,
    RecordTooLarge,
    TransactionalProducer,
    WriteRefused,
    WriterLost,
)
from odradek.registry.writer import RegistryWriter

TIMEOUT_S = 60.0
FENCED = WriterLost("fenced", is_fenced=True, may_be_written=False)
UNKNOWN = WriterLost("no response", is_fenced=False, may_be_written=True)


class MemoryProducer(TransactionalProducer):
    """A producer whose transactions end in a list, or with the next failure."""

    def __init__(self) -> None:
        self.log: list[EncodedRecord] = []
        self.failures: list[Exception] = []
        self.may_write = threading.Event()
        self.may_write.set()
        self.entered = threading.Event()
        self.written = threading.Event()

    def write(self, records: Sequence[EncodedRecord]) -> int:
        self.entered.set()
        assert self.may_write.wait(TIMEOUT_S)
        if self.failures:
            raise self.failures.pop(0)
        self.log += records
        self.written.set()
        return len(self.log) - 1

    async def has_written(self) -> None:
        assert await asyncio.to_thread(self.written.wait, TIMEOUT_S)

    async def has_entered(self) -> None:
        """Return when a write is in progress."""
        assert await asyncio.to_thread(self.entered.wait, TIMEOUT_S)


class Harness:
    """A writer with a log in memory. The test delivers the log to the state."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.producer = MemoryProducer()
        self.applied = AppliedLog(RegistryState(), "_schemas")
        self.lost: list[WriterLost] = []
        self.writer = RegistryWriter(self.producer, self.applied, executor, self.lost.append)

    def deliver(self) -> None:
        """Apply all records that were written."""
        entries = tuple(
            LogEntry(offset, decode(*record), None)
            for offset, record in enumerate(self.producer.log)
            if offset >= self.applied.position
        )
        self.applied.apply(LogBatch(entries, len(self.producer.log), is_end=True))

    async def deliver_until(self, is_done: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not is_done():
                self.deliver()
                await asyncio.sleep(0)

    async def execute(self, decide: Callable[[RegistryState], Decision]) -> JsonValue:
        """Execute a decision, and deliver the log until it has ended."""
        task = asyncio.ensure_future(self.writer.execute(decide))
        await self.deliver_until(task.done)
        return await task


def decide(*records: Record, response: JsonValue = None) -> Callable[[RegistryState], Decision]:
    return lambda _: Decision(records, response)


def run(test: Callable[[Harness], Coroutine[Any, Any, None]]) -> None:
    with ThreadPoolExecutor(1) as executor:

        async def in_loop() -> None:
            await test(Harness(executor))

        asyncio.run(in_loop())


def test_the_response_follows_the_application_of_the_records() -> None:
    async def test(harness: Harness) -> None:
        write = asyncio.ensure_future(
            harness.writer.execute(decide(NoopRecord(), response={"id": 1}))
        )
        await harness.producer.has_written()
        done, _ = await asyncio.wait([write], timeout=0.05)
        assert not done
        harness.deliver()
        assert await write == {"id": 1}

    run(test)


def test_a_decision_without_records_writes_nothing() -> None:
    async def test(harness: Harness) -> None:
        assert await harness.writer.execute(decide(response="same")) == "same"
        assert harness.producer.log == []

    run(test)


def test_each_decision_sees_the_records_of_the_one_before() -> None:
    positions: list[int] = []

    def count(state: RegistryState) -> Decision:
        positions.append(state.offset)
        return Decision((NoopRecord(),), None)

    async def test(harness: Harness) -> None:
        writes = [asyncio.ensure_future(harness.writer.execute(count)) for _ in range(5)]
        await harness.deliver_until(lambda: all(each.done() for each in writes))
        for each in writes:
            await each

    run(test)
    assert positions == [-1, 0, 1, 2, 3]


def test_a_write_goes_on_when_its_caller_is_cancelled() -> None:
    async def test(harness: Harness) -> None:
        harness.producer.may_write.clear()
        caller = asyncio.ensure_future(harness.writer.execute(decide(NoopRecord())))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        harness.producer.may_write.set()
        assert await harness.execute(decide(NoopRecord(), response=2)) == 2
        assert len(harness.producer.log) == 2

    run(test)


def test_an_error_of_the_decision_writes_nothing_and_the_writer_continues() -> None:
    def refuse(_: RegistryState) -> Decision:
        raise RegistryError(RegistryErrorCode.SUBJECT_NOT_FOUND, "Subject 'a' not found.")

    async def test(harness: Harness) -> None:
        with pytest.raises(RegistryError, match="not found"):
            await harness.execute(refuse)
        assert await harness.execute(decide(NoopRecord(), response=1)) == 1

    run(test)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (WriteRefused("not enough replicas"), RegistryErrorCode.STORE_ERROR),
        (RecordTooLarge("too large"), RegistryErrorCode.SCHEMA_TOO_LARGE),
    ],
)
def test_a_refused_write_is_an_error_and_the_writer_continues(
    failure: Exception, code: int
) -> None:
    async def test(harness: Harness) -> None:
        harness.producer.failures.append(failure)
        with pytest.raises(RegistryError) as raised:
            await harness.execute(decide(NoopRecord()))
        assert raised.value.code == code
        assert await harness.execute(decide(NoopRecord(), response=1)) == 1
        assert harness.lost == []

    run(test)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (FENCED, RegistryErrorCode.UNKNOWN_LEADER),
        (UNKNOWN, RegistryErrorCode.OPERATION_TIMEOUT),
    ],
)
def test_a_lost_writer_acknowledges_nothing_and_ends(failure: WriterLost, code: int) -> None:
    async def test(harness: Harness) -> None:
        harness.producer.failures.append(failure)
        writes = [
            asyncio.ensure_future(harness.writer.execute(decide(NoopRecord()))) for _ in range(3)
        ]
        results = await asyncio.gather(*writes, return_exceptions=True)
        codes = [each.code for each in results if isinstance(each, RegistryError)]
        assert codes == [code, RegistryErrorCode.UNKNOWN_LEADER, RegistryErrorCode.UNKNOWN_LEADER]
        assert harness.lost == [failure]
        assert harness.producer.log == []

    run(test)


def test_a_stopped_writer_ends_the_write_in_progress_and_refuses_the_waiting_ones() -> None:
    async def test(harness: Harness) -> None:
        harness.producer.may_write.clear()
        first = asyncio.ensure_future(harness.writer.execute(decide(NoopRecord(), response=1)))
        second = asyncio.ensure_future(harness.writer.execute(decide(NoopRecord(), response=2)))
        await harness.producer.has_entered()
        harness.writer.stop()
        harness.producer.may_write.set()
        draining = asyncio.ensure_future(harness.writer.drained(TIMEOUT_S))
        await harness.deliver_until(draining.done)
        assert await first == 1
        with pytest.raises(RegistryError) as raised:
            await second
        assert raised.value.code == unknown_leader().code

    run(test)


def schema_record(version: int, schema_id: int, text: str) -> SchemaRecord:
    return SchemaRecord("a", version, schema_id, text)


@pytest.mark.parametrize(
    "record", [schema_record(1, 2**31, '"int"'), schema_record(2**31, 1, '"int"')]
)
def test_a_record_that_does_not_decode_is_refused_before_it_is_written(
    record: SchemaRecord,
) -> None:
    async def test(harness: Harness) -> None:
        with pytest.raises(RegistryError) as raised:
            await harness.execute(decide(NoopRecord(), record, response={"id": record.id}))
        assert raised.value.code == RegistryErrorCode.STORE_ERROR
        assert harness.producer.log == []

    run(test)


def test_a_record_that_the_state_skips_is_not_acknowledged() -> None:
    async def test(harness: Harness) -> None:
        await harness.execute(decide(schema_record(1, 1, '"int"')))
        with pytest.raises(RegistryError) as raised:
            await harness.execute(decide(schema_record(2, 1, '"long"'), NoopRecord()))
        assert raised.value.code == RegistryErrorCode.STORE_ERROR
        assert "offset 1" in raised.value.message
        assert await harness.execute(decide(NoopRecord(), response=1)) == 1

    run(test)


def test_records_that_are_not_read_in_time_stop_the_next_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its state would lack records, so that an id could be given twice."""
    monkeypatch.setattr(writer_module, "APPLY_TIMEOUT_S", 0.02)

    async def test(harness: Harness) -> None:
        for _ in range(2):
            with pytest.raises(RegistryError) as raised:
                await harness.writer.execute(decide(ConfigRecord(None, None)))
            assert raised.value.code == RegistryErrorCode.OPERATION_TIMEOUT
        assert len(harness.producer.log) == 1
        harness.deliver()
        assert await harness.execute(decide(NoopRecord(), response=1)) == 1

    run(test)
