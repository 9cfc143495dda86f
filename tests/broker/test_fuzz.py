"""The broker survives arbitrary bytes: valid, modified and truncated requests of every API.

Each request gets a response or its connection is closed. Other connections are served at the same
time. No handler raises an unexpected exception ("bug in ..." in the log). The time is limited, and
each run prints its seed.
"""

from __future__ import annotations

import importlib
import socket
from random import Random
from typing import Any

import pytest

from odradek.broker.requests.apis import APIS, Api
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.spec import FieldSpec, load
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import ConnectionClosed, WireClient, request_bytes
from tests.helpers.fuzzing import rounds
from tests.protocol.building import Builder

FUZZ_S = 8.0
RESPONSE_TIMEOUT_S = 0.25
RUNS = 3
SMALL = ("timeout", "wait", "interval")


class Plausible(Builder):
    """Builder of requests with existing topics, small numbers and almost valid records."""

    def scalar(self, field: FieldSpec) -> Any:
        random = self.random
        if any(word in field.attribute for word in SMALL) and field.kind in ("int32", "int64"):
            return random.choice([0, 1, 20, -1, 2**31 - 1])
        if field.kind == "string" and random.random() < 0.7:
            return random.choice(["t", "kept", "missing", "", "g", "consumer", "retention.ms", "0"])
        if field.kind in ("int8", "int16", "int32", "int64") and random.random() < 0.8:
            return random.choice([0, 0, 1, -1, 2, 3, 5])
        if field.kind == "records":
            return self.records()
        return super().scalar(field)

    def records(self) -> bytes:
        random = self.random
        data = batch(b"x" * random.choice([0, 10, 5000]), b"y")
        for _ in range(random.choice([0, 0, 1, 3])):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(data[: random.choice([None, None, random.randrange(len(data))])])


def request_class(api: Api) -> Any:
    module = importlib.import_module(f"odradek.protocol.messages.{api.handler}_request")
    return getattr(module, f"{api.message_name}Request")


def request_of(random: Random) -> bytes:
    """Return a request of any API and version. One third is valid, the others are modified."""
    api = random.choice(APIS)
    version = random.randint(api.min_version, api.max_version)
    cls = request_class(api)
    message = Plausible(cls, version, random).struct(load(cls.SPEC).body)
    data = bytearray(request_bytes(message, version, random.getrandbits(31), "fuzz"))
    kind = random.choice(["whole", "whole", "flip", "flip", "cut", "grow", "noise"])
    if kind == "flip":
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == "cut":
        del data[random.randrange(len(data)) :]
    elif kind == "grow":
        data += random.randbytes(random.randint(1, 64))
    elif kind == "noise":
        data[4:] = random.randbytes(random.randint(0, 200))
    return bytes(data)


class Attacker:
    """A client that replaces its connection if it was closed or has no response yet."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client: WireClient | None = None

    def send(self, data: bytes) -> None:
        if self.client is None:
            self.client = WireClient(self.address)
            self.client.socket.settimeout(RESPONSE_TIMEOUT_S)
        try:
            self.client.send_frame(data)
            self.client.receive_frame()
        except (ConnectionClosed, OSError):
            self.close()

    def close(self) -> None:
        if self.client is not None:
            self.client.socket.close()
        self.client = None


def assert_alive(broker: Broker, healthy: WireClient) -> None:
    """Check that an existing connection and a new one are served."""
    got = healthy.call(produce("kept"), 9).responses[0].partition_responses[0]
    if got.error_code:
        broker.create_topic("kept")  # a request deleted it
        healthy.call(produce("kept"), 9)
    assert healthy.call(fetch("kept"), 11).error_code == 0
    with WireClient(broker.bootstrap_servers) as fresh:
        assert fresh.call(ApiVersionsRequest("fuzz", "1"), 3).error_code == 0


@pytest.fixture
def config() -> dict[str, Any]:
    return {"connections.max.idle.ms": 600_000}


@pytest.mark.parametrize("number", range(RUNS))
def test_requests_of_every_kind_leave_the_broker_alive(
    broker: Broker, client: WireClient, seed: int, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed + number)
    broker.create_topic("t", 2)
    broker.create_topic("kept")
    attacker = Attacker(broker.bootstrap_servers)
    for sent in rounds(FUZZ_S):
        attacker.send(request_of(random))
        if sent % 40 == 0:
            assert_alive(broker, client)
    attacker.close()
    assert_alive(broker, client)
    bugs = [record for record in caplog.records if record.message.startswith("bug in")]
    assert not bugs, caplog.text


@pytest.mark.parametrize("size", [-1, 0, 1, 3, 2**31 - 1, -(2**31), 104_857_601])
def test_invalid_frame_sizes_close_only_their_connection(
    broker: Broker, client: WireClient, size: int
) -> None:
    broker.create_topic("kept")
    with WireClient(broker.bootstrap_servers) as attacker:
        attacker.socket.sendall((size & 0xFFFFFFFF).to_bytes(4, "big") + bytes(64))
        attacker.socket.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionClosed):
            attacker.receive_frame()
    assert_alive(broker, client)


def test_request_torn_at_any_byte_does_not_affect_other_connections(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("kept")
    data = request_bytes(fetch("kept"), 11)
    framed = len(data).to_bytes(4, "big") + data
    for size in range(len(framed)):
        with WireClient(broker.bootstrap_servers) as attacker:
            attacker.socket.sendall(framed[:size])
    assert_alive(broker, client)


def test_many_requests_in_one_write_get_responses_in_order(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("kept")
    count = 5000
    for number in range(count):
        client.send(produce("kept", records=batch(b"x")), 9)
        if number % 100 == 99:
            for _ in range(100):
                client.receive()
    assert (
        client.call(fetch("kept", partition_max_bytes=1), 11)
        .responses[0]
        .partitions[0]
        .high_watermark
        == count
    )
