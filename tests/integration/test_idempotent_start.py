"""How librdkafka's idempotent producer gets its producer id.

It sends InitProducerId to a connected broker, and looks for one only when metadata arrive and every
500 ms. After the first metadata it closes the bootstrap connection and connects to the same broker
under its node id. If no further metadata arrive, it sends nothing until the 500 ms are over. It
behaves in the same way with Apache Kafka. Its debug log has the reason: it waits for a connection
and never for a response.
"""

from __future__ import annotations

import logging
import re

import pytest

from odradek.testing import Broker

confluent_kafka = pytest.importorskip("confluent_kafka")

PRODUCERS = 3
# The reason is a missing connection. librdkafka logs it in place of "coordinator not connected".
NO_CONNECTION = "Coordinator not up"
START = "Starting idempotent producer"


class Lines(logging.Handler):
    """Logging handler with the log lines of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())

    def found(self, pattern: str) -> list[str]:
        """Return the first group of the pattern in each line that matches, in order."""
        return [match[1] for line in self.seen if (match := re.search(pattern, line))]


def produced(broker: Broker) -> Lines:
    """Send one message with a new idempotent producer. Return its log lines."""
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
