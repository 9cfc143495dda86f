"""Requests that are held while the producer's last transaction is being completed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.coordinator.transaction import held_additions
from odradek.coordinator.transaction.held_additions import HELD_MS, HeldAdditions
from odradek.coordinator.transaction.transaction_decisions import Identity, TransactionResponse
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.results import Result
from tests.coordinator.transaction.transactions_on_disk import A0, A1, OnDisk, coordinator
from tests.helpers.event_loop import on_loop
from tests.helpers.manual_timers import SteppedTimers, settle

E = ErrorCode


class Requests:
    """Requests for one transactional id, which all get the same code."""

    def __init__(self) -> None:
        self.timers = SteppedTimers(ManualClock(0))
        self.held = HeldAdditions(self.timers)
        self.code = E.CONCURRENT_TRANSACTIONS
        self.decisions = 0

    def _decide(self) -> Result[TransactionResponse]:
        self.decisions += 1
        return Result(TransactionResponse(self.code))

    def send(self) -> Result[TransactionResponse]:
        return self.held.first_decided("t", self._decide)

    async def change(self, code: ErrorCode) -> None:
        self.code = code
        self.held.changed("t")
        await asyncio.sleep(0)


def code_of(result: Result[TransactionResponse]) -> ErrorCode:
    return result.get().code


@on_loop
async def test_other_codes_are_returned_at_once() -> None:
    it = Requests()
    it.code = E.PRODUCER_FENCED
    assert code_of(it.send()) is E.PRODUCER_FENCED
    assert (len(it.held), it.timers.armed) == (0, 0)


@on_loop
async def test_request_is_decided_again_when_its_transactional_id_has_changed() -> None:
    it = Requests()
    first, second = it.send(), it.send()
    assert first.executed and not first.done
    await it.change(E.CONCURRENT_TRANSACTIONS)
    assert not first.done and len(it.held) == 2
    await it.change(E.NONE)
    assert (code_of(first), code_of(second), it.decisions) == (E.NONE, E.NONE, 6)
    assert (len(it.held), it.timers.armed) == (0, 0)


@on_loop
async def test_request_gets_the_response_of_kafka_after_the_time() -> None:
    it = Requests()
    result = it.send()
    it.timers.advance(HELD_MS - 1)
    assert not result.done
    it.timers.advance(1)
    assert code_of(result) is E.CONCURRENT_TRANSACTIONS
    await it.change(E.NONE)
    assert it.decisions == 1


@on_loop
async def test_request_of_a_closed_connection_is_never_decided_again() -> None:
    it = Requests()
    first, second = it.send(), it.send()
    first.on_done(lambda _: None)
    second.cancel()
    await it.change(E.NONE)
    assert code_of(first) is E.NONE
    assert (it.decisions, len(it.held), it.timers.armed) == (3, 0, 0)


@on_loop
async def test_response_may_close_the_connection_of_the_next_held_request() -> None:
    it = Requests()
    first, second = it.send(), it.send()
    first.on_done(lambda _: second.cancel())
    await it.change(E.NONE)
    assert (code_of(first), it.decisions) == (E.NONE, 3)


@on_loop
async def test_requests_above_the_limit_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_additions, "HELD_MAX", 1)
    it = Requests()
    assert not it.send().done
    assert code_of(it.send()) is E.CONCURRENT_TRANSACTIONS


async def ended(disk: OnDisk) -> Result[TransactionResponse]:
    """End a transaction, and begin the next one before the markers are written."""
    await disk.init()
    await disk.add()
    await disk.end()
    await settle()
    assert disk.state() == "PrepareCommit"
    identity = Identity("x", 1, 0)
    return disk.transactions.add_partitions(identity, frozenset({A0, A1}), may_wait=True)


@on_loop
async def test_next_transaction_begins_when_the_last_one_is_completed(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        result = await ended(disk)
        assert not result.done and result.executed
        await disk.completed()
        await settle()
        assert code_of(result) is E.NONE
        assert disk.state() == "Ongoing"


@on_loop
async def test_next_transaction_is_refused_when_the_coordinator_has_moved(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        result = await ended(disk)
        disk.leads = False
        disk.transactions.leadership_changed(0)
        await settle()
        assert code_of(result) is E.NOT_COORDINATOR


@on_loop
async def test_next_transaction_is_refused_when_the_broker_stops(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        result = await ended(disk)
        disk.transactions.stop()
        assert code_of(result) is E.COORDINATOR_NOT_AVAILABLE
