"""All five compressions across the clients: every consumer reads the records of each producer.

A case is one producer with one compression. kcat, confluent-kafka, kafka-python, aiokafka and
Kafka's own Java consumer then read the topic. The case compares the records that each of them
received with the records that were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from conformance.adapters.aio import AiokafkaClient
from conformance.adapters.base import COMPRESSIONS, Rec
from conformance.adapters.confluent import ConfluentClient
from conformance.adapters.java import JavaClient
from conformance.adapters.kafka_python import KafkaPythonClient
from conformance.adapters.kcat import KcatClient
from conformance.harness import Case, Context, main
from testkit.topics import create_topic

RECORDS = [
    Rec(f"value {n} {'abcdefgh' * (n % 40)}".encode(), f"key{n}".encode()) for n in range(400)
]


class Crossing(Protocol):
    """The methods of an adapter that these cases use."""

    name: str

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Rec],
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> list[int]: ...

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int = 0,
        max_bytes: int = 1_048_576,
    ) -> list[Rec]: ...


CLIENTS: tuple[Crossing, ...] = (
    ConfluentClient(),
    KafkaPythonClient(),
    AiokafkaClient(),
    KcatClient(),
    JavaClient(),
)


def _crossing(producer: Crossing, compression: str) -> Callable[[Context], None]:
    def run(context: Context) -> None:
        topic = context.topic(f"cross-{compression}")
        create_topic(context.bootstrap, topic)
        producer.produce(context.bootstrap, topic, RECORDS, compression=compression)
        for consumer in CLIENTS:
            got = consumer.consume(context.bootstrap, topic, len(RECORDS))
            same = [r.content() for r in got] == [r.content() for r in RECORDS]
            assert same, f"{consumer.name} read something else than {producer.name} sent"

    return run


CASES = tuple(
    Case(
        f"{producer.name}, {compression}, read by all",
        _crossing(producer, compression),
        ci=producer.name == "confluent-kafka",
    )
    for producer in CLIENTS
    for compression in COMPRESSIONS
)

if __name__ == "__main__":
    main("cross", CASES)
