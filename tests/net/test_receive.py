"""The receive buffer: any split of the stream gives the same frames, and views stay intact."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import struct
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.net.connection import Chunks, Reply
from odradek.net.limits import (
    CLAIM_BYTES,
    SCRATCH_BYTES,
    SCRATCH_BYTES_MIN,
    TAIL_BYTES,
    NetLimits,
)
from odradek.net.receive import ReceiveBuffer, Scratch, allocate
from odradek.result_tasks import in_task
from odradek.results import PendingResult, Result
from tests.helpers.mock_transport import feed, open_connection
from tests.net.support import body, frame, iterations, run, silent

SIZES = st.one_of(
    st.integers(0, 40),
    st.integers(TAIL_BYTES - 8, TAIL_BYTES + 8),
    st.integers(SCRATCH_BYTES - 8, SCRATCH_BYTES + 8),
    st.integers(0, 3 * SCRATCH_BYTES),
)
SPLITS = st.lists(st.one_of(st.integers(1, 9), st.integers(1, 2 * SCRATCH_BYTES)), min_size=1)


def _feed_split(connection: Any, stream: bytes, splits: list[int]) -> None:
    pos = step = 0
    while pos < len(stream):
        count = splits[step % len(splits)]
        if len(stream) > 100_000:
            count = max(count, 1_000)
        taken = feed(connection, memoryview(stream)[pos : pos + count])
        assert taken, "reading stopped although nothing waits"
        pos += taken
        step += 1


@settings(max_examples=100)
@given(sizes=st.lists(SIZES, max_size=12), splits=SPLITS)
def test_any_split_of_the_stream_gives_the_same_frames(sizes: list[int], splits: list[int]) -> None:
    bodies = [body(number, size) for number, size in enumerate(sizes)]
    stream = b"".join(map(frame, bodies))
    seen: list[bytes] = []

    async def main() -> None:
        def dispatch(_: Any, view: memoryview) -> Reply:
            seen.append(bytes(view))
            view[:] = bytes(len(view))  # a handler writes into its frame, never beside it
            return []

        connection, transport = open_connection(dispatch)
        _feed_split(connection, stream, splits)
        assert not connection._shared.budget.used
        assert not connection._receive.kept
        assert not transport.closing

    run(main())
    assert seen == bodies


@settings(max_examples=60)
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=8),
    splits=SPLITS,
    slow=st.lists(st.booleans(), min_size=8, max_size=8),
    lent_bytes_max=st.sampled_from([0, NetLimits().lent_bytes_max]),
)
def test_the_bytes_of_a_request_in_execution_are_kept_while_more_arrive(
    sizes: list[int], splits: list[int], slow: list[bool], lent_bytes_max: int
) -> None:
    bodies = [body(number, size) for number, size in enumerate(sizes)]
    stream = b"".join(map(frame, bodies))
    seen: list[bytes] = []

    async def main() -> None:
        gates: list[asyncio.Event] = []

        @in_task
        async def execute(view: memoryview, gate: asyncio.Event) -> Result[Chunks]:
            await gate.wait()
            return Result(silent(seen.append(bytes(view))))

        def dispatch(_: Any, view: memoryview) -> Any:
            if slow[len(seen) % len(slow)]:
                gates.append(asyncio.Event())
                return execute(view, gates[-1])
            return silent(seen.append(bytes(view)))

        scratch = Scratch(lent_bytes_max)
        connection, _ = open_connection(dispatch, scratch=scratch)
        pos = step = 0
        while pos < len(stream) or gates:
            count = max(splits[step % len(splits)], 1_000)
            pos += feed(connection, memoryview(stream)[pos : pos + count])
            step += 1
            assert len(gates) <= 1, "a request started while another was being executed"
            if gates and (step % 3 == 0 or pos == len(stream) or not connection._reading):
                gates.pop().set()
                await iterations()
        assert not connection._shared.budget.used
        assert not connection._shared.ahead.used
        assert scratch.lent == 0
        assert len(scratch.view) == SCRATCH_BYTES

    run(main())
    assert seen == bodies


def test_buffers_of_requests_in_execution_are_small_while_they_are_many() -> None:
    async def main() -> None:
        scratch = Scratch(lent_bytes_max=10 * SCRATCH_BYTES)
        executing: dict[int, tuple[PendingResult[Chunks], memoryview]] = {}

        def dispatch(_: Any, view: memoryview) -> Reply:
            result: PendingResult[Chunks] = PendingResult(executed=False)
            executing[len(executing)] = result, view
            return result

        opened = [open_connection(dispatch, scratch=scratch)[0] for _ in range(100)]
        for number, connection in enumerate(opened):
            feed(connection, frame(b"%3d" % number))
        assert scratch.lent <= 11 * SCRATCH_BYTES + 100 * SCRATCH_BYTES_MIN
        for number, (_, view) in executing.items():
            assert view == b"%3d" % number
        for result, _ in executing.values():
            result.complete([b"response"])
        await iterations()
        assert scratch.lent == 0
        assert len(scratch.view) == SCRATCH_BYTES

    run(main())


def test_idle_connections_hold_no_buffer_of_their_own() -> None:
    scratch = Scratch(NetLimits().lent_bytes_max)
    receive = ReceiveBuffer(scratch)
    receive.get_buffer()[:4] = bytes(4)
    receive.clear()
    assert receive.view is scratch.view
    assert not receive.own
    assert not receive.apart


def test_a_torn_small_frame_is_copied_from_the_shared_buffer() -> None:
    scratch = Scratch(NetLimits().lent_bytes_max)
    one, other = ReceiveBuffer(scratch), ReceiveBuffer(scratch)
    one.get_buffer()[:6] = frame(b"abc")[:6]
    one.keep_torn(0, 6, one.needed(0, 6))
    other.get_buffer()[:6] = b"\xff" * 6
    assert one.kept == 6
    assert len(one.get_buffer()) == SCRATCH_BYTES - 6
    assert bytes(one.view[: one.end]) == frame(b"abc")[:6]


def test_a_large_frame_is_received_into_a_buffer_of_its_size() -> None:
    received: list[memoryview] = []

    async def main() -> None:
        connection, _ = open_connection(lambda _, view: silent(received.append(bytes(view))))
        stream = frame(body(1, 3_000_000))
        feed(connection, memoryview(stream)[:1000])
        buffer = connection.get_buffer(-1)
        assert len(buffer) == CLAIM_BYTES
        assert connection._charged == 1000 + CLAIM_BYTES
        assert connection.receiving is not None and connection.receiving[1] == 1000
        feed(connection, memoryview(stream)[1000:])
        assert connection._charged == 0

    run(main())
    assert received == [body(1, 3_000_000)]


def test_large_buffers_use_memory_only_as_bytes_arrive() -> None:
    size = 100 * 1_048_576
    view = allocate(size)
    assert len(view) == size
    assert _present(view) < 20 * 1_048_576


def _present(view: memoryview) -> int:
    """Return how many of the bytes have physical memory, from the page map of the process."""
    first = ctypes.addressof(ctypes.c_char.from_buffer(view)) // mmap.PAGESIZE
    pages = len(view) // mmap.PAGESIZE
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        pagemap.seek(first * 8)
        entries = struct.unpack(f"={pages}Q", pagemap.read(pages * 8))
    return sum(entry >> 63 for entry in entries) * mmap.PAGESIZE


def test_a_frame_of_the_largest_size_passes_and_a_larger_one_does_not(caplog: Any) -> None:
    async def main() -> None:
        limits = NetLimits(request_bytes_max=1000)
        seen: list[int] = []
        connection, transport = open_connection(
            lambda _, view: silent(seen.append(len(view))), limits=limits
        )
        feed(connection, frame(bytes(1000)))
        assert not transport.closing
        feed(connection, frame(bytes(1001)))
        await iterations()
        assert transport.closing
        assert seen == [1000]

    run(main())
    assert "invalid frame size 1001, the limit is 1000" in caplog.text
