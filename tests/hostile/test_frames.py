"""Frames with wrong sizes, torn, slow or too many. The connection is closed or waits, and no other
connection is affected.
"""

from __future__ import annotations

import socket
import struct
import threading
import time

import pytest

from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.produce_request import ProduceRequest
from testkit.requests import fetch, produce
from testkit.wire import WireClient, request_bytes
from tests.hostile.attacks import Attacker, framed, header, reason, responses_until_closed
from tests.hostile.conftest import Canary
from tests.hostile.process import TIMEOUT_S, BrokerProcess
from tests.protocol.golden import golden_messages

pytestmark = pytest.mark.usefixtures("canary")

PIPELINED = 100_000
DEAF = 1_000_000
"""Some tens of MB: more than the system buffers for one connection."""
HALF_OPEN = 200
CLAIMS = 400
"""Eighty times the memory for requests, if announced sizes were allocated."""

TORN = [ProduceRequest, FetchRequest, MetadataRequest, CreateTopicsRequest, JoinGroupRequest]


def golden(cls: type) -> bytes:
    """Return the largest request of the newest version that Kafka's own class wrote, as a frame."""
    version, _, body = [entry for entry in golden_messages()[cls] if entry[1]][-1]
    flexible = version >= cls.FLEXIBLE_FROM >= 0  # type: ignore[attr-defined]
    return header(cls.API_KEY, version, flexible=flexible) + body  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_a_size_that_no_frame_may_have(
    process: BrokerProcess, attacker: Attacker, size: int
) -> None:
    attacker.socket.sendall(struct.pack(">i", size))
    assert responses_until_closed(attacker) == []
    assert reason(attacker).startswith(f"invalid frame size {size},")


@pytest.mark.parametrize("size", [0, 1, 7, 9])
def test_a_frame_too_short_for_a_header(
    process: BrokerProcess, attacker: Attacker, size: int
) -> None:
    attacker.send_frame(bytes(size))
    assert responses_until_closed(attacker) == []
    assert "header" in reason(attacker)


@pytest.mark.parametrize("cls", TORN, ids=lambda cls: cls.__name__)
def test_a_request_torn_at_every_byte_by_a_half_close(process: BrokerProcess, cls: type) -> None:
    stream = framed(golden(cls))
    for size in range(len(stream)):
        with Attacker(process) as attacker:
            attacker.socket.sendall(stream[:size])
            attacker.socket.shutdown(socket.SHUT_WR)
            assert responses_until_closed(attacker) == []


@pytest.mark.parametrize("cls", TORN, ids=lambda cls: cls.__name__)
def test_a_body_that_ends_at_every_byte(process: BrokerProcess, cls: type) -> None:
    data = golden(cls)
    for size in range(len(data)):
        with Attacker(process) as attacker:
            attacker.send_frame(data[:size])
            assert responses_until_closed(attacker) == []
            assert "malformed request" in reason(attacker)


def test_requests_split_at_every_byte_are_answered_when_the_rest_arrives(
    process: BrokerProcess,
) -> None:
    stream = framed(request_bytes(produce("t"), 9))
    clients = [WireClient(process.bootstrap_servers) for _ in stream]
    for size, client in enumerate(clients):
        client.socket.sendall(stream[:size])
    for size, client in enumerate(clients):
        client.socket.sendall(stream[size:])
    for client in clients:
        assert client.receive_frame()
        client.socket.close()


def test_a_request_byte_by_byte(attacker: Attacker) -> None:
    for byte in framed(request_bytes(ApiVersionsRequest("slow", "1"), 3)):
        attacker.socket.sendall(bytes([byte]))
    assert attacker.receive_frame()


def test_idle_connections_cost_nothing(process: BrokerProcess, attacker: Attacker) -> None:
    attacker.call(ApiVersionsRequest("x", "1"), 3)
    descriptors = process.descriptors()
    silent = [WireClient(process.bootstrap_servers) for _ in range(HALF_OPEN)]
    for client in silent[::2]:
        client.socket.sendall(b"\0\0")
        client.socket.shutdown(socket.SHUT_RD)
    assert attacker.call(ApiVersionsRequest("x", "1"), 3)
    for client in silent:
        client.socket.close()
    end = time.monotonic() + TIMEOUT_S
    while process.descriptors() > descriptors:
        assert time.monotonic() < end, "descriptors of closed connections are still open"
        attacker.call(ApiVersionsRequest("x", "1"), 3)  # one iteration of the broker's loop


def test_a_hundred_thousand_pipelined_requests_are_answered_in_order(
    process: BrokerProcess, attacker: Attacker
) -> None:
    one = framed(request_bytes(ApiVersionsRequest("many", "1"), 0))
    stream = b"".join(one[:8] + number.to_bytes(4, "big") + one[12:] for number in range(PIPELINED))
    sender = threading.Thread(target=attacker.socket.sendall, args=(stream,))
    sender.start()
    responses = attacker.socket.makefile("rb")
    for number in range(PIPELINED):
        size = int.from_bytes(responses.read(4), "big")
        assert responses.read(size)[:4] == number.to_bytes(4, "big")
    sender.join()
    responses.close()


def test_requests_are_not_read_while_responses_are_not_read(
    process: BrokerProcess, attacker: Attacker
) -> None:
    """The end of the module checks the memory: 100 MB of responses must not stay in the broker."""
    attacker.socket.settimeout(0.5)
    stream = framed(request_bytes(ApiVersionsRequest("deaf", "1"), 3)) * 1000
    with pytest.raises(TimeoutError):
        for _ in range(DEAF // 1000):
            attacker.socket.sendall(stream)


def test_pipelined_long_polls_wait_within_the_limit_of_a_connection(
    process: BrokerProcess, attacker: Attacker, canary: Canary
) -> None:
    poll = fetch("t", 0, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1)
    stream = framed(request_bytes(poll, 12)) * 1000
    attacker.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        for _ in range(DEAF // 1000):
            attacker.socket.sendall(stream)
    rounds = canary.rounds
    with WireClient(process.bootstrap_servers) as other:
        assert other.call(fetch("t", 0, max_wait_ms=1), 12).error_code == 0
    assert canary.rounds >= rounds


def test_frames_that_are_announced_but_not_sent_delay_no_other_client(
    process: BrokerProcess, attacker: Attacker
) -> None:
    claims = [WireClient(process.bootstrap_servers) for _ in range(CLAIMS)]
    for claim in claims:
        claim.socket.sendall(struct.pack(">i", 104_857_600) + bytes(10))
    large = produce("t", bytes(900_000))
    assert attacker.call(large, 9).responses[0].partition_responses[0].error_code
    for claim in claims:
        claim.socket.close()
