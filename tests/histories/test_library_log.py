"""The defect of librdkafka that the history checker allows, shown with the library itself."""

from __future__ import annotations

from itertools import pairwise

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from conformance.histories.library_log import LibraryLog
from conformance.histories.settings import CONSUMER_LOG

from odradek.testing import Broker

RECORDS = 100
START = 54
POLL_S = 0.1
POLLS_MAX = 600


def test_a_late_offset_response_of_an_earlier_assignment_makes_a_consumer_jump_back() -> None:
    """If this fails with a new librdkafka, the library may be mended: see docs/histories.md."""
    log = LibraryLog()
    with Broker() as broker:
        broker.create_topic("t")
        _fill(broker, "t")
        address = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        consumer = Consumer({**address, **CONSUMER_LOG}, logger=log.logger)
        late = broker.delay("ListOffsets", 1.0, times=1)
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        late.wait()
        consumer.unassign()
        consumer.assign([TopicPartition("t", 0, START)])
        offsets = _read_until_last_offset_comes_twice(consumer)
        consumer.close()
    assert offsets[0] == START
    jumps = [(before, after) for before, after in pairwise(offsets) if after != before + 1]
    assert [after for _, after in jumps] == [0]
    assert log.take() == {("t", 0)}


def _fill(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, str(number))
    assert producer.flush(30) == 0


def _read_until_last_offset_comes_twice(consumer: Consumer) -> list[int]:
    offsets: list[int] = []
    for _ in range(POLLS_MAX):
        while (message := consumer.poll(POLL_S)) is not None:
            offsets.append(message.offset())
        if offsets.count(RECORDS - 1) == 2:
            return offsets
    raise AssertionError(f"the consumer did not read the partition again: {offsets[-5:]}")
