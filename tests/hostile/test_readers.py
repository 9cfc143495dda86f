"""Fetches whose reader disconnects or stalls, or whose file is truncated during the response."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.records.record import iter_batches
from testkit.requests import batch, fetch, produce
from testkit.wire import ConnectionClosed, WireClient
from tests.hostile.attacks import Attacker, reason
from tests.hostile.conftest import Canary, create_topic
from tests.hostile.process import TIMEOUT_S, BrokerProcess

MEMORY_BYTES_MAX = 120 * 1_048_576
"""The log is larger than this, and so is the sum of the readers' fetches."""
LOG_BYTES = 150 * 1_048_576
BATCH_BYTES = 900_000
READERS = 30
SMALL_BUFFER = 4096
BEGUN_BYTES = 100
RESET = struct.pack("ii", 1, 0)
EVERYTHING = {"max_bytes": 2**31 - 1, "partition_max_bytes": 2**31 - 1}
LOOKS = 10
CPU_S_MAX = 0.25
"""CPU time while only the canary is active, with at most three hundred requests a second."""


@pytest.fixture(scope="module")
def big(process: BrokerProcess) -> str:
    """A topic with a log of `LOG_BYTES` in one segment."""
    with WireClient(process.bootstrap_servers) as client:
        create_topic(client, "big")
        fill(client, "big", LOG_BYTES)
        client.call(fetch("big"), 12)  # files that a first read opens stay open from now on
    return "big"


def fill(client: WireClient, topic: str, size: int) -> None:
    records = batch(os.urandom(BATCH_BYTES))
    for _ in range(size // BATCH_BYTES):
        response = client.call(produce(topic, records), 9).responses[0].partition_responses[0]
        assert response.error_code == 0


def reader(process: BrokerProcess, topic: str) -> Attacker:
    """Return a client that has requested all of `topic`, and reads a few KB of it at most."""
    client = Attacker(process, SMALL_BUFFER)
    client.send(fetch(topic, 0, **EVERYTHING), 12)  # type: ignore[arg-type]
    return client


@pytest.fixture
def readers(process: BrokerProcess, big: str) -> Iterator[list[Attacker]]:
    """Return many readers, each in the middle of its response."""
    clients = [reader(process, big) for _ in range(READERS)]
    for client in clients:
        client.read(BEGUN_BYTES)
    yield clients
    for client in clients:
        client.socket.close()


def until_descriptors(process: BrokerProcess, count: int, canary: Canary) -> None:
    """Wait for rounds of the canary until at most `count` descriptors are open."""
    end = time.monotonic() + TIMEOUT_S
    while process.descriptors() > count:
        assert time.monotonic() < end, "descriptors are still open"
        canary.wait_for_rounds(1)


def test_disconnected_readers_release_descriptors_and_memory(
    process: BrokerProcess, big: str, canary: Canary
) -> None:
    before = process.descriptors()
    for _ in range(3):
        clients = [reader(process, big) for _ in range(READERS)]
        for client in clients:
            assert client.socket.recv(1000)
        for client in clients[::2]:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        for client in clients:
            client.socket.close()
    until_descriptors(process, before, canary)


def test_stalled_readers_cost_no_memory_and_no_cpu(
    process: BrokerProcess, readers: list[Attacker], canary: Canary
) -> None:
    """The end of the module checks the memory."""
    for _ in range(LOOKS):  # a busy loop would show in each of them, even on a busy machine
        ticks, begun = process.cpu_ticks(), time.monotonic()
        canary.wait_for_rounds(50)
        spent = (process.cpu_ticks() - ticks) / os.sysconf("SC_CLK_TCK")
        if spent < max(CPU_S_MAX, (time.monotonic() - begun) / 2):
            return
    raise AssertionError(f"{spent} s of CPU in {time.monotonic() - begun} s")


def test_a_reader_that_continues_gets_every_byte(readers: list[Attacker]) -> None:
    """The rest of the response, of which the fixture read some bytes: whole batches, in order."""
    client = readers[0]
    left = bytearray()
    while len(left) < 3 * BATCH_BYTES:
        left += client.socket.recv(1 << 20)
    size = len(batch(bytes(BATCH_BYTES)))
    start = left.index(struct.pack(">qi", 1, size - 12))
    offsets = [int.from_bytes(each[:8], "big") for each in iter_batches(left[start:])]
    assert offsets == [1, 2]


def test_a_log_truncated_during_a_response_ends_only_that_connection(
    process: BrokerProcess, data_dir: Path, canary: Canary
) -> None:
    with WireClient(process.bootstrap_servers) as client:
        create_topic(client, "cut")
        fill(client, "cut", 20 * BATCH_BYTES)
        blocked = reader(process, "cut")
        (size,) = struct.unpack(">i", blocked.socket.recv(4))
        (log,) = data_dir.glob("cut-0/*.log")
        kept = log.stat().st_size // 2
        os.truncate(log, kept)
        received = drained(blocked)
        assert received < size
        assert received <= kept + 10_000, "bytes were sent that are not in the file"
        assert "truncated" in reason(blocked)
        blocked.socket.close()


def test_a_topic_deleted_during_a_response(process: BrokerProcess, canary: Canary) -> None:
    """The file exists until it was sent. The response is complete, and then the descriptor is
    closed.
    """
    with WireClient(process.bootstrap_servers) as client:
        create_topic(client, "gone")
        before = process.descriptors()
        fill(client, "gone", 20 * BATCH_BYTES)
        blocked = reader(process, "gone")
        (size,) = struct.unpack(">i", blocked.socket.recv(4))
        request = DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000)
        assert client.call(request, 5).responses[0].error_code == 0
        left = size
        while left:
            left -= len(blocked.socket.recv(min(left, 1 << 20)))
        blocked.socket.close()
        until_descriptors(process, before, canary)


def drained(client: WireClient) -> int:
    """Return how many bytes arrive until the connection ends."""
    received = 0
    try:
        while data := client.socket.recv(1 << 20):
            received += len(data)
    except ConnectionResetError:
        pass
    return received


def test_a_fetch_that_half_closes_is_answered_or_closed(process: BrokerProcess, big: str) -> None:
    with WireClient(process.bootstrap_servers) as client:
        client.send(fetch(big, 0, partition_max_bytes=1000), 12)
        client.socket.shutdown(socket.SHUT_WR)
        with suppress(ConnectionClosed):
            assert len(client.receive_frame()) >= BATCH_BYTES
