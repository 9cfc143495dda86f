"""One producer or one consumer of RabbitMQ over AMQP 0-9-1. It prints one JSON object.

python -m benchmarks.amqp produce ADDRESS QUEUE --records N --size BYTES --batch N
python -m benchmarks.amqp consume ADDRESS QUEUE --records N

The producer sends persistent messages to a durable queue with publisher confirms. At most a
thousand messages are unconfirmed. A batch is the messages of one write. The consumer has a prefetch
of a thousand and acknowledges five hundred messages at a time. The frames are encoded once, so that
the broker is the limit.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import time
from collections.abc import Iterator

METHOD, HEADER, BODY = 1, 2, 3
END = b"\xce"
WINDOW = 1000
DEADLINE_S = 60.0
# Class and method of the frames that are sent and awaited.
START, START_OK, TUNE, TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
OPEN, OPEN_OK = (10, 40), (10, 41)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
DECLARE, DECLARE_OK = (50, 10), (50, 11)
CONFIRM, CONFIRM_OK = (85, 10), (85, 11)
QOS, QOS_OK, CONSUME, CONSUME_OK = (60, 10), (60, 11), (60, 20), (60, 21)
PUBLISH, DELIVER, ACK = (60, 40), (60, 60), (60, 80)
PERSISTENT = 0x1000
"""The property flag of delivery-mode."""


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + END


def method(name: tuple[int, int], arguments: bytes, channel: int = 1) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *name) + arguments)


class Channel:
    """One connection with one channel and a durable queue."""

    def __init__(self, address: str, queue: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self._await(START)
        login = b"\0guest\0guest"
        words = struct.pack(">I", 0) + short("PLAIN") + struct.pack(">I", len(login)) + login
        self.socket.sendall(method(START_OK, words + short("en_US"), 0))
        tuned = self._await(TUNE)
        self.socket.sendall(method(TUNE_OK, tuned[:6] + b"\0\0", 0))  # No heartbeats.
        self.call(OPEN, short("/") + b"\0\0", OPEN_OK, 0)
        self.call(CHANNEL_OPEN, b"\0", CHANNEL_OPEN_OK)
        durable = b"\0\0" + short(queue) + b"\x02" + struct.pack(">I", 0)
        self.call(DECLARE, durable, DECLARE_OK)

    def call(
        self, name: tuple[int, int], arguments: bytes, response: tuple[int, int], channel: int = 1
    ) -> None:
        self.socket.sendall(method(name, arguments, channel))
        self._await(response)

    def _await(self, name: tuple[int, int]) -> bytes:
        while True:
            for kind, payload in self.frames():
                found = struct.unpack_from(">HH", payload)
                if kind == METHOD and found == name:
                    return payload[4:]
                raise SystemExit(f"{found} instead of {name}: {payload[4:]!r}")

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that the next received bytes complete."""
        chunk = self.socket.recv(1 << 18)
        if not chunk:
            raise SystemExit("the broker closed the connection")
        self._received += chunk
        at, data = 0, bytes(self._received)
        found = []
        while len(data) - at >= 8:
            kind, _, size = struct.unpack_from(">BHI", data, at)
            if len(data) - at - 8 < size:
                break
            found.append((kind, data[at + 7 : at + 7 + size]))
            at += 8 + size
        del self._received[:at]
        return iter(found)


class Confirmed:
    """Up to which delivery tag all messages are confirmed; single ones may come out of order."""

    def __init__(self) -> None:
        self.upper = 0
        self._above: set[int] = set()

    def take(self, tag: int, *, multiple: bool) -> None:
        if multiple:
            self.upper = max(self.upper, tag)
        else:
            self._above.add(tag)
        while self.upper + 1 in self._above:
            self.upper += 1
            self._above.discard(self.upper)

    def receive(self, channel: Channel) -> None:
        for kind, payload in channel.frames():
            name = struct.unpack_from(">HH", payload) if kind == METHOD else ()
            if name != ACK:
                raise SystemExit(f"{name} instead of a confirmation")
            tag, multiple = struct.unpack_from(">QB", payload, 4)
            self.take(tag, multiple=bool(multiple))


def produce(address: str, queue: str, records: int, size: int, batch: int) -> dict[str, float]:
    """Return the seconds from the first message to the last confirmation."""
    channel = Channel(address, queue)
    channel.call(CONFIRM, b"\0", CONFIRM_OK)
    one = method(PUBLISH, b"\0\0" + short("") + short(queue) + b"\0")
    one += frame(HEADER, 1, struct.pack(">HHQHB", 60, 0, size, PERSISTENT, 2))
    one += frame(BODY, 1, b"x" * size)
    sent, done = 0, Confirmed()
    began = time.perf_counter()
    while done.upper < records:
        if sent < records and sent - done.upper < WINDOW:
            count = min(batch, records - sent)
            channel.socket.sendall(one * count)
            sent += count
            if not select.select([channel.socket], [], [], 0)[0]:
                continue
        done.receive(channel)
    return {"seconds": time.perf_counter() - began}


def consume(address: str, queue: str, records: int) -> dict[str, float]:
    """Return the seconds from the subscription to the last message."""
    channel = Channel(address, queue)
    channel.call(QOS, struct.pack(">IHB", 0, WINDOW, 0), QOS_OK)
    arguments = b"\0\0" + short(queue) + short("one") + b"\0" + struct.pack(">I", 0)
    began = time.perf_counter()
    channel.socket.sendall(method(CONSUME, arguments))
    found = acknowledged = 0
    while found < records:
        for kind, _ in channel.frames():
            found += kind == BODY
        if found - acknowledged >= WINDOW // 2 or found == records:
            channel.socket.sendall(method(ACK, struct.pack(">QB", found, 1)))
            acknowledged = found
    return {"seconds": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.amqp")
    parser.add_argument("load", choices=["produce", "consume"])
    parser.add_argument("address")
    parser.add_argument("queue")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--batch", type=int, default=50)
    arguments = parser.parse_args()
    if arguments.load == "produce":
        result = produce(
            arguments.address, arguments.queue, arguments.records, arguments.size, arguments.batch
        )
    else:
        result = consume(arguments.address, arguments.queue, arguments.records)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
