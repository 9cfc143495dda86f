"""A classic group of many members that joins until it is stable. It prints one JSON object.

python -m benchmarks.group_join ADDRESS TOPIC --members N

All members are in this process, each with its own connection. They send the requests of a consumer:
JoinGroup (again with the returned member id), SyncGroup, Heartbeat, and JoinGroup again during a
rebalance. The leader assigns. The heartbeat interval is 100 ms instead of 3 s, so that the result
is the coordinator's time and not the wait for a heartbeat. The group is stable when all members
have the assignment of one generation. All connections are open before the start.
"""

from __future__ import annotations

import argparse
import json
import selectors
import time
from typing import Any

from benchmarks.commits import await_coordinator
from odradek.errors import ErrorCode
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from odradek.protocol.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from testkit.wire import WireClient

HEARTBEAT_S = 0.1
DEADLINE_S = 120.0
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = 9, 5, 4
PROTOCOL = "range"


class Member:
    """One member as a state machine over one connection, one request at a time."""

    def __init__(self, address: str, group_id: str) -> None:
        self.client = WireClient(address)
        self.generation = -1
        self.assigned = False
        self.heartbeat_due = float("inf")
        self.requests = 0
        self._group_id = group_id
        self._member_id = ""

    def join(self) -> None:
        self.assigned, self.heartbeat_due = False, float("inf")
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(PROTOCOL, b"\0\0\0\0\0\0\0\0\0\0")],
        )
        self._send(request, JOIN_VERSION)

    def heartbeat(self) -> None:
        self.heartbeat_due = float("inf")
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=self.generation, member_id=self._member_id
        )
        self._send(request, HEARTBEAT_VERSION)

    def receive(self) -> None:
        """Receive a response and send the next request."""
        response = self.client.receive()
        kind = type(response).__name__
        if kind == "JoinGroupResponse":
            self._joined(response)
        elif response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif response.error_code != ErrorCode.NONE:
            raise SystemExit(f"{kind}: {ErrorCode(response.error_code).name}")
        else:
            self.assigned = True
            self.heartbeat_due = time.monotonic() + HEARTBEAT_S

    def _joined(self, response: Any) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            self.join()
            return
        if response.error_code != ErrorCode.NONE:
            raise SystemExit(f"JoinGroup: {ErrorCode(response.error_code).name}")
        self._member_id, self.generation = response.member_id, response.generation_id
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=[
                SyncGroupRequestAssignment(m.member_id, b"mine") for m in response.members
            ],
        )
        self._send(request, SYNC_VERSION)

    def _send(self, request: Any, version: int) -> None:
        self.requests += 1
        self.client.send(request, version, client_id="group-join")


def stable(members: list[Member]) -> bool:
    """Return whether all members have the assignment of one generation."""
    return all(m.assigned for m in members) and len({m.generation for m in members}) == 1


def run(address: str, topic: str, members: int) -> dict[str, float]:
    """Return the seconds from the first JoinGroup to a stable group."""
    group_id = f"join-{topic}"
    # Find the coordinator with another group id: a group with offsets would not be new.
    await_coordinator(address, [f"{group_id}-before"], topic)
    every = [Member(address, group_id) for _ in range(members)]
    selector = selectors.DefaultSelector()
    for member in every:
        selector.register(member.client.socket, selectors.EVENT_READ, member)
    began = time.monotonic()
    for member in every:
        member.join()
    while not stable(every):
        now = time.monotonic()
        if now - began > DEADLINE_S:
            raise SystemExit(f"not stable: {sum(m.assigned for m in every)} assigned")
        due = min(member.heartbeat_due for member in every)
        for key, _ in selector.select(min(1.0, max(0.0, due - now))):
            key.data.receive()
        now = time.monotonic()
        for member in every:
            if member.heartbeat_due <= now:
                member.heartbeat()
    seconds = time.monotonic() - began
    for member in every:
        member.client.socket.close()
    return {
        "seconds": seconds,
        "generation": every[0].generation,
        "requests": sum(member.requests for member in every),
        "client_cpu_s": time.process_time(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group_join")
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--members", type=int, default=50)
    arguments = parser.parse_args()
    print(json.dumps(run(**vars(arguments))))


if __name__ == "__main__":
    main()
