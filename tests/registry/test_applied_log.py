"""The state as far as the log was applied: waits for offsets, and skipped records."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.registry.applied_log import SKIPPED_LINES_MAX, AppliedLog
from odradek.registry.records import Foreign, NoopRecord, Record
from odradek.registry.schemas_log import LogBatch, LogEntry
from odradek.registry.state import RegistryState


def batch(*records: Record | Foreign, first: int = 0, is_end: bool = False) -> LogBatch:
    entries = tuple(LogEntry(first + number, each, None) for number, each in enumerate(records))
    return LogBatch(entries, first + len(records), is_end)


def test_waits_end_in_the_order_of_their_offsets() -> None:
    async def test() -> None:
        applied = AppliedLog(RegistryState(), "_schemas")
        waits = [asyncio.ensure_future(applied.wait_applied(offset)) for offset in (2, 0, 1, 0)]
        await asyncio.sleep(0)
        applied.apply(batch(NoopRecord()))
        await asyncio.sleep(0)
        assert [each.done() for each in waits] == [False, True, False, True]
        applied.apply(batch(NoopRecord(), NoopRecord(), first=1))
        await asyncio.gather(*waits)
        await applied.wait_applied(-1)

    asyncio.run(test())


def test_a_cancelled_wait_does_not_hold_back_later_ones() -> None:
    async def test() -> None:
        applied = AppliedLog(RegistryState(), "_schemas")
        cancelled = asyncio.ensure_future(applied.wait_applied(0))
        other = asyncio.ensure_future(applied.wait_applied(0))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        applied.apply(batch(NoopRecord()))
        await other

    asyncio.run(test())


def test_the_log_is_ready_at_its_first_end_also_without_records() -> None:
    async def test() -> None:
        applied = AppliedLog(RegistryState(), "_schemas")
        applied.apply(batch(NoopRecord()))
        assert not applied.is_ready
        applied.apply(batch(first=1, is_end=True))
        assert applied.is_ready
        await applied.ready()

    asyncio.run(test())


def test_a_thread_reads_a_snapshot_while_the_log_continues() -> None:
    async def test() -> None:
        applied = AppliedLog(RegistryState(), "_schemas")
        release = threading.Event()

        def read(state: RegistryState) -> tuple[int, int]:
            before = state.offset
            assert release.wait(60)
            return before, state.offset

        with ThreadPoolExecutor(2) as pool:
            first = asyncio.ensure_future(applied.read_in(pool, read))
            await asyncio.sleep(0)
            applied.apply(batch(NoopRecord()))
            assert applied.position == 1
            second = asyncio.ensure_future(applied.read_in(pool, read))
            await asyncio.sleep(0)
            release.set()
            assert await first == (-1, -1)
            assert await second == (0, 0)
        applied.apply(batch(NoopRecord(), first=1))
        assert applied.position == 2

    asyncio.run(test())


def test_a_read_that_is_cancelled_or_fails_lets_the_log_continue() -> None:
    async def test() -> None:
        applied = AppliedLog(RegistryState(), "_schemas")
        release = threading.Event()

        def fail(_: RegistryState) -> None:
            assert release.wait(60)
            raise LookupError

        with ThreadPoolExecutor(2) as pool:
            cancelled = asyncio.ensure_future(applied.read_in(pool, lambda _: release.wait(60)))
            failing = asyncio.ensure_future(applied.read_in(pool, fail))
            await asyncio.sleep(0)
            cancelled.cancel()
            applied.apply(batch(NoopRecord()))
            assert applied.position == 1
            release.set()
            with pytest.raises(LookupError):
                await failing
        with pytest.raises(RuntimeError):
            await applied.read_in(pool, fail)
        applied.apply(batch(NoopRecord(), first=1))
        assert applied.position == 2

    asyncio.run(test())


def test_skipped_records_are_counted_and_the_first_ones_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    applied = AppliedLog(RegistryState(), "_schemas")
    foreign = [Foreign("the record has no key")] * (3 * SKIPPED_LINES_MAX)
    with caplog.at_level(logging.WARNING):
        applied.apply(batch(*foreign))
    assert applied.skipped == len(foreign)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == SKIPPED_LINES_MAX
    assert lines[0] == (
        "the record at offset 0 of topic '_schemas' is skipped: the record has no key"
    )
    assert lines[-1].startswith("more records of topic '_schemas' are skipped")
