"""A network in memory: byte streams that arrive in pieces, late, or not at all.

A connection has two ends, and a `Stream` for each direction. The bytes of a stream arrive complete
and in order, or the connection breaks: no frame is ever lost in a live connection. A range of a
file (sendfile) is part of a stream as a reference. Its bytes are read when they are delivered.

Faults act between two hosts. `block` holds back the bytes of one direction until `heal`, as a
network does that drops packets. It can be limited to the responses of one API. `slow` delays the
bytes of one direction. `break_connections` resets connections. A host that refuses connections, or
that is switched off, is a fault of the host.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

from odradek.environment.network import ListenOptions, UnknownHostError
from odradek.protocol.api_keys import ApiKey
from tests.simulation.disk import Inode
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.scheduler import MILLISECOND, SECOND, Event, Scheduler

LATENCY_US_MIN, LATENCY_US_MAX = 50, 400
SLOW_RATE = 0.01
SLOW_US_MAX = 50 * MILLISECOND
PIECE_RATE = 0.1
"""Rate of deliveries of which only a part of the waiting bytes arrives."""
PARTIAL_SEND_RATE = 0.05
STREAM_BYTES_MIN, STREAM_BYTES_MAX = 2_000, 200_000
"""Capacity of a stream: the socket buffers of both ends."""
LOST_HOST_US_MAX = 3 * SECOND
"""Time until a host notices that the other end of a connection is switched off."""
REQUEST_HEAD_BYTES = 6
"""Size and API key at the start of a request."""
ALL_APIS = -2
_FIRST_API_KEYS = (-1, ApiKey.API_VERSIONS)
MSG_MORE = getattr(socket, "MSG_MORE", 0)
_FIRST_PORT = 40_000


class SendTimes:
    """The steps of the simulation in which the bytes of one direction were sent."""

    def __init__(self) -> None:
        self._total = 0
        self._sent: deque[tuple[int, int]] = deque()

    def sent(self, count: int, step: int) -> None:
        """Note that further bytes were sent."""
        self._total += count
        self._sent.append((self._total, step))

    def step_of(self, end: int) -> int:
        """Return the step in which the byte before the position `end` was sent.

        Positions of later calls are not below it.
        """
        sent = self._sent
        while sent[0][0] < end:
            sent.popleft()
        return sent[0][1]


class Stream:
    """The bytes of one direction of a connection: sent, and not delivered yet."""

    __slots__ = (
        "_chunks",
        "_network",
        "_receiver",
        "_request_head",
        "_request_left",
        "_sender",
        "capacity",
        "event",
        "size",
        "times",
    )

    def __init__(self, network: SimulatedNetwork, sender: End, receiver: End) -> None:
        self._network = network
        self._sender = sender
        self._receiver = receiver
        self._chunks: deque[bytes | tuple[Inode, int, bytes]] = deque()
        self.size = 0
        self.capacity = network.rng.randrange(STREAM_BYTES_MIN, STREAM_BYTES_MAX)
        self.event: Event | None = None
        self._request_head = bytearray()
        self.times: SendTimes | None = None
        self._request_left = 0

    @property
    def room(self) -> int:
        return max(self.capacity - self.size - len(self._receiver.received), 0)

    def _accepted(self, length: int) -> int:
        count = min(length, self.room)
        rng = self._network.rng
        if count > 1 and rng.random() < PARTIAL_SEND_RATE:
            count = rng.randrange(1, count)
        return count

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Take a part of the bytes. Return how many."""
        count = self._accepted(len(data))
        if count:
            if self._receiver.responds_to in _FIRST_API_KEYS and self._sender.is_client:
                self._note_request(data, count)
            self._append(bytes(data[:count]), count)
        return count

    def _note_request(self, data: bytes | bytearray | memoryview, count: int) -> None:
        """Take the API of a connection from the header of its first request after ApiVersions."""
        head, position = self._request_head, 0
        while position < count:
            if self._request_left:
                step = min(self._request_left, count - position)
                self._request_left -= step
            else:
                step = min(REQUEST_HEAD_BYTES - len(head), count - position)
                head += data[position : position + step]
            position += step
            if len(head) == REQUEST_HEAD_BYTES:
                self._request_left = int.from_bytes(head[:4], "big") - 2
                self._receiver.responds_to = int.from_bytes(head[4:], "big")
                head.clear()

    def send_region(self, inode: Inode, position: int, length: int) -> int:
        """Take a reference to a range of a file. Return how many bytes of it."""
        count = self._accepted(length)
        if count:
            sent = bytes(inode.data[position : position + count])
            self._append((inode, position, sent), count)
        return count

    def _append(self, chunk: bytes | tuple[Inode, int, bytes], count: int) -> None:
        self._chunks.append(chunk)
        self.size += count
        if self.times is not None:
            self.times.sent(count, self._network.scheduler.steps)
        self.schedule()

    def schedule(self) -> None:
        """Schedule the delivery of the bytes that wait, unless the direction is blocked."""
        network = self._network
        if self.event is None and (self.size or self._sender.ended):
            if network.is_blocked(self._sender.host, self._receiver.host, self._sender):
                return
            delay_us = network.latency_us()
            if network.slow:
                delay_us += network.slow.get((self._sender.host, self._receiver.host), 0)
            self.event = network.scheduler.after(delay_us, self._deliver)

    def _deliver(self) -> None:
        self.event = None
        network = self._network
        sender, receiver = self._sender, self._receiver
        if receiver.lost or network.is_blocked(sender.host, receiver.host, sender):
            return
        rng = network.rng
        count = self.size
        if count > 1 and rng.random() < PIECE_RATE:
            count = rng.randrange(1, count)
        data = self._take(count)
        if data:
            network.scheduler.note(f"{self._sender.name} {len(data)} {zlib.crc32(data):08x}")
            self._receiver.arrived(data)
            self._sender.room_made()
        if self.size:
            self.schedule()
        elif self._sender.ended:
            self._receiver.end_arrived()

    def _take(self, count: int) -> bytes:
        """Remove `count` bytes from the front, and read those of files now."""
        self.size -= count
        chunks = self._chunks
        parts = []
        while count:
            chunk = chunks.popleft()
            if isinstance(chunk, bytes):
                if len(chunk) > count:
                    chunks.appendleft(chunk[count:])
                    chunk = chunk[:count]
                parts.append(chunk)
                count -= len(chunk)
                continue
            inode, position, sent = chunk
            taken = min(len(sent), count)
            if taken < len(sent):
                chunks.appendleft((inode, position + taken, sent[taken:]))
            data = bytes(inode.data[position : position + taken])
            data += bytes(taken - len(data))  # a truncated page has zeros
            if data != sent[:taken]:
                self._network.changed_in_flight(self._sender, self._receiver)
            parts.append(data)
            count -= taken
        return b"".join(parts)

    def drop(self) -> None:
        self._chunks.clear()
        self.size = 0
        if self.event is not None:
            self.event.cancel()
            self.event = None


