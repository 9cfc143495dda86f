"""OffsetCommits on a few connections, with many in flight. It prints one JSON object.

python -m benchmarks.commits ADDRESS TOPIC --commits N --connections N --in-flight N

The broker must be the limit, not this program. The requests are therefore encoded once and differ
only in the correlation id. Of each response the program reads only the size, until the end of the
run. Each connection commits for its own group, which has no members.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import struct
import time
from collections.abc import Sequence

from odradek.errors import ErrorCode
from odradek.protocol.codec import decode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from testkit.wire import WireClient, request_bytes

VERSION = 8
DEADLINE_S = 120.0


def commit(group_id: str, topic: str, partitions: int) -> OffsetCommitRequest:
    """Return the commit of a consumer that assigned its partitions itself."""
    commits = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        for index in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name=topic, partitions=commits)]
    )


def await_coordinator(address: str, groups: list[str], topic: str) -> None:
    """Wait until each group's coordinator accepts a commit. This creates the offsets topic."""
    end = time.monotonic() + DEADLINE_S
    with WireClient(address) as client:
        for group_id in groups:
            while not _taken(client, group_id, topic):
                if time.monotonic() > end:
                    raise SystemExit(f"no coordinator of {group_id}")
                time.sleep(0.05)


def _taken(client: WireClient, group_id: str, topic: str) -> bool:
    found = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 4)
    if found.coordinators[0].error_code != ErrorCode.NONE:
        return False
    response = client.call(commit(group_id, topic, 1), VERSION)
    return bool(response.topics[0].partitions[0].error_code == ErrorCode.NONE)


class Connection:
    """One socket with `in_flight` requests in flight."""

    def __init__(self, address: str, frame: bytes, count: int) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Size, API key, version; then the correlation id.
        self._before = struct.pack(">i", len(frame)) + frame[:4]
        self._after = frame[8:]
        self.unsent = count
        self.unanswered = count
        self._sent = 0
        self._received = bytearray()
        self._last = b""

    def send(self, count: int) -> None:
        """Send the next `count` requests, or the remaining requests, in one write."""
        count = min(count, self.unsent)
        numbers = range(self._sent, self._sent + count)
        requests = [self._before + struct.pack(">i", n) + self._after for n in numbers]
        self._sent += count
        self.unsent -= count
        self.socket.sendall(b"".join(requests))

    def receive(self) -> int:
        """Return the number of responses that the next received bytes complete."""
        chunk = self.socket.recv(1 << 18)
        if not chunk:
            raise SystemExit("the broker closed the connection")
        self._received += chunk
        at = found = 0
        while len(self._received) - at >= 4:
            (size,) = struct.unpack_from(">i", self._received, at)
            if len(self._received) - at - 4 < size:
                break
            at += 4 + size
            found += 1
            if self.unanswered == found:
                self._last = bytes(self._received[at - size : at])
        del self._received[:at]
        self.unanswered -= found
        return found

    def check(self) -> None:
        """Check that the last response belongs to the last request and has no error."""
        (number,) = struct.unpack_from(">i", self._last)
        response = decode(OffsetCommitResponse, VERSION, self._last, 5)
        errors = {p.error_code for t in response.topics for p in t.partitions}
        if number != self._sent - 1 or errors != {ErrorCode.NONE}:
            raise SystemExit(f"response {number}, errors {errors}")


def run(
    address: str, topic: str, commits: int, connections: int, in_flight: int, partitions: int
) -> dict[str, float]:
    """Return the commits and their seconds, from the first request to the last response."""
    groups = [f"commits-{topic}-{number}" for number in range(connections)]
    await_coordinator(address, groups, topic)
    every = []
    for group_id in groups:
        frame = request_bytes(commit(group_id, topic, partitions), VERSION, 0, "commits")
        every.append(Connection(address, frame, commits // connections))
    seconds = drive(every, in_flight)
    done = commits // connections * connections
    return {"commits": done, "seconds": seconds, "client_cpu_s": time.process_time()}


def drive(connections: Sequence[Connection], in_flight: int) -> float:
    """Send all requests, check the last responses and close. Return the seconds that it took."""
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    began = time.perf_counter()
    for connection in connections:
        connection.send(in_flight)
    left = len(connections)
    while left:
        for key, _ in selector.select():
            done = key.data.receive()
            if key.data.unsent:
                key.data.send(done)
            elif not key.data.unanswered:
                selector.unregister(key.data.socket)
                left -= 1
    seconds = time.perf_counter() - began
    for connection in connections:
        connection.check()
        connection.socket.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits")
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=1)
    arguments = parser.parse_args()
    print(json.dumps(run(**vars(arguments))))


if __name__ == "__main__":
    main()
