"""Responses of megabytes: written in pieces, in order, and without a further copy in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.net.budget import UnsentResponses
from odradek.net.connection import Reply
from odradek.net.limits import FLUSH_BYTES, PUMP_BYTES_MAX, WRITE_PIECE_BYTES
from tests.helpers.mock_transport import MockTransport, feed, open_connection
from tests.net.support import (
    CountedRegion,
    OpenFile,
    Peer,
    body,
    frame,
    iterations,
    on_both_loops,
    run,
    serving,
    until,
)

SIZE = 9_000_000
CONTENT = body(5, SIZE)
SPLITS = {
    "one chunk": [CONTENT],
    "one chunk of each kind": [
        CONTENT[:10],
        bytearray(CONTENT[10:3_000_000]),
        memoryview(CONTENT)[3_000_000:8_999_999],
        b"",
        CONTENT[8_999_999:],
    ],
    "small chunks": [CONTENT[at : at + 1_000] for at in range(0, SIZE, 1_000)],
    "exact pieces": [
        CONTENT[at : at + WRITE_PIECE_BYTES] for at in range(0, SIZE, WRITE_PIECE_BYTES)
    ],
}


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all writes to a `MockTransport`."""
    sizes: list[int] = []
    write = MockTransport.write

    def counted(self: MockTransport, data: Any) -> None:
        sizes.append(len(data))
        write(self, data)

    monkeypatch.setattr(MockTransport, "write", counted)
    return sizes


@pytest.mark.parametrize("chunks", SPLITS.values(), ids=SPLITS)
def test_a_large_response_is_written_in_pieces_that_let_other_work_continue(
    chunks: Any, writes: list[int]
) -> None:
    async def main() -> None:
        connection, transport = open_connection(lambda _, view: list(chunks))
        feed(connection, frame(b"x"))
        slices = 1
        while len(transport.written) < SIZE + 4:
            assert len(transport.written) <= slices * (PUMP_BYTES_MAX + WRITE_PIECE_BYTES)
            slices += 1
            await iterations(1)
        assert slices > SIZE // (PUMP_BYTES_MAX + WRITE_PIECE_BYTES)
        assert transport.written == frame(CONTENT)

    run(main())
    assert max(writes) <= WRITE_PIECE_BYTES
    assert len(writes) <= SIZE / FLUSH_BYTES + 1


def test_a_response_of_one_write_is_written_at_once(writes: list[int]) -> None:
    async def main() -> None:
        connection, _ = open_connection(
            lambda _, view: [bytes(100), bytes(WRITE_PIECE_BYTES - 100)]
        )
        feed(connection, frame(b"x"))

    run(main())
    assert writes == [WRITE_PIECE_BYTES + 4]


def test_bytes_around_a_region_are_written_in_pieces(tmp_path: Path, writes: list[int]) -> None:
    (tmp_path / "log").write_bytes(CONTENT[2_000_000:3_000_000])
    regions = [0]

    def dispatch(_: Any, view: memoryview) -> Reply:
        region = CountedRegion(regions, OpenFile(tmp_path / "log"), 0, 1_000_000)
        return [CONTENT[:2_000_000], region, CONTENT[3_000_000:]]

    async def main() -> None:
        connection, transport = open_connection(dispatch)
        feed(connection, frame(b"x"))
        await until(lambda: len(transport.written) == SIZE + 4)
        assert transport.written == frame(CONTENT)
        assert not connection._sender.busy

    run(main())
    assert max(writes) <= WRITE_PIECE_BYTES
    assert regions == [0]


def test_the_transport_holds_one_piece_while_the_peer_reads_nothing() -> None:
    async def main() -> None:
        unsent = UnsentResponses(2 * SIZE)
        connection, transport = open_connection(lambda _, view: [CONTENT], unsent=unsent, room=0)
        feed(connection, frame(b"x"))
        assert unsent.used == SIZE + 4
        feed(connection, frame(b"x"))  # not executed before the first response was sent
        while len(transport.written) < SIZE + 4:
            assert len(transport.waiting) <= WRITE_PIECE_BYTES
            assert unsent.used == SIZE + 4 - len(transport.written)
            transport.take(WRITE_PIECE_BYTES)
            await iterations(2)
        await until(lambda: transport.waiting)
        transport.take(float("inf"))
        await until(lambda: not connection._sender.busy)
        assert transport.written == frame(CONTENT) * 2
        assert unsent.used == 0

    run(main())


def test_a_connection_that_is_lost_during_a_large_response_counts_no_bytes() -> None:
    async def main() -> None:
        unsent = UnsentResponses(SIZE + 4)
        connection, transport = open_connection(lambda _, view: [CONTENT], unsent=unsent, room=0)
        feed(connection, frame(b"x"))
        transport.abort()
        await iterations()
        assert (unsent.used, connection._sender.unsent_bytes) == (0, 0)

    run(main())


@on_both_loops
@pytest.mark.parametrize("use_sendfile", [True, False], ids=["sendfile", "reads"])
def test_large_responses_arrive_in_the_order_of_the_requests(loop: str, use_sendfile: bool) -> None:
    sizes = [1, WRITE_PIECE_BYTES + 1, 5, SIZE, 70_000, PUMP_BYTES_MAX, 2]

    def dispatch(_: Any, view: memoryview) -> Reply:
        return [CONTENT[: int(bytes(view))]]

    async def main() -> None:
        async with serving(dispatch, use_sendfile=use_sendfile) as server:
            slow = await Peer.connect(server, receive_buffer=8_192)
            peer = await Peer.connect(server)
            await slow.send(b"".join(frame(b"%d" % size) for size in sizes))
            await peer.send(b"".join(frame(b"%d" % size) for size in sizes))
            for each in (peer, slow):
                for size in sizes:
                    assert await each.read_frame() == CONTENT[:size]
                each.close()

    run(main(), loop)


@on_both_loops
def test_a_large_response_arrives_whole_after_the_peer_has_ended_its_stream(loop: str) -> None:
    async def main() -> None:
        async with serving(lambda _, view: [CONTENT]) as server:
            peer = await Peer.connect(server, receive_buffer=8_192)
            await peer.send(frame(b"x"))
            peer.sock.shutdown(1)
            assert await peer.read_frame() == CONTENT
            assert await peer.ended()
            peer.close()

    run(main(), loop)
