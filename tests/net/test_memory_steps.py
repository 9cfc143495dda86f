"""Memory of a large frame is charged as its bytes arrive. Holders that stop sending are closed."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.environment.clock import ManualClock
from odradek.net.budget import MemoryBudget
from odradek.net.limits import CLAIM_BYTES, PROGRESS_BYTES_MIN, NetLimits
from tests.helpers.mock_transport import feed, open_connection
from tests.net.support import Peer, frame, iterations, on_both_loops, run, serving, silent, until

LARGE = 3 * CLAIM_BYTES
WAIT_MS = NetLimits().request_bytes_wait_ms


def test_announced_sizes_without_bytes_do_not_delay_other_connections() -> None:
    async def main() -> None:
        budget = MemoryBudget(16 * CLAIM_BYTES)
        claim = (100 * 1_048_576).to_bytes(4, "big") + bytes(10)
        for _ in range(14):
            feed(open_connection(lambda _, view: [], budget=budget)[0], claim)
        executed: list[int] = []
        honest, _ = open_connection(
            lambda _, view: silent(executed.append(len(view))), budget=budget
        )
        feed(honest, frame(bytes(900_000)))
        assert executed == [900_000]
        assert not budget.waiting

    run(main())


def test_a_frame_received_in_part_waits_for_its_next_step_without_reading() -> None:
    async def main() -> None:
        executed: list[int] = []
        budget = MemoryBudget(2 * CLAIM_BYTES)
        large, transport = open_connection(
            lambda _, view: silent(executed.append(len(view))), budget=budget
        )
        other, _ = open_connection(lambda _, view: [], budget=budget)
        feed(other, frame(bytes(900_000))[:100])
        stream = frame(bytes(LARGE))
        taken = feed(large, stream)
        assert CLAIM_BYTES <= taken < LARGE and not transport.reading
        assert budget.waiting
        feed(other, frame(bytes(900_000))[100:])
        await iterations()
        assert transport.reading
        feed(large, stream[taken:])
        assert executed == [LARGE]
        assert not budget.used and not budget.waiting

    run(main())


def test_one_frame_larger_than_the_limit_is_received_alone() -> None:
    async def main() -> None:
        executed: list[int] = []
        budget = MemoryBudget(CLAIM_BYTES // 2)
        large, _ = open_connection(
            lambda _, view: silent(executed.append(len(view))), budget=budget
        )
        stream = frame(bytes(LARGE))
        for at in range(0, len(stream), 100_000):
            feed(large, stream[at : at + 100_000])
        assert executed == [LARGE]
        assert not budget.used

    run(main())


async def holding(server: Any, count: int, sent: int) -> list[Peer]:
    """Return `count` peers that have each sent `sent` bytes of a large frame."""
    peers = [await Peer.connect(server) for _ in range(count)]
    for peer in peers:
        before = server.budget.used
        await peer.send(frame(bytes(LARGE))[:sent])
        await until(lambda before=before: server.budget.used > before)  # type: ignore[misc]
    return peers


@on_both_loops
def test_all_idle_holders_of_memory_are_closed_together(loop: str) -> None:
    async def main() -> None:
        clock = ManualClock()
        limits = NetLimits(request_bytes_queued_max=5 * CLAIM_BYTES)
        async with serving(lambda _, view: [bytes(1)], limits=limits, clock=clock) as server:
            slow = await holding(server, 3, 1000)
            honest = await Peer.connect(server)
            sending = asyncio.ensure_future(honest.send(frame(bytes(LARGE))))
            await until(lambda: server.budget.waiting)
            server.tick()
            clock.advance(WAIT_MS)
            for peer in slow:
                await peer.send(bytes(PROGRESS_BYTES_MIN // 100))
            server.tick()
            assert await honest.read_frame() == bytes(1)
            await sending
            for peer in slow:
                assert await peer.ended()
            for peer in (honest, *slow):
                peer.close()

    run(main(), loop)


@on_both_loops
def test_when_all_holders_wait_for_one_another_one_is_closed(loop: str) -> None:
    async def main() -> None:
        clock = ManualClock()
        limits = NetLimits(request_bytes_queued_max=3 * CLAIM_BYTES)
        async with serving(lambda _, view: [bytes(1)], limits=limits, clock=clock) as server:
            peers = [await Peer.connect(server) for _ in range(2)]
            sending = [asyncio.ensure_future(peer.send(frame(bytes(LARGE)))) for peer in peers]
            await until(lambda: len(server.budget.waiting) == 2)
            server.tick()
            clock.advance(WAIT_MS)
            server.tick()
            await until(lambda: len(server.connections) == 1)
            await until(lambda: not server.budget.used)
            await asyncio.gather(*sending, return_exceptions=True)
            for peer in peers:
                peer.close()

    run(main(), loop)
