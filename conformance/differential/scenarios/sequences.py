"""Idempotent producers: sequences, epochs, and InitProducerId."""

from __future__ import annotations

from conformance.differential.batches import batch, fetch, produce
from conformance.differential.registry import scenario
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest


class Producer:
    """An idempotent producer. Its id may be assigned by the broker or chosen by the scenario."""

    def __init__(self, s: Session, hint: str = "t", producer_id: int = -1) -> None:
        self.session = s
        self.topic = s.create(hint)
        self.topic_id = s.topic_id(self.topic)
        if producer_id < 0:
            producer_id = s.producer_id()
        self.producer_id = producer_id

    def send(self, step: str, sequence: int, count: int = 1, *, epoch: int = 0) -> None:
        data = batch(
            count, producer_id=self.producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        request = produce(self.topic, data, acks=-1, topic_id=self.topic_id)
        self.session.ask(step, request)


@scenario(ApiKey.PRODUCE)
def duplicates(s: Session) -> None:
    producer = Producer(s)
    for sequence in (0, 3, 6, 9, 12, 15):
        producer.send(f"at {sequence}", sequence, 3)
    for sequence in (15, 3, 0, 9):
        producer.send(f"again at {sequence}", sequence, 3)
    producer.send("other end", 15, 2)
    producer.send("overlaps", 14, 3)
    producer.send("gap", 19, 1)
    producer.send("next", 18, 1)
    s.ask("what is kept", fetch(producer.topic), 12, on="consumer")


@scenario(ApiKey.PRODUCE)
def epochs(s: Session) -> None:
    producer = Producer(s)
    producer.send("first", 0, 2)
    producer.send("higher epoch, not 0", 2, 1, epoch=1)
    producer.send("higher epoch", 0, 1, epoch=1)
    producer.send("lower epoch", 2, 1, epoch=0)
    producer.send("lower epoch, an old duplicate", 0, 2, epoch=0)
    producer.send("next", 1, 1, epoch=1)
    producer.send("epoch skipped", 0, 1, epoch=7)
    producer.send("duplicate there", 0, 1, epoch=7)


@scenario(ApiKey.PRODUCE)
def unknown_producers(s: Session) -> None:
    producer = Producer(s, producer_id=987_654_321)
    producer.send("starts in the middle", 5, 2)
    producer.send("goes on", 7, 1)
    producer.send("gap", 9, 1)
    other = Producer(s, "other", producer_id=987_654_322)
    other.send("no sequence", -1, 1)
    other.send("negative", -2, 1)
    other.send("no epoch", 0, 1, epoch=-1)
    other.send("epoch 5", 3, 1, epoch=5)


@scenario(ApiKey.PRODUCE)
def wrap(s: Session) -> None:
    producer = Producer(s, producer_id=987_654_323)
    producer.send("before the end", 2**31 - 3, 2)
    producer.send("over the end", 2**31 - 1, 3)
    producer.send("over the end again", 2**31 - 1, 3)
    producer.send("after", 2, 1)
    producer.send("0 again", 0, 1)
    exact = Producer(s, "exact", producer_id=987_654_324)
    exact.send("to the end", 2**31 - 3, 3)
    exact.send("from 0", 0, 2)


@scenario(ApiKey.INIT_PRODUCER_ID)
def ids(s: Session) -> None:
    s.producer_id()
    s.ask("null", InitProducerIdRequest(None, 1000))
    s.ask("another", InitProducerIdRequest(None, 1000))
    s.ask("timeout -1", InitProducerIdRequest(None, -1))
    s.ask("timeout 0", InitProducerIdRequest(None, 0))
    s.ask("empty", InitProducerIdRequest("", 1000))
    if s.version >= 3:
        s.ask("id and epoch", InitProducerIdRequest(None, 1000, 5, 3))
        s.ask("id alone", InitProducerIdRequest(None, 1000, 5, -1))
        s.ask("epoch alone", InitProducerIdRequest(None, 1000, -1, 3))
        s.ask("id -2", InitProducerIdRequest(None, 1000, -2, -1))
