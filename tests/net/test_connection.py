"""Connections without sockets: order of execution and of responses, back pressure, closing."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.environment.clock import ManualClock
from odradek.environment.network import plain_address
from odradek.net.budget import MemoryBudget, QueuedResponses, UnsentResponses
from odradek.net.connection import Chunks, CloseConnection, Connection, Reply
from odradek.net.limits import (
    BACKLOG_BYTES,
    IN_FLIGHT_BYTES,
    READ_PIECE_BYTES,
    SLICE_REQUESTS_MAX,
    NetLimits,
)
from odradek.result_tasks import in_task
from odradek.results import Abandoned, PendingResult, Result
from odradek.slicing import SLICE_MS
from tests.helpers.call_count import count_calls
from tests.helpers.fuzzing import rounds
from tests.helpers.mock_transport import MockTransport, feed, open_connection
from tests.net.support import (
    CountedRegion,
    OpenFile,
    body,
    frame,
    frames_in,
    iterations,
    run,
    silent,
)

FUZZ_S = 3.0
KINDS = ["list", "none", "pending", "completed", "executing", "executing pending", "none later"]


class Script:
    """A dispatcher with replies of the requested kinds. The test completes the pending ones."""

    def __init__(self, kinds: list[str]) -> None:
        self.kinds = kinds
        self.executed: list[int] = []
        self.executing = 0
        self.open: list[tuple[PendingResult[Chunks], Chunks]] = []
        self.gates: list[Callable[[], None]] = []

    def dispatch(self, connection: Connection, view: memoryview) -> Reply:
        assert not self.executing, "started while the one before was being executed"
        number = int(bytes(view))
        kind = self.kinds[number]
        response: Chunks = [b"response ", b"%d" % number]
        if kind.startswith("executing"):
            return self.execute(number, response, kind == "executing pending")
        self.executed.append(number)
        if kind == "list":
            return response
        if kind == "none":
            return []
        if kind == "completed":
            return Result(response)
        return self.later([] if kind == "none later" else response)

    def later(self, response: Chunks) -> PendingResult[Chunks]:
        result: PendingResult[Chunks] = PendingResult()
        self.open.append((result, response))
        return result

    def execute(self, number: int, response: Chunks, pending: bool) -> Result[Chunks]:
        self.executing += 1
        result: PendingResult[Chunks] = PendingResult(executed=False)

        def end() -> None:
            self.executing -= 1
            self.executed.append(number)
            if pending:
                result.follow(self.later(response))
            else:
                result.complete(response)

        self.gates.append(end)
        return result

    @property
    def expected(self) -> list[bytes]:
        silent = ("none", "none later")
        return [b"response %d" % n for n, kind in enumerate(self.kinds) if kind not in silent]


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=30),
    seed=st.integers(0, 2**32),
    in_flight=st.integers(1, 8),
)
def test_responses_are_sent_in_the_order_of_the_requests(
    kinds: list[str], seed: int, in_flight: int
) -> None:
    choices = random.Random(seed)
    script = Script(kinds)
    stream = b"".join(frame(b"%d" % number) for number in range(len(kinds)))

    async def main() -> None:
        limits = NetLimits(requests_in_flight_max=in_flight)
        connection, transport = open_connection(script.dispatch, limits=limits, room=0)
        pos = 0
        while len(script.executed) < len(kinds) or script.open or transport.waiting:
            pos += feed(connection, stream[pos : pos + choices.randint(1, 40)])
            if script.gates and choices.random() < 0.7:
                script.gates.pop()()
            if script.open and choices.random() < 0.7:
                result, response = script.open.pop(choices.randrange(len(script.open)))
                result.complete(response)
            transport.take(choices.randint(0, 30))
            await iterations(choices.randint(0, 4))
            assert len(connection._queue) <= in_flight
        await iterations()
        transport.take(10_000)
        await iterations()
        assert frames_in(transport.written) == script.expected

    run(main())
    assert script.executed == list(range(len(kinds)))


def test_responses_that_are_ready_together_are_sent_in_one_write() -> None:
    async def main() -> None:
        connection, transport = open_connection(lambda _, view: [b"x", bytes(view)])
        feed(connection, b"".join(frame(b"%d" % number) for number in range(100)))
        assert transport.writes == 1
        assert len(frames_in(transport.written)) == 100

    run(main())


def test_number_of_calls_between_socket_and_dispatcher_for_a_request() -> None:
    """get_buffer, buffer_updated, dispatch, unpack, sum, pack, join, write.

    A further call needs a reason written here.
    """

    class Sink(MockTransport):
        write = bytearray().extend  # type: ignore[assignment]

    async def main() -> None:
        response = [b"header", b"response"]
        connection, _ = open_connection(lambda _, view: response)
        connection._transport = Sink()
        request = frame(bytes(300))
        many = request * 100
        one_size, many_size = len(request), len(many)

        def one() -> None:
            connection.get_buffer(-1)
            connection.buffer_updated(one_size)

        def hundred() -> None:
            connection.get_buffer(-1)
            connection.buffer_updated(many_size)

        connection.get_buffer(-1)[: len(many)] = many
        single = count_calls(one)
        assert single.total <= 8, str(single)
        batch = count_calls(hundred)
        # One call of each reads the clock, which may end the time slice.
        assert batch.total <= 5 * 100 + 4, str(batch)

    run(main())


def test_a_slow_reader_stops_its_own_requests_and_its_received_bytes_are_bounded() -> None:
    async def main() -> None:
        executed: list[int] = []

        def dispatch(_: Any, view: memoryview) -> Any:
            executed.append(len(view))
            return [bytes(1000)]

        connection, transport = open_connection(dispatch, room=5000)
        stream = frame(bytes(100)) * 100_000
        taken = feed(connection, stream)
        assert taken < 200_000, "read on although no response can be sent"
        assert not transport.reading
        assert len(transport.waiting) <= 70_000
        assert connection._receive.kept <= 140_000
        for _ in range(200_000):
            if taken == len(stream) and len(executed) == 100_000:
                break
            transport.take(1_000_000)
            await iterations(2)
            taken += feed(connection, memoryview(stream)[taken:])
        assert len(executed) == 100_000
        transport.take(10_000_000)
        await iterations()
        assert len(transport.written) == 100_000 * 1004

    run(main())


def test_pipelined_requests_with_pending_responses_are_bounded() -> None:
    async def main() -> None:
        due: list[PendingResult[Chunks]] = []

        def dispatch(_: Any, view: memoryview) -> Any:
            due.append(PendingResult())
            return due[-1]

        connection, transport = open_connection(dispatch)
        stream = frame(b"x") * 100_000
        taken = feed(connection, stream)
        assert len(due) == NetLimits().requests_in_flight_max
        assert not transport.reading
        completed = 0
        while completed < 100_000:
            for result in due[completed:]:
                result.complete([b"y"])
            completed = len(due)
            await iterations(4)
            taken += feed(connection, memoryview(stream)[taken:])
            assert len(connection._queue) <= NetLimits().requests_in_flight_max
        await iterations()
        assert len(frames_in(transport.written)) == 100_000

    run(main())


def test_responses_that_wait_for_an_earlier_one_are_bounded_in_bytes() -> None:
    async def main() -> None:
        first: PendingResult[Chunks] = PendingResult()
        executed: list[int] = []

        def dispatch(_: Any, view: memoryview) -> Any:
            executed.append(1)
            return first if len(executed) == 1 else [bytes(400_000)]

        connection, transport = open_connection(dispatch)
        feed(connection, frame(b"x") * 20)
        assert len(executed) == 1 + 3
        first.complete([b"first"])
        await iterations(20)
        assert len(executed) == 20
        assert [len(response) for response in frames_in(transport.written)] == [5] + 19 * [400_000]

    run(main())


def test_responses_that_wait_are_bounded_in_bytes_over_all_connections() -> None:
    """Lists behind a pending response count, and so do pending responses that complete there."""

    async def main() -> None:
        queued = QueuedResponses(1_000_000)
        firsts: list[PendingResult[Chunks]] = []
        executed: list[int] = []

        def dispatch(_: Any, view: memoryview) -> Reply:
            executed.append(1)
            if view == b"wait":
                firsts.append(PendingResult())
                return firsts[-1]
            if view == b"later":
                later: PendingResult[Chunks] = PendingResult()
                asyncio.get_running_loop().call_soon(later.complete, [bytes(100_000)])
                return later
            return [bytes(100_000)]

        opened = [open_connection(dispatch, queued=queued) for _ in range(50)]
        for number, (connection, _) in enumerate(opened):
            kind = b"later" if number % 2 else b"now"
            feed(connection, frame(b"wait") + frame(kind) * 5)
            await iterations()
        assert queued.used <= 1_000_000 + 5 * 100_000
        assert len(executed) <= 20 + len(opened)
        # A connection without responses in its queue is served.
        idle, transport = open_connection(dispatch, queued=queued)
        feed(idle, frame(b"now"))
        assert len(transport.written) == 100_004
        opened[-1][1].abort()
        for _ in range(10):
            for first in firsts:
                if not first.done:
                    first.complete([b"first"])
            await iterations(20)
        assert queued.used == 0
        for _, transport in opened[:-1]:
            assert [len(each) for each in frames_in(transport.written)] == [5] + 5 * [100_000]

    run(main())


def test_requests_in_flight_are_bounded_over_all_connections() -> None:
    async def main() -> None:
        queued = QueuedResponses(100 * IN_FLIGHT_BYTES)
        due: list[PendingResult[Chunks]] = []

        def dispatch(_: Any, view: memoryview) -> Reply:
            due.append(PendingResult())
            return due[-1]

        opened = [open_connection(dispatch, queued=queued) for _ in range(50)]
        for connection, _ in opened:
            feed(connection, frame(b"x") * 20)
            await iterations()
        assert 100 <= len(due) <= 100 + len(opened), "each may have one"
        assert all(connection._queue for connection, _ in opened)
        completed = 0
        while completed < len(due):
            for result in due[completed:]:
                result.complete([b"y"])
                completed += 1
            await iterations()
        assert len(due) == 50 * 20
        assert queued.used == 0
        assert all(len(frames_in(transport.written)) == 20 for _, transport in opened)

    run(main())


def test_a_large_request_in_flight_counts_more_than_a_small_one() -> None:
    async def main() -> None:
        queued = QueuedResponses(1_000_000)
        connection, transport = open_connection(lambda *_: PendingResult(), queued=queued)
        feed(connection, frame(b"x"))
        small = queued.used
        feed(connection, frame(bytes(30_000)))
        assert queued.used - small == small - 1 + 30_000
        feed(connection, frame(bytes(3_000_000)))
        assert queued.used < 200_000
        transport.abort()
        await iterations()
        assert queued.used == 0

    run(main())


def test_regions_that_wait_use_no_memory(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "log"
        path.write_bytes(bytes(1_000_000))
        queued = QueuedResponses(10_000)
        first: PendingResult[Chunks] = PendingResult()
        regions = [0]

        def dispatch(_: Any, view: memoryview) -> Reply:
            if view == b"wait":
                return first
            return [b"header", CountedRegion(regions, OpenFile(path), 0, 1_000_000)]

        connection, transport = open_connection(dispatch, queued=queued)
        feed(connection, frame(b"wait"))
        request = queued.used
        feed(connection, frame(b"fetch") * 20)
        assert (queued.used - request, regions) == (20 * 6, [20])
        transport.abort()
        await iterations()
        assert (queued.used, regions) == (0, [0])

    run(main())


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_an_invalid_frame_size_closes_after_the_earlier_responses(size: int, caplog: Any) -> None:
    async def main() -> None:
        connection, transport = open_connection(lambda _, view: [bytes(view)])
        feed(connection, frame(b"good") + size.to_bytes(4, "big", signed=True) + b"garbage")
        await iterations()
        assert frames_in(transport.written) == [b"good"]
        assert connection.closed

    run(main())
    assert f"invalid frame size {size}" in caplog.text
    assert "127.0.0.1:50000 (PLAINTEXT)" in caplog.text


def test_a_refused_request_closes_after_the_earlier_responses(caplog: Any) -> None:
    async def main() -> None:
        due: PendingResult[Chunks] = PendingResult()

        def dispatch(_: Any, view: memoryview) -> Any:
            if view == b"bad":
                raise CloseConnection("it is bad")
            return due

        connection, transport = open_connection(dispatch)
        feed(connection, frame(b"good") + frame(b"bad") + frame(b"never"))
        await iterations()
        assert not connection.closed
        assert not transport.reading
        due.complete([b"response"])
        await iterations()
        assert connection.closed
        assert frames_in(transport.written) == [b"response"]

    run(main())
    assert "it is bad" in caplog.text


@pytest.mark.parametrize("how", ["raises", "pending", "executing", "abandoned", "nonsense"])
def test_a_request_that_fails_closes_its_connection_and_is_logged(how: str, caplog: Any) -> None:
    async def main() -> None:
        result: PendingResult[Chunks] = PendingResult(executed=how != "executing")

        def dispatch(_: Any, view: memoryview) -> Any:
            if view == b"first":
                return [b"ok"]
            if how == "raises":
                raise ValueError("broken")
            if how == "nonsense":
                return ["broken"]
            return result

        connection, transport = open_connection(dispatch)
        feed(connection, frame(b"first"))
        feed(connection, frame(b"second") + frame(b"never"))
        if how in ("pending", "executing"):
            result.fail(ValueError("broken"))
        elif how == "abandoned":
            result.fail(Abandoned())
        await iterations(8)
        assert connection.closed
        assert frames_in(transport.written)[:1] == [b"ok"]

    run(main())
    said = {"abandoned": "the broker is stopping", "nonsense": "a response cannot be sent"}
    assert said.get(how, "ValueError: broken") in caplog.text


def test_a_lost_connection_calls_back_and_drops_its_responses() -> None:
    async def main() -> None:
        due: PendingResult[Chunks] = PendingResult()
        closed: list[str] = []
        connection, transport = open_connection(lambda _, view: due)
        connection.on_close.append(lambda: closed.append("first"))
        connection.on_close.append(lambda: 1 // 0)
        connection.on_close.append(lambda: closed.append("last"))
        feed(connection, frame(b"x"))
        transport.abort()
        await iterations()
        assert connection.closed
        assert closed == ["first", "last"]
        due.complete([b"too late"])
        await iterations()
        assert not transport.written
        assert connection not in connection._shared.connections

    run(main())


def test_requests_received_before_the_end_of_the_stream_are_executed() -> None:
    executed: list[bytes] = []

    async def main() -> None:
        gate = asyncio.Event()

        @in_task
        async def execute(view: memoryview) -> Result[Chunks]:
            await gate.wait()
            executed.append(bytes(view))
            return Result([])

        connection, _ = open_connection(lambda _, view: execute(view))
        feed(connection, frame(b"one") + frame(b"two") + frame(b"three"))
        assert connection.eof_received()
        gate.set()
        await iterations(20)
        assert connection.closed

    run(main())
    assert executed == [b"one", b"two", b"three"]


def test_the_end_of_the_stream_closes_when_no_request_is_pending() -> None:
    async def main() -> None:
        due: PendingResult[Chunks] = PendingResult()
        connection, _ = open_connection(lambda _, view: due)
        feed(connection, frame(b"x") + b"\0\0")
        assert not connection.eof_received()

    run(main())


def test_stop_executes_received_requests_and_stops_reading() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        @in_task
        async def execute(view: memoryview) -> Result[Chunks]:
            data = bytes(view)
            await gate.wait()
            return Result([data])

        connection, transport = open_connection(lambda _, view: execute(view))
        feed(connection, frame(b"one") + frame(b"two") + b"\0\0\0")
        connection.stop()
        assert not transport.reading
        gate.set()
        await iterations(20)
        assert frames_in(transport.written) == [b"one", b"two"]
        assert connection.closed

    run(main())


def test_stop_closes_an_idle_connection_immediately() -> None:
    async def main() -> None:
        connection, _ = open_connection(lambda _, view: [])
        connection.stop()
        await iterations()
        assert connection.closed

    run(main())


def test_frames_wait_for_memory_in_fifo_order_and_small_requests_do_not_wait() -> None:
    async def main() -> None:
        executed: list[int] = []
        budget = MemoryBudget(1_000_000)

        def dispatch(_: Any, view: memoryview) -> Reply:
            return silent(executed.append(len(view)))

        first, _ = open_connection(dispatch, budget=budget)
        second, second_transport = open_connection(dispatch, budget=budget)
        third, _ = open_connection(dispatch, budget=budget)
        fourth, _ = open_connection(dispatch, budget=budget)
        stream = frame(bytes(900_000))
        feed(first, stream[:500_000])
        taken = feed(second, stream)
        assert taken <= BACKLOG_BYTES + 131_072
        assert not second_transport.reading
        feed(third, frame(bytes(200_000))[:100])
        feed(fourth, frame(bytes(100)))
        assert executed == [100]
        assert list(budget.waiting) == [second, third]
        feed(first, stream[500_000:])
        await iterations()
        assert executed == [100, 900_000]
        assert second_transport.reading
        feed(second, stream[taken:])
        await iterations()
        feed(third, frame(bytes(200_000))[100:])
        assert executed == [100, 900_000, 900_000, 200_000]
        assert not budget.used

    run(main())


def test_a_connection_lost_while_waiting_for_memory_is_forgotten() -> None:
    async def main() -> None:
        budget = MemoryBudget(1_000_000)
        first, first_transport = open_connection(lambda _, view: [], budget=budget)
        second, second_transport = open_connection(lambda _, view: [], budget=budget)
        feed(first, frame(bytes(900_000))[:500_000])
        feed(second, frame(bytes(900_000))[:500_000])
        second_transport.abort()
        await iterations()
        assert not budget.waiting
        first_transport.abort()
        await iterations()
        assert not budget.used

    run(main())


def test_when_unsent_responses_exceed_their_limit_the_slowest_reader_is_closed(
    caplog: Any,
) -> None:
    async def main() -> None:
        unsent = UnsentResponses(1_000_000)
        opened = [
            open_connection(lambda _, view: [bytes(400_000)], unsent=unsent, room=0)
            for _ in range(3)
        ]
        (first, taking), (second, _), (third, _) = opened
        feed(first, frame(b"x"))
        feed(second, frame(b"x"))
        taking.take(400_004)
        feed(first, frame(b"x"))
        feed(third, frame(b"x"))
        await iterations()
        assert [first.closed, second.closed, third.closed] == [False, True, False]
        assert unsent.used == 800_008
        taking.abort()
        await iterations()
        assert unsent.used == 400_004

    run(main())
    assert "does not receive the responses" in caplog.text


def test_bytes_between_regions_count_while_the_peer_reads_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "log"
        path.write_bytes(bytes(1_000_000))
        unsent = UnsentResponses(1_000_000)
        regions = [0]

        def dispatch(_: Any, view: memoryview) -> Reply:
            file = OpenFile(path)
            first = CountedRegion(regions, file, 0, 1_000_000)
            return [b"first", first, bytes(50_000), CountedRegion(regions, file, 0, 1_000_000)]

        connection, transport = open_connection(dispatch, unsent=unsent, room=0)
        feed(connection, frame(b"x"))
        assert unsent.used == 4 + 5 + 50_000
        while regions != [0]:
            transport.take(100_000)
            assert unsent.used <= READ_PIECE_BYTES + 50_000
            await iterations()
        transport.take(10_000_000)
        await iterations()
        assert unsent.used == connection._sender.unsent_bytes == 0
        assert len(transport.written) == 4 + 5 + 50_000 + 2_000_000
        feed(connection, frame(b"x"))
        connection._transport.abort()
        await iterations()
        assert (unsent.used, regions) == (0, [0])

    run(main())


def test_a_large_frame_that_completes_while_requests_wait_is_not_copied() -> None:
    async def main() -> None:
        due: PendingResult[Chunks] = PendingResult()
        executed: list[int] = []

        def dispatch(_: Any, view: memoryview) -> Any:
            executed.append(len(view))
            return due if len(executed) == 1 else []

        connection, transport = open_connection(dispatch, room=0)
        large = frame(bytes(2_000_000))
        feed(connection, frame(b"x") + large[:500_000])
        buffer = connection._receive.view
        due.complete([b"response"])
        await iterations()
        taken = 500_000 + feed(connection, large[500_000:])
        assert connection._receive.view is buffer
        assert not transport.reading
        assert executed == [1]
        transport.take(100)
        await iterations()
        assert transport.reading
        feed(connection, large[taken:])
        await iterations()
        assert executed == [1, 2_000_000]
        assert transport.reading
        assert not connection._shared.budget.used

    run(main())


def test_a_flood_of_small_requests_lets_other_connections_continue() -> None:
    async def main() -> None:
        order: list[str] = []
        first, first_transport = open_connection(lambda _, view: silent(order.append("flood")))
        second, _ = open_connection(lambda _, view: silent(order.append("other")))
        stream = frame(b"x") * 40_000
        taken = feed(first, stream)
        feed(second, frame(b"x"))
        assert order.index("other") == SLICE_REQUESTS_MAX
        while taken < len(stream):
            await iterations()
            taken += feed(first, stream[taken:])
        await iterations(200)
        assert len(order) == 40_001
        assert first_transport.reading

    run(main())


@pytest.mark.parametrize(("packed", "requests_max"), [(False, SLICE_MS + 1), (True, 2)])
def test_slow_requests_end_the_time_slice_before_the_limit_of_requests(
    packed: bool, requests_max: float
) -> None:
    clock = ManualClock()
    slice_sizes: list[int] = [0]

    def dispatch(_: object, view: memoryview) -> Reply:
        clock.advance(1)
        slice_sizes[-1] += 1
        return frame(bytes(view)) if packed else [bytes(view)]

    async def main() -> None:
        connection, transport = open_connection(dispatch, clock=clock)
        feed(connection, b"".join(frame(b"%d" % number) for number in range(10)))
        while sum(slice_sizes) < 10:
            slice_sizes.append(0)
            await iterations(1)
        await iterations()
        assert max(slice_sizes) == requests_max
        assert frames_in(transport.written) == [b"%d" % number for number in range(10)]

    run(main())


def test_a_lone_request_does_not_read_the_clock() -> None:
    class NoClock(ManualClock):
        def monotonic_ms(self) -> float:
            raise AssertionError("the clock was read")

    async def main() -> None:
        connection, transport = open_connection(lambda _, view: [bytes(view)], clock=NoClock())
        for _ in range(3):
            feed(connection, frame(b"x"))
        assert frames_in(transport.written) == [b"x"] * 3

    run(main())


def test_mapped_ipv4_addresses_become_ipv4() -> None:
    assert plain_address(("::ffff:10.1.2.3", 9092, 0, 0)) == ("10.1.2.3", 9092)
    assert plain_address(("::1", 9092, 0, 0)) == ("::1", 9092)
    assert plain_address(("127.0.0.1", 9092)) == ("127.0.0.1", 9092)


def test_fuzzed_streams_never_raise_and_never_hold_more_than_was_sent(
    caplog: Any, seed: int
) -> None:
    caplog.set_level(logging.CRITICAL)
    random_source = random.Random(seed)

    async def main() -> None:
        def dispatch(_: Any, view: memoryview) -> Any:
            if len(view) < 8:
                raise CloseConnection("short")
            return [bytes(view[:8])]

        for _ in rounds(FUZZ_S):
            connection, transport = open_connection(dispatch)
            stream = bytearray(b"".join(frame(body(n, n * 7)) for n in range(20)))
            for _ in range(random_source.randint(0, 6)):
                stream[random_source.randrange(len(stream))] = random_source.randrange(256)
            pos = 0
            while pos < len(stream) and transport.reading:
                count = random_source.randint(1, 500)
                pos += feed(connection, memoryview(stream)[pos : pos + count])
                assert connection._receive.kept <= pos
            transport.abort()
            await iterations(2)
            assert not connection._shared.budget.used

    run(main())


def test_failed_result_closes_a_connection_that_is_at_its_limit_of_requests() -> None:
    async def main() -> None:
        results: list[PendingResult[Chunks]] = [PendingResult() for _ in range(2)]
        due = iter(results)
        limits = NetLimits(requests_in_flight_max=2)
        connection, transport = open_connection(lambda _, view: next(due), limits=limits)
        feed(connection, frame(b"0") + frame(b"1") + frame(b"2"))
        results[0].fail(CloseConnection("a test"))
        await iterations()
        assert transport.closing
        assert connection.closed

    run(main())


def test_request_refused_while_requests_are_about_to_continue_closes_the_connection() -> None:
    async def main() -> None:
        first: PendingResult[Chunks] = PendingResult(executed=False)

        def dispatch(_: Connection, view: memoryview) -> Reply:
            if bytes(view) == b"0":
                return first
            raise CloseConnection("a test")

        connection, transport = open_connection(dispatch)
        later = frame(b"1")
        feed(connection, frame(b"0") + later[:3])
        first.complete([b"response"])
        await iterations(1)  # the kept requests continue in the next iteration
        feed(connection, later[3:])
        await iterations()
        assert frames_in(transport.written) == [b"response"]
        assert transport.closing
        assert connection.closed

    run(main())
