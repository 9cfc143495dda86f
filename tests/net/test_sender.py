"""Regions on real sockets: the right bytes in the right order, or the end of the connection."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from odradek.environment.files import Files, RealFiles
from odradek.net.limits import (
    PLUG_BYTES,
    PUMP_BYTES_MAX,
    SMALL_REGION_BYTES,
    SMALL_REGION_COST_BYTES,
)
from odradek.net.sender import Sender
from odradek.results import PendingResult
from tests.helpers.mock_transport import MockTransport
from tests.net.support import (
    DEADLINE_S,
    CountedRegion,
    OpenFile,
    Peer,
    body,
    frame,
    iterations,
    on_both_loops,
    open_descriptors,
    run,
    serving,
    until,
    until_descriptors_at_most,
)

transfers = pytest.mark.parametrize("use_sendfile", [True, False], ids=["sendfile", "reads"])
SIZE = 12_000_000


class FileServer:
    """Responds to (position, length) pairs with a header and a region for each pair."""

    def __init__(self, path: Path, size: int = SIZE, files: Files | None = None) -> None:
        self.path = path / "log"
        self.content = body(7, size)
        self.path.write_bytes(self.content)
        self.file = OpenFile(self.path, files)
        self.open_regions = [0]
        self.cold = False

    def dispatch(self, _: Any, view: memoryview) -> list[Any]:
        chunks: list[Any] = []
        for position, length in struct.iter_unpack(">qi", view):
            region = CountedRegion(self.open_regions, self.file, position, length)
            region.cold = self.cold
            chunks += [b"header", region]
        return [*chunks, b"end"]

    def expected(self, *pairs: tuple[int, int]) -> bytes:
        parts = [b"header" + self.content[p : p + length] for p, length in pairs]
        return b"".join(parts) + b"end"


def ask(*pairs: tuple[int, int]) -> bytes:
    return frame(b"".join(struct.pack(">qi", *pair) for pair in pairs))


@on_both_loops
@transfers
def test_regions_and_bytes_arrive_in_order(tmp_path: Path, loop: str, use_sendfile: bool) -> None:
    files = FileServer(tmp_path)
    questions = [
        [(0, 1)],
        [(5, SMALL_REGION_BYTES), (9, SMALL_REGION_BYTES + 1)],
        [],
        [(0, SIZE)],
        [(number * 1000, 1000 + number) for number in range(40)],
        [(1_000_000, 3_000_000), (10, 0), (2_000_000, 5_000_000), (1, 10)],
        [(SIZE - 1, 1)],
    ]

    async def main() -> None:
        async with serving(files.dispatch, use_sendfile=use_sendfile) as server:
            peer = await Peer.connect(server)
            await peer.send(b"".join(ask(*pairs) for pairs in questions))
            for pairs in questions:
                assert await peer.read_frame() == files.expected(*pairs)
            peer.close()

    run(main(), loop)
    assert files.open_regions == [0]


@on_both_loops
@transfers
def test_a_peer_that_does_not_read_blocks_only_itself(
    tmp_path: Path, loop: str, use_sendfile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileServer(tmp_path)
    pumps = _count_pumps(monkeypatch)

    async def main() -> None:
        async with serving(files.dispatch, use_sendfile=use_sendfile) as server:
            blocked = await Peer.connect(server, receive_buffer=8192)
            await blocked.send(ask((0, SIZE)) + ask((3, 5)) + ask((1, SIZE - 1)))
            await until(lambda: files.open_regions[0])
            other = await Peer.connect(server)
            await _until_quiet(other, files, pumps)
            assert await blocked.read_frame() == files.expected((0, SIZE))
            assert await blocked.read_frame() == files.expected((3, 5))
            assert await blocked.read_frame() == files.expected((1, SIZE - 1))
            blocked.close()
            other.close()

    run(main(), loop)
    assert files.open_regions == [0]


@on_both_loops
@transfers
@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_peer_that_disconnects_during_a_response_leaks_nothing(
    tmp_path: Path, loop: str, use_sendfile: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileServer(tmp_path)
    pumps = _count_pumps(monkeypatch)

    async def main() -> None:
        async with serving(files.dispatch, use_sendfile=use_sendfile) as server:
            other = await Peer.connect(server)
            await other.send(ask((0, 1)))
            await other.read_frame()
            base = open_descriptors()
            for _ in range(3):
                peer = await Peer.connect(server, receive_buffer=8192)
                await peer.send(ask((0, SIZE)) + ask((0, SIZE)))
                assert await peer.read(100)
                getattr(peer, how)()
                await until(lambda: len(server.connections) == 1)
            assert files.open_regions == [0]
            await until_descriptors_at_most(base)
            await _until_quiet(other, files, pumps)
            other.close()

    run(main(), loop)


@on_both_loops
@transfers
def test_a_file_truncated_during_a_blocked_response_ends_the_connection(
    tmp_path: Path, loop: str, use_sendfile: bool, caplog: Any
) -> None:
    files = FileServer(tmp_path)

    async def main() -> None:
        async with serving(files.dispatch, use_sendfile=use_sendfile) as server:
            peer = await Peer.connect(server, receive_buffer=8192)
            await peer.send(ask((0, SIZE)) + ask((0, 10)))
            start = await peer.read(100)
            cut_at = 9_000_001  # well past what the sockets hold
            os.truncate(files.path, cut_at)
            received = start + await peer.read(SIZE)
            expected = struct.pack(">i", SIZE + 9) + files.expected((0, SIZE))
            assert len(received) <= 10 + cut_at
            assert received == expected[: len(received)], "another byte was sent"
            other = await Peer.connect(server)
            await other.send(ask((0, 50)))
            assert await other.read_frame() == files.expected((0, 50))
            peer.close()
            other.close()

    run(main(), loop)
    assert files.open_regions == [0]
    assert "truncated" in caplog.text


@transfers
def test_a_file_truncated_behind_the_sent_bytes_ends_the_connection(
    tmp_path: Path, use_sendfile: bool, caplog: Any
) -> None:
    """sendfile hands pages to the socket, not bytes, so a truncated page in flight becomes zero.

    The truncated range may arrive as zeros, but never as other bytes. Bytes that were read before
    stay as they were.
    """
    files = FileServer(tmp_path)

    async def main() -> None:
        async with serving(files.dispatch, use_sendfile=use_sendfile) as server:
            peer = await Peer.connect(server, receive_buffer=8192)
            await peer.send(ask((0, SIZE)) + ask((0, 10)))
            start = await peer.read(100)
            os.truncate(files.path, 50_000)
            received = start + await peer.read(SIZE)
            expected = struct.pack(">i", SIZE + 9) + files.expected((0, SIZE))
            assert len(received) < SIZE
            differing = {got for got, want in zip(received, expected, strict=False) if got != want}
            assert differing <= ({0} if use_sendfile else set())
            peer.close()

    run(main())
    assert files.open_regions == [0]
    assert "truncated" in caplog.text


@transfers
@pytest.mark.parametrize("length", [100, 1_000_000])
def test_a_region_beyond_the_end_of_its_file_ends_the_connection(
    tmp_path: Path, use_sendfile: bool, length: int, caplog: Any
) -> None:
    files = FileServer(tmp_path, 1000)

    async def main() -> None:
        async with serving(files.dispatch, use_sendfile=use_sendfile) as server:
            peer = await Peer.connect(server)
            await peer.send(ask((950, length)))
            received = await peer.read(10_000)
            assert received in (struct.pack(">i", length + 9) + b"header" + files.content[950:])
            assert len(received) in (0, 10, 60)
            peer.close()

    run(main())
    assert files.open_regions == [0]
    assert "truncated" in caplog.text


@transfers
def test_no_later_response_is_sent_in_place_of_a_region_that_ends_early(
    tmp_path: Path, use_sendfile: bool
) -> None:
    """Otherwise the client would take the later response for records."""
    files = FileServer(tmp_path, 200_000)
    first: PendingResult[Any] = PendingResult()
    replies: list[Any] = [first, [b"later" * 1_000]]

    async def main() -> None:
        async with serving(lambda *_: replies.pop(0), use_sendfile=use_sendfile) as server:
            peer = await Peer.connect(server)
            await peer.send(frame(b"1") + frame(b"2"))
            await until(lambda: not replies)
            region = CountedRegion(files.open_regions, files.file, 0, 300_000)
            first.complete([b"header", region, b"end"])
            assert b"later" not in await peer.read(1_000_000)
            peer.close()

    run(main())
    assert files.open_regions == [0]


@on_both_loops
@transfers
@pytest.mark.parametrize("length", [1000, 5_000_000])
def test_cold_regions_are_read_by_a_thread(
    tmp_path: Path, loop: str, use_sendfile: bool, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileServer(tmp_path)
    files.cold = True
    threads: list[str] = []
    touch = CountedRegion.touch

    def recorded(region: CountedRegion, offset: int, count: int) -> None:
        threads.append(threading.current_thread().name)
        touch(region, offset, count)

    monkeypatch.setattr(CountedRegion, "touch", recorded)

    async def main() -> None:
        async with serving(files.dispatch, use_sendfile=use_sendfile) as server:
            peer = await Peer.connect(server)
            await peer.send(ask((10, length)) + ask((0, 3)))
            assert await peer.read_frame() == files.expected((10, length))
            assert await peer.read_frame() == files.expected((0, 3))
            peer.close()

    run(main(), loop)
    assert threads
    assert threading.current_thread().name not in threads
    assert files.open_regions == [0]


@on_both_loops
def test_a_region_stays_open_while_a_thread_reads_it_after_a_disconnect(
    tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileServer(tmp_path)
    files.cold = True
    started, gate = threading.Event(), threading.Event()

    def held(region: CountedRegion, offset: int, count: int) -> None:
        started.set()
        assert gate.wait(DEADLINE_S)
        assert region.read_piece(offset, 1)

    monkeypatch.setattr(CountedRegion, "touch", held)

    async def main() -> None:
        async with serving(files.dispatch) as server:
            peer = await Peer.connect(server)
            await peer.send(ask((10, 2_000_000), (20, 30)))
            await until(started.is_set)
            peer.reset()
            await until(lambda: not server.connections)
            assert files.open_regions == [2]
            gate.set()
            await until(lambda: files.open_regions == [0])

    run(main(), loop)


def test_a_read_error_ends_the_connection_and_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    files = FileServer(tmp_path)

    def broken(_: Any) -> int:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(CountedRegion, "resident", broken)

    async def main() -> None:
        async with serving(files.dispatch) as server:
            peer = await Peer.connect(server)
            await peer.send(ask((10, 2_000_000)))
            assert await peer.ended()
            peer.close()

    run(main())
    assert files.open_regions == [0]
    assert "the disk is broken" in caplog.text


class FilesWithoutSendfile(RealFiles):
    def sendfile(self, *_: int) -> int:  # type: ignore[override]
        raise OSError(errno.EINVAL, "not here")


def test_a_file_system_without_sendfile_is_read(tmp_path: Path) -> None:
    files = FileServer(tmp_path, files=FilesWithoutSendfile())

    async def main() -> None:
        async with serving(files.dispatch) as server:
            peer = await Peer.connect(server)
            await peer.send(ask((10, 2_000_000)))
            assert await peer.read_frame() == files.expected((10, 2_000_000))
            peer.close()

    run(main())


@pytest.mark.parametrize(
    ("regions", "bytes_max"),
    [
        ([(0, SIZE)], 2 * PUMP_BYTES_MAX),
        ([(at, 1) for at in range(1_000)], PUMP_BYTES_MAX // SMALL_REGION_COST_BYTES * 8),
    ],
    ids=["large", "small"],
)
def test_one_connection_does_not_block_the_loop(
    tmp_path: Path, regions: list[tuple[int, int]], bytes_max: int
) -> None:
    files = FileServer(tmp_path)

    async def main() -> None:
        transport = MockTransport()
        idle: list[bool] = []
        sender = Sender(
            asyncio.get_running_loop(),
            transport,
            None,
            executor=None,
            on_idle=lambda: idle.append(True),
            on_failure=lambda reason, level: pytest.fail(reason),
        )
        chunks = files.dispatch(None, memoryview(ask(*regions)[4:]))
        sender.send(chunks, sum(map(len, chunks)))
        assert sender.busy
        assert len(transport.written) <= bytes_max
        await until(lambda: idle)
        assert transport.written == files.expected(*regions)

    run(main())


class Socket(socket.socket):
    """Accepts as many bytes of each send as the list says, and afterwards all that it can."""

    takes: list[int | None]

    def send(self, data: Any, flags: int = 0) -> int:  # type: ignore[override]
        return super().send(data[: _room(self.takes, len(data))], flags)


class ShortSendfile(RealFiles):
    """Sends as many bytes of each sendfile as the list says, and afterwards all that it can."""

    def __init__(self, takes: list[int | None]) -> None:
        self._takes = takes

    def sendfile(self, out_fd: int, fd: int, position: int, length: int) -> int:  # type: ignore[override]
        return RealFiles.sendfile(out_fd, fd, position, _room(self._takes, length))


def _room(takes: list[int | None], size: int) -> int:
    """Return the number of bytes to accept. None in the list means that the socket is full."""
    room = takes.pop(0) if takes else size
    if room is None:
        raise BlockingIOError(errno.EAGAIN, "full")
    return min(room, size)


REGION_BYTES = 100_000
SHORT_SENDS: list[list[int | None]] = [
    [],
    [None],
    [0],
    [3],
    [3, None],
    [3, 2, None],
    [6, None],
    [6, 1],
    [6, REGION_BYTES - 1],
    [6, REGION_BYTES - PLUG_BYTES],
    [6, 50_000, None],
    [6, 50_000, 10_000, None],
    [6, REGION_BYTES, None],
    [6, REGION_BYTES, 1],
]


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, the first of which can be corked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        return server.accept()[0], peer


@pytest.mark.skipif(not hasattr(os, "sendfile"), reason="needs sendfile")
@pytest.mark.parametrize("pair", [socket.socketpair, tcp_pair])
@pytest.mark.parametrize("full", [False, True], ids=["", "plugged"])
@pytest.mark.parametrize("end", [b"", b"end"], ids=["bare", "tail"])
@pytest.mark.parametrize("takes", SHORT_SENDS, ids=str)
def test_a_socket_that_accepts_a_part_gets_the_rest_in_order(
    tmp_path: Path,
    takes: list[int | None],
    end: bytes,
    full: bool,
    pair: Callable[[], tuple[socket.socket, socket.socket]],
) -> None:
    sent, transport, reasons, sender, regions = _send_response(
        tmp_path, takes, end, 1 if full else float("inf"), pair=pair
    )
    assert not reasons
    assert regions == [0]
    assert not sender.busy
    assert sent == b"header" + body(7, 2 * REGION_BYTES)[5 : 5 + REGION_BYTES] + end
    assert not transport.waiting


def _data_packets(peer: Peer) -> int:
    """Return how many packets with data the system has received (`tcpi_data_segs_in`)."""
    information = peer.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
    (count,) = struct.unpack_from("I", information, 152)
    return int(count)


@pytest.mark.skipif(not hasattr(socket, "TCP_CORK"), reason="needs TCP_CORK")
def test_the_bytes_after_a_region_are_in_its_last_packet(tmp_path: Path) -> None:
    """A packet over loopback has up to 64 KiB."""
    files = FileServer(tmp_path)

    async def main() -> int:
        async with serving(files.dispatch) as server:
            peer = await Peer.connect(server)
            before = _data_packets(peer)
            for _ in range(20):
                await peer.send(ask((5, SMALL_REGION_BYTES + 1)))
                assert await peer.read_frame() == files.expected((5, SMALL_REGION_BYTES + 1))
            after = _data_packets(peer)
            peer.close()
            return after - before

    assert run(main()) == 20


@pytest.mark.skipif(not hasattr(os, "sendfile"), reason="needs sendfile")
@pytest.mark.parametrize("takes", [[], [3], [6, 10_000]], ids=str)
def test_a_file_truncated_during_direct_sending_ends_the_connection(
    tmp_path: Path, takes: list[int | None]
) -> None:
    sent, _, reasons, sender, regions = _send_response(
        tmp_path, takes, b"end", float("inf"), cut_at=20_000
    )
    assert len(reasons) == 1
    assert "truncated" in reasons[0]
    assert sent == (b"header" + body(7, 2 * REGION_BYTES)[5:20_000])[: len(sent)]
    sender.drop()
    assert regions == [0]


def _send_response(
    tmp_path: Path,
    takes: list[int | None],
    end: bytes,
    room: float,
    cut_at: int | None = None,
    pair: Callable[[], tuple[socket.socket, socket.socket]] = socket.socketpair,
) -> tuple[bytes, MockTransport, list[str], Sender, list[int]]:
    """Send a response with one region. Return the bytes that reached socket and transport."""
    takes, reasons = list(takes), list[str]()
    files = FileServer(tmp_path, 2 * REGION_BYTES, ShortSendfile(takes))
    if cut_at is not None:
        os.truncate(files.path, cut_at)

    async def main() -> tuple[bytes, MockTransport, list[str], Sender, list[int]]:
        ours, peer = pair()
        with peer, Socket(fileno=ours.detach()) as sock:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * REGION_BYTES)
            sock.takes = takes
            transport = RelayTransport(sock, room)
            sender = Sender(
                asyncio.get_running_loop(),
                transport,
                sock,
                executor=None,
                on_idle=lambda: None,
                on_failure=lambda reason, level: reasons.append(reason),
            )
            transport.sender = sender
            region = CountedRegion(files.open_regions, files.file, 5, REGION_BYTES)
            chunks = [b"hea", b"der", region, *(bytes([each]) for each in end)]
            sender.send(chunks, sum(map(len, chunks)))
            while transport.waiting and not reasons:
                transport.relay()
            if ours.family == socket.AF_INET and hasattr(socket, "TCP_CORK"):
                assert not sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)
            sock.shutdown(socket.SHUT_WR)
            sent = b"".join(iter(lambda: peer.recv(1 << 20), b""))
            return sent, transport, reasons, sender, files.open_regions

    return run(main())


class BrokenRegion(CountedRegion):
    def resident(self) -> int:
        raise RuntimeError("a bug")


@pytest.mark.skipif(not hasattr(socket, "TCP_CORK"), reason="needs TCP_CORK")
def test_a_socket_is_uncorked_after_an_unexpected_error(tmp_path: Path) -> None:
    """Otherwise the system would hold back the end of each later response for 200 ms."""
    files = FileServer(tmp_path)

    async def main() -> tuple[bytes, int]:
        sock, peer = tcp_pair()
        with sock, peer:
            sender = Sender(
                asyncio.get_running_loop(),
                MockTransport(),
                sock,
                executor=None,
                on_idle=lambda: None,
                on_failure=lambda _reason, _level: None,
            )
            region = BrokenRegion(files.open_regions, files.file, 5, REGION_BYTES)
            with pytest.raises(RuntimeError, match="a bug"):
                sender.send([b"header", region, b"end"], len(region) + 9)
            region.close()
            corked = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)
            return peer.recv(100), corked

    assert run(main()) == (b"header", 0)


class RelayTransport(MockTransport):
    """Hands the bytes that it accepts to the socket. Bytes beyond its room pause the sender."""

    sender: Sender

    def __init__(self, sock: socket.socket, room: float) -> None:
        super().__init__(room)
        self.sock = sock

    def _move(self) -> None:
        taken = self.waiting[: int(min(self.room, len(self.waiting)))]
        socket.socket.sendall(self.sock, taken)
        self.room -= len(taken)
        del self.waiting[: len(taken)]
        if self.waiting:
            self.sender.paused = True

    def relay(self) -> None:
        """Let the peer receive all bytes that wait."""
        self.room = float("inf")
        self._move()
        self.sender.resume()


def test_regions_sent_after_the_end_are_closed(tmp_path: Path) -> None:
    files = FileServer(tmp_path)

    async def main() -> None:
        sender = Sender(
            asyncio.get_running_loop(),
            MockTransport(),
            None,
            executor=ThreadPoolExecutor(1),
            on_idle=lambda: None,
            on_failure=lambda reason, level: None,
        )
        sender.drop()
        sender.send(files.dispatch(None, memoryview(ask((0, SIZE))[4:])), SIZE)
        await iterations()

    run(main())
    assert files.open_regions == [0]


def _count_pumps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    pumps = [0]
    pump: Callable[[Sender], None] = Sender._pump

    def counted(self: Sender) -> None:
        pumps[0] += 1
        pump(self)

    monkeypatch.setattr(Sender, "_pump", counted)
    return pumps


async def _until_quiet(other: Peer, files: FileServer, pumps: list[int]) -> None:
    """Wait until only `other`'s own requests make the senders run, so that none of them spins."""
    while True:
        before = pumps[0]
        for _ in range(20):
            await other.send(ask((0, 1)))
            assert await other.read_frame() == files.expected((0, 1))
        if pumps[0] - before == 20:
            return