class End:
    """One end of a connection. It is a `StreamSocket`, and the transport's access to the network.

    Attributes:
        received: The bytes that have arrived and were not read.
        ended: This end sends nothing further (FIN).
        lost: The connection has ended for this end.
        is_client: This end has opened the connection.
        responds_to: The API of the first request after ApiVersions. -1 before the first request,
            and for the client.
    """

    family = socket.AF_UNIX  # not TCP: the broker sets no TCP options

    def __init__(self, network: SimulatedNetwork, name: str, host: str, address: tuple[str, int]):
        self.network = network
        self.name = name
        self.host = host
        self.address = address
        self.received = bytearray()
        self.ended = False
        self.lost = False
        self.peer_ended = False
        self.is_client = False
        self.responds_to = -1
        self.peer: End = self
        self.out: Stream
        self.transport: SimulatedTransport | None = None
        self.number = network.register(self)

    # -- `StreamSocket` ----------------------------------------------------------------------------

    def fileno(self) -> int:
        return -1 if self.lost else self.number

    def getpeername(self) -> tuple[str, int]:
        if self.lost:
            raise OSError(errno.ENOTCONN, "not connected")
        return self.peer.address

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0, /) -> int:
        if self.lost:
            raise BrokenPipeError(errno.EPIPE, "broken pipe")
        count = self.out.send(data)
        if not count and len(data):
            raise BlockingIOError(errno.EAGAIN, "the socket is full")
        return count

    def send_region(self, inode: Inode, position: int, length: int) -> int:
        if self.lost:
            raise BrokenPipeError(errno.EPIPE, "broken pipe")
        if length <= 0:
            return 0
        count = self.out.send_region(inode, position, length)
        if not count:
            raise BlockingIOError(errno.EAGAIN, "the socket is full")
        return count

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Options have no effect."""

    def close(self) -> None:
        self.reset()

    # -- the network -------------------------------------------------------------------------------

    def arrived(self, data: bytes) -> None:
        self.received += data
        if self.transport is not None:
            self.transport.notify()

    def room_made(self) -> None:
        if self.transport is not None:
            self.transport.notify_room()

    def finish(self) -> None:
        """Send nothing further. The other end learns of it after the bytes that wait (FIN)."""
        if not self.ended and not self.lost:
            self.ended = True
            self.out.schedule()

    def end_arrived(self) -> None:
        self.peer_ended = True
        if self.transport is not None:
            self.transport.notify()

    def reset(self) -> None:
        """End the connection for both ends (RST). The other end learns of it later."""
        if self.lost:
            return
        self._end()
        network, peer = self.network, self.peer
        if not peer.lost and not network.is_blocked(self.host, peer.host, self):
            network.scheduler.after(network.latency_us(), peer.broken)
        elif not peer.lost:
            delay_us = network.rng.randrange(LOST_HOST_US_MAX)
            network.scheduler.after(delay_us, peer.broken)

    def broken(self) -> None:
        """The connection has broken. The process reads no further bytes."""
        if self.lost:
            return
        self._end()
        if self.transport is not None:
            self.transport.connection_broken()

    def _end(self) -> None:
        self.lost = True
        self.out.drop()
        self.received.clear()
        self.network.forget(self)


class SimulatedTransport(asyncio.Transport):
    """A transport on one end. Its protocol is called by the loop of its process."""

    def __init__(self, loop: SimulatedLoop, end: End, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._end = end
        self._protocol: Any = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._unsent = bytearray()
        self._high, self._low = 65_536, 16_384
        self._reading = True
        self._paused = False
        self._closing = False
        self._eof_reported = False
        self._notified = False
        self._room_notified = False
        self._lost_reported = False
        end.transport = self

    # -- interface of asyncio ----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "send times of the peer":
            stream = self._end.peer.out
            stream.times = stream.times or SendTimes()
            return stream.times
        if name == "sockname":
            return self._end.address
        if name == "peername":
            return self._end.peer.address
        return default

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65_536 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._end.lost or self._closing or not len(data):
            return
        if not self._unsent:
            count = self._end.out.send(data)
            if count == len(data):
                return
            data = data[count:]
        self._unsent += data
        if not self._paused and len(self._unsent) > self._high:
            self._paused = True
            self._protocol.pause_writing()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.notify()

    def is_reading(self) -> bool:
        return self._reading

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._reading = False
        if not self._unsent:
            self._finish()

    def abort(self) -> None:
        self._closing = True
        if not self._end.lost:
            self._end.reset()
        self._report_loss(None)

    # -- called by the network ---------------------------------------------------------------------

    def notify(self) -> None:
        """Bytes, or the end of the stream, have arrived."""
        if self._reading and not self._notified and not self._end.lost:
            self._notified = True
            self._loop.call_soon(self._read)

    def notify_room(self) -> None:
        if self._unsent and not self._room_notified:
            self._room_notified = True
            self._loop.call_soon(self._send_unsent)

    def connection_broken(self) -> None:
        self._closing = True
        self._report_loss(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def _report_loss(self, error: Exception | None) -> None:
        if not self._lost_reported:
            self._lost_reported = True
            self._unsent.clear()
            self._loop.call_soon(self._protocol.connection_lost, error)

    def _finish(self) -> None:
        """The last byte was sent: the connection ends."""
        self._end.finish()
        self._report_loss(None)

    def _read(self) -> None:
        self._notified = False
        end = self._end
        if not self._reading or end.lost or self._lost_reported:
            return
        received = end.received
        if received:
            if self._buffered:
                buffer = self._protocol.get_buffer(-1)
                count = min(len(buffer), len(received))
                buffer[:count] = received[:count]
                del received[:count]
                self._protocol.buffer_updated(count)
            else:
                data = bytes(received)
                received.clear()
                self._protocol.data_received(data)
            end.peer.room_made()
            if received or end.peer_ended:
                self.notify()
        elif end.peer_ended and not self._eof_reported:
            self._eof_reported = True
            if not self._protocol.eof_received():
                self.close()

    def _send_unsent(self) -> None:
        self._room_notified = False
        unsent = self._unsent
        if self._end.lost or not unsent:
            return
        count = self._end.out.send(unsent)
        del unsent[:count]
        if self._paused and len(unsent) <= self._low:
            self._paused = False
            self._protocol.resume_writing()
        if self._closing and not self._unsent:
            self._finish()
        elif self._unsent and self._end.out.room:
            self.notify_room()


class SimulatedListener:
    """A listening socket: a queue of connections."""

    def __init__(self, network: SimulatedNetwork, loop: SimulatedLoop, address: tuple[str, int]):
        self.address = address
        self.closed = False
        self.queue: deque[End] = deque()
        self._network = network
        self._loop = loop
        self._callback: Callable[[], None] | None = None
        self._notified = False

    def watch(self, on_connection: Callable[[], None]) -> None:
        self._callback = on_connection
        self._notify()

    def unwatch(self) -> None:
        self._callback = None

    def arrived(self, end: End) -> None:
        self.queue.append(end)
        self._notify()

    def _notify(self) -> None:
        if self.queue and self._callback is not None and not self._notified:
            self._notified = True
            self._loop.call_soon(self._ready)

    def _ready(self) -> None:
        self._notified = False
        if self._callback is not None and not self.closed:
            self._callback()
            self._notify()

    def accept(self) -> End:
        if not self.queue:
            raise BlockingIOError(errno.EAGAIN, "no connection waits")
        return self.queue.popleft()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._network.listeners.pop(self.address, None)
            while self.queue:
                self.queue.popleft().reset()


class SimulatedNetwork:
    """All hosts and connections; see the module. `HostNetwork` is the port of one process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.rng = scheduler.stream("network")
        self._random = self.rng.random
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.report: Callable[[str], None] = scheduler.note
        """Takes each violation."""
        self.refusing: set[str] = set()
        self.off: set[str] = set()
        """Hosts without power: packets to them vanish."""
        self.slow: dict[tuple[str, str], int] = {}
        """Microseconds that each delivery from one host to another is late."""
        self._blocked: set[tuple[str, str, int]] = set()
        self._ends: dict[int, End] = {}
        self._next_number = 10_000
        self._next_port = _FIRST_PORT

    def changed_in_flight(self, sender: End, receiver: End) -> None:
        """Report that a file was changed in a range that a connection has sent already."""
        self.report(f"the bytes of a file that {sender.host} sent to {receiver.host} have changed")

    # -- ends --------------------------------------------------------------------------------------

    def register(self, end: End) -> int:
        self._next_number += 1
        self._ends[self._next_number] = end
        return self._next_number

    def forget(self, end: End) -> None:
        self._ends.pop(end.number, None)

    def ends_of(self, host: str) -> list[End]:
        return [end for end in self._ends.values() if end.host == host]

    def send_region(self, number: int, inode: Inode, position: int, length: int) -> int:
        end = self._ends.get(number)
        if end is None:
            raise BrokenPipeError(errno.EPIPE, "broken pipe")
        return end.send_region(inode, position, length)

    def latency_us(self) -> int:
        number = self._random()
        if number < SLOW_RATE:
            return int(number / SLOW_RATE * SLOW_US_MAX)
        return LATENCY_US_MIN + int(self._random() * (LATENCY_US_MAX - LATENCY_US_MIN))

    def connected(self, source: str, listener: SimulatedListener) -> tuple[End, End]:
        """Return the ends of a new connection, which waits in the queue of the listener."""
        self._next_port += 1
        port, (host, _) = self._next_port, listener.address
        near = End(self, f"{source}:{port}>", source, (source, port))
        far = End(self, f"{source}:{port}<", host, listener.address)
        near.peer, far.peer = far, near
        near.is_client = True
        near.out, far.out = Stream(self, near, far), Stream(self, far, near)
        listener.arrived(far)
        return near, far

    # -- faults ------------------------------------------------------------------------------------

    def is_blocked(self, source: str, target: str, sender: End | None = None) -> bool:
        """Return whether bytes are held back, for the connection of `sender` or for a new one."""
        blocked = self._blocked
        if blocked and (
            (source, target, ALL_APIS) in blocked
            or (sender is not None and (source, target, sender.responds_to) in blocked)
        ):
            return True
        off = self.off
        return bool(off) and (target in off or source in off)

    def block(self, source: str, target: str, api_key: int = ALL_APIS) -> None:
        """Hold back the bytes from one host to another until `heal`.

        Args:
            api_key: Only responses of this API. Default: all bytes, and no connection can be
                opened.
        """
        self._blocked.add((source, target, api_key))

    def heal(
        self, source: str | None = None, target: str | None = None, api_key: int = ALL_APIS
    ) -> None:
        """End one block, or all. The bytes that were held back are sent again."""
        if source is None:
            self._blocked.clear()
            self.slow.clear()
        else:
            assert target is not None
            self._blocked.discard((source, target, api_key))
        for end in list(self._ends.values()):
            end.out.schedule()

    def break_connections(self, first: str, second: str) -> int:
        """Reset the connections between two hosts. Each end learns of it at its own time."""
        count = 0
        for end in list(self._ends.values()):
            if end.host == first and end.peer.host == second:
                for each in (end, end.peer):
                    self.scheduler.after(self.latency_us(), each.broken)
                count += 1
        return count

    def process_ended(self, host: str, *, power_cut: bool) -> None:
        """A process was killed: its connections are reset. After a power cut nothing is sent."""
        for address, listener in list(self.listeners.items()):
            if address[0] == host:
                listener.close()
        for end in self.ends_of(host):
            end.transport = None
            if power_cut:
                end._end()
                self.scheduler.after(self.rng.randrange(LOST_HOST_US_MAX), end.peer.broken)
            else:
                end.reset()


