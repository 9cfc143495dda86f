"""The transactional producer on a real broker: fencing, refusals and the announced leader."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek.registry import transactions
from odradek.registry.election import Leader, decode_leader
from odradek.registry.kafka_settings import RECORD_BYTES_MAX, KafkaSettings
from odradek.registry.schemas_topic import prepare_topic
from odradek.registry.transactions import (
    RecordTooLarge,
    TransactionalProducer,
    WriteRefused,
    WriterLost,
)
from odradek.testing import Broker

TIMEOUT_S = 120.0
RECORD = (b"key", b"value")


class Members:
    """Producers of several terms on one broker."""

    def __init__(self, servers: str) -> None:
        self.settings = KafkaSettings(servers)
        self.cluster_id = prepare_topic(self.settings).cluster_id
        self.consumer = Consumer(self.settings.member())

    def fenced(self) -> TransactionalProducer:
        """Return a producer that has fenced all earlier ones."""
        producer = TransactionalProducer(self.settings, self.cluster_id)
        producer.fence()
        return producer

    def values(self) -> list[bytes]:
        """Return the values that a reader with read_committed sees."""
        consumer = Consumer(self.settings.reader())
        consumer.assign([TopicPartition("_schemas", 0, 0)])
        values = []
        while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
            values.append(message.value())
        consumer.close()
        return values


@pytest.fixture
def members(kafka: Broker) -> Members:
    return Members(kafka.bootstrap_servers)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limit, because the test machine may be suspended."""
    monkeypatch.setattr(transactions, "CALL_TIMEOUT_S", TIMEOUT_S)


def test_a_write_returns_the_offset_of_its_last_record(members: Members) -> None:
    producer = members.fenced()
    assert producer.write([RECORD, (b"key", b"2")]) == 1
    assert producer.write([(b"key", b"3")]) == 3  # the marker has an offset, too
    assert members.values() == [b"value", b"2", b"3"]


def test_a_fenced_producer_writes_nothing(members: Members) -> None:
    old = members.fenced()
    old.write([(b"key", b"old")])
    new = members.fenced()
    with pytest.raises(WriterLost) as raised:
        old.write([(b"key", b"late")])
    assert raised.value.is_fenced
    assert not raised.value.may_be_written
    new.write([(b"key", b"new")])
    assert members.values() == [b"old", b"new"]


def test_the_next_producer_aborts_the_open_transaction(members: Members) -> None:
    old = members.fenced()
    inner = old._fenced_producer
    inner.begin_transaction()
    inner.produce("_schemas", b"open", b"key", 0)
    assert inner.flush(TIMEOUT_S) == 0
    new = members.fenced()
    new.write([(b"key", b"new")])
    assert members.values() == [b"new"]


def test_a_record_that_is_too_large_is_refused_and_the_producer_continues(
    members: Members,
) -> None:
    producer = members.fenced()
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
        producer.write([RECORD, (b"key", bytes(RECORD_BYTES_MAX + 1))])
    producer.write([(b"key", b"small")])
    assert members.values() == [b"small"]


def test_the_limit_of_the_topic_refuses_a_record_in_the_same_way(kafka: Broker) -> None:
    kafka.create_topic(
        "_schemas", config={"cleanup.policy": "compact", "max.message.bytes": 10_000}
    )
    members = Members(kafka.bootstrap_servers)
    producer = members.fenced()
    with pytest.raises(RecordTooLarge):
        producer.write([(b"key", bytes(20_000))])
    producer.write([(b"key", b"small")])
    assert members.values() == [b"small"]


def test_the_leader_is_the_metadata_of_the_committed_offset(members: Members) -> None:
    leader = Leader("http://registry-1:8081", 7)
    producer = members.fenced()
    producer.write([RECORD])
    producer.announce(2, leader, members.consumer.consumer_group_metadata())
    (committed,) = members.consumer.committed([TopicPartition("_schemas", 0)], TIMEOUT_S)
    assert committed.offset == 2
    assert decode_leader(committed.metadata) == leader
    assert json.loads(committed.metadata) == {"url": "http://registry-1:8081", "epoch": 7}


def test_a_fenced_producer_cannot_announce_itself(members: Members) -> None:
    old, new = members.fenced(), members.fenced()
    metadata = members.consumer.consumer_group_metadata()
    new.announce(0, Leader("http://new:8081", 2), metadata)
    with pytest.raises(WriterLost) as raised:
        old.announce(0, Leader("http://old:8081", 1), metadata)
    assert raised.value.is_fenced
    (committed,) = members.consumer.committed([TopicPartition("_schemas", 0)], TIMEOUT_S)
    assert decode_leader(committed.metadata) == Leader("http://new:8081", 2)


def test_a_refused_transaction_leaves_the_producer_usable(kafka: Broker) -> None:
    members = Members(kafka.bootstrap_servers)
    producer = members.fenced()
    with kafka.fail("Produce", "INVALID_RECORD", topic="_schemas", times=1):
        with pytest.raises(WriteRefused):
            producer.write([RECORD])
    producer.write([(b"key", b"next")])
    assert members.values() == [b"next"]


def test_a_commit_without_a_response_may_be_written(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = Members(kafka.bootstrap_servers)
    producer = members.fenced()
    producer.write([RECORD])
    monkeypatch.setattr(transactions, "CALL_TIMEOUT_S", 1.0)
    with kafka.blackhole("EndTxn"):
        with pytest.raises(WriterLost) as raised:
            producer.write([(b"key", b"lost")])
    assert raised.value.may_be_written
    assert not raised.value.is_fenced


def test_a_closed_producer_writes_nothing(members: Members) -> None:
    producer = members.fenced()
    producer.close()
    with pytest.raises(WriterLost) as raised:
        producer.write([RECORD])
    assert not raised.value.may_be_written
