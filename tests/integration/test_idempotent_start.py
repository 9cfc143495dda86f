"""How librdkafka's idempotent producer comes to its producer id.

It asks a broker that is up, and looks for one only when metadata arrive and each 500 ms. The first
metadata make it drop the bootstrap connection and open one to the same broker under its node id;
when no further metadata follow, it sends nothing until the half second is over. It does so with
Apache Kafka too, and says in its debug log why it waits: for a connection, never for an answer.
"""

from __future__ import annotations

import logging
import re

import pytest

from odradek.testing import Broker

confluent_kafka = pytest.importorskip("confluent_kafka")

PRODUCERS = 3
# For want of a connection; librdkafka swaps this reason with that of a coordinator not connected.
NO_CONNECTION = "Coordinator not up"
START = "Starting idempotent producer"


class Lines(logging.Handler):
    """The log of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())

    def found(self, pattern: str) -> list[str]:
        """The first group of the pattern in each line that has it, in their order."""
        return [match[1] for line in self.seen if (match := re.search(pattern, line))]


def produced(broker: Broker) -> Lines:
    """Sends one message with an idempotent producer of its own; what that logged."""
    lines = Lines()
    logger = logging.Logger("client", logging.DEBUG)
    logger.addHandler(lines)
    errors: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "debug": "eos,protocol",
        },
        logger=logger,
    )
    producer.produce("t", b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(120) == 0
    assert errors == [None]
    return lines


def test_librdkafka_requests_its_producer_id_once_and_never_waits_for_the_broker(
    broker: Broker,
) -> None:
    broker.create_topic("t")
    logs = [produced(broker) for _ in range(PRODUCERS)]
    for lines in logs:
        exchange = lines.found(r"((?:Sent|Received) InitProducerId\w+|Acquired PID)")
        assert exchange == [
            "Sent InitProducerIdRequest",
            "Received InitProducerIdResponse",
            "Acquired PID",
        ]
        assert not lines.found(r"(Failed to acquire.*)")
        reasons = lines.found(r"Starting PID FSM timer.*?: (.*)")
        assert reasons[0] == START
        assert set(reasons[1:]) <= {NO_CONNECTION}
    ids = [number for lines in logs for number in lines.found(r"Acquired PID\{Id:(\d+),Epoch:0\}")]
    assert len(set(ids)) == PRODUCERS