class HostNetwork:
    """`Network` of the process that runs on `host`."""

    def __init__(self, network: SimulatedNetwork, loop: SimulatedLoop, host: str) -> None:
        self._network = network
        self._loop = loop
        self._host = host

    @property
    def host_name(self) -> str:
        return self._host

    async def listen(self, host: str, port: int, options: ListenOptions) -> list[SimulatedListener]:
        host = host or self._host
        if host != self._host:
            raise UnknownHostError(f"{self._host} is not {host}")
        address = (host, port)
        if address in self._network.listeners:
            raise OSError(errno.EADDRINUSE, "address in use")
        listener = SimulatedListener(self._network, self._loop, address)
        self._network.listeners[address] = listener
        return [listener]

    async def attach(self, sock: End, protocol: asyncio.BaseProtocol) -> None:
        if sock.lost:
            raise OSError(errno.ENOTCONN, "not connected")
        transport = SimulatedTransport(self._loop, sock, protocol)
        protocol.connection_made(transport)
        if sock.received or sock.peer_ended:
            transport.notify()

    async def connect(
        self, host: str, port: int, protocol_factory: Callable[[], Any]
    ) -> tuple[asyncio.Transport, Any]:
        """Open a connection. While a direction is blocked this waits, as TCP does."""
        network = self._network
        while True:
            delayed = self._loop.create_future()
            network.scheduler.after(2 * network.latency_us(), _complete, delayed)
            await delayed
            if network.is_blocked(self._host, host) or network.is_blocked(host, self._host):
                await asyncio.sleep(0.1)
                continue
            break
        listener = network.listeners.get((host, port))
        if listener is None or host in network.refusing:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        near, _ = network.connected(self._host, listener)
        protocol = protocol_factory()
        transport = SimulatedTransport(self._loop, near, protocol)
        protocol.connection_made(transport)
        return transport, protocol


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
