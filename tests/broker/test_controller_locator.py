"""The address of the active controller, from its registration in the metadata store."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.controller_locator import ControllerLocator
from odradek.environment.timers import LoopTimers
from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.controller_channel import ControllerNode
from odradek.metadata.image import NO_LEADER, BrokerRegistration, Endpoint
from odradek.metadata.store.memory import MemoryStore
from tests.helpers.virtual_loop import run_virtually

CONTROLLER = BrokerId(3)
PATH = f"{znodes.BROKER_IDS}/{CONTROLLER}"


def registration(port: int, listener: str = "BROKERS") -> bytes:
    clients = Endpoint("CLIENTS", "host", 1)
    found = BrokerRegistration(CONTROLLER, "host", 1, listeners=(clients,))
    others = Endpoint(listener, "host", port)
    return znodes.encode_broker(replace(found, listeners=(clients, others)), 0)


class Located:
    """A locator with its reports."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.reports: list[ControllerNode | None] = []
        self.locator = ControllerLocator(store, "BROKERS", LoopTimers(), self._report)

    def _report(self) -> None:
        self.reports.append(self.locator.node)


def run(test: Callable[[Located], Awaitable[None]]) -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.open()
        await store.create("/brokers")
        await store.create(znodes.BROKER_IDS)
        located = Located(store)
        await test(located)
        located.locator.stop()
        await store.close()

    run_virtually(main())


def test_the_address_is_that_of_the_inter_broker_listener() -> None:
    async def test(located: Located) -> None:
        await located.store.create(PATH, registration(9))
        assert located.locator.node is None
        located.locator.controller_changed(CONTROLLER)
        await asyncio.sleep(1)
        assert located.reports == [ControllerNode(CONTROLLER, "host", 9)]

    run(test)


def test_a_controller_that_registers_later_is_located_then() -> None:
    async def test(located: Located) -> None:
        located.locator.controller_changed(CONTROLLER)
        await asyncio.sleep(10)
        assert not located.reports
        await located.store.create(PATH, registration(9))
        await asyncio.sleep(1)
        assert located.locator.node == ControllerNode(CONTROLLER, "host", 9)

    run(test)


def test_another_process_with_the_id_of_the_controller_is_located() -> None:
    async def test(located: Located) -> None:
        await located.store.create(PATH, registration(9))
        located.locator.controller_changed(CONTROLLER)
        await asyncio.sleep(1)
        await located.store.set(PATH, registration(10))
        located.locator.controller_changed(CONTROLLER)
        await asyncio.sleep(1)
        assert [each.port for each in located.reports if each] == [9, 10]

    run(test)


def test_the_last_controller_stays_known_while_there_is_none() -> None:
    """Without ZooKeeper a broker follows the controller that it knew."""

    async def test(located: Located) -> None:
        await located.store.create(PATH, registration(9))
        located.locator.controller_changed(CONTROLLER)
        await asyncio.sleep(1)
        located.locator.controller_changed(NO_LEADER)
        await located.store.close()
        located.locator.controller_changed(BrokerId(4))
        await asyncio.sleep(10)
        assert located.locator.node == ControllerNode(CONTROLLER, "host", 9)
        assert len(located.reports) == 1

    run(test)


@pytest.mark.parametrize("data", [b"not JSON", registration(9, "OTHER")])
def test_a_registration_without_the_listener_is_logged(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(located: Located) -> None:
        await located.store.create(PATH, data)
        located.locator.controller_changed(CONTROLLER)
        await asyncio.sleep(1)
        assert not located.reports
        assert caplog.records[0].levelno == logging.ERROR
        await located.store.set(PATH, registration(9))
        await asyncio.sleep(1)
        assert located.locator.node == ControllerNode(CONTROLLER, "host", 9)

    run(test)


def test_reads_of_a_registration_that_is_missing_become_rarer() -> None:
    async def test(located: Located) -> None:
        loop = asyncio.get_running_loop()
        read_at: list[float] = []
        get = located.store.get

        async def timed(*arguments: Any) -> Any:
            read_at.append(loop.time())
            return await get(*arguments)

        located.store.get = timed  # type: ignore[method-assign]
        located.locator.controller_changed(CONTROLLER)
        await asyncio.sleep(5)
        delays_ms = [round(1000 * (b - a)) for a, b in itertools.pairwise(read_at)]
        assert delays_ms == [100, 200, 400, 800, 1000, 1000, 1000]

    run(test)


def test_a_former_controller_that_registers_again_does_not_replace_the_present_one() -> None:
    async def test(located: Located) -> None:
        located.locator.controller_changed(CONTROLLER)
        await asyncio.sleep(1)
        await located.store.create(f"{znodes.BROKER_IDS}/4", registration(10))
        located.locator.controller_changed(BrokerId(4))
        await asyncio.sleep(1)
        await located.store.create(PATH, registration(9))
        await asyncio.sleep(5)
        assert located.reports == [ControllerNode(BrokerId(4), "host", 10)]

    run(test)


def test_an_election_that_ends_after_the_stop_begins_no_search() -> None:
    async def test(located: Located) -> None:
        before = asyncio.all_tasks()
        located.locator.stop()
        located.locator.controller_changed(CONTROLLER)
        assert asyncio.all_tasks() == before

    run(test)


def test_nothing_is_read_while_there_is_no_controller() -> None:
    async def test(located: Located) -> None:
        await located.store.create(f"{znodes.BROKER_IDS}/{NO_LEADER}", registration(9))
        located.locator.controller_changed(NO_LEADER)
        await asyncio.sleep(5)
        assert not located.reports

    run(test)
