"""The load of librdkafka, as a separate process. It prints one JSON object.

python -m benchmarks.rdkafka produce ADDRESS TOPIC --records N --size BYTES --batch N
python -m benchmarks.rdkafka latency ADDRESS TOPIC --rate N --seconds S --size BYTES
python -m benchmarks.rdkafka fetch   ADDRESS TOPIC --records N
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition


def acknowledged(idempotent: bool) -> dict[str, str | int | bool]:
    """How the producer is acknowledged; an idempotent one has acks=all."""
    return {"enable.idempotence": True} if idempotent else {"acks": 1}


def begin(producer: Producer, topic: str, payload: bytes, idempotent: bool) -> None:
    """Wait until the producer knows the leader and its producer id.

    librdkafka often takes half a second for the producer id with any broker. It requests the id
    only when metadata arrive or when a timer of half a second fires, and the first metadata make it
    connect again.
    """
    producer.list_topics(topic, timeout=30)
    if idempotent:
        producer.produce(topic, payload, partition=0)
        producer.flush(30)


def payload_of(size: int, seed: int | None) -> bytes:
    """The value of all records: random bytes, the same ones for the same seed."""
    return Random(seed).randbytes(size)


def produce(
    address: str,
    topic: str,
    records: int,
    size: int,
    batch: int,
    idempotent: bool,
    in_flight: int | None = None,
    seed: int | None = None,
) -> dict[str, float]:
    """Return the seconds from the first call of produce() to the last response."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            **acknowledged(idempotent),
            "linger.ms": 5,
            "batch.num.messages": batch,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            "delivery.report.only.error": True,
            **({"max.in.flight.requests.per.connection": in_flight} if in_flight else {}),
        }
    )
    payload = payload_of(size, seed)
    begin(producer, topic, payload, idempotent)
    began = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, payload, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    seconds = time.perf_counter() - began
    if left:
        raise SystemExit(f"{left} records without a response")
    return {"records": records, "seconds": seconds}


def latency(
    address: str,
    topic: str,
    rate: int,
    seconds: float,
    size: int,
    idempotent: bool,
    seed: int | None = None,
) -> dict[str, object]:
    """The time from produce() to the delivery report of each record, in microseconds."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, **acknowledged(idempotent)})
    payload = payload_of(size, seed)
    taken: list[int] = []
    errors: list[str] = []
    done = threading.Event()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(str(error))
        elif (value := message.latency()) is not None:
            taken.append(round(value * 1e6))

    def serve() -> None:
        while not done.is_set() or len(producer):
            producer.poll(0.1)

    begin(producer, topic, payload, idempotent)
    poller = threading.Thread(target=serve)
    poller.start()
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        while (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        producer.produce(topic, payload, partition=0, on_delivery=delivered)
    elapsed = time.perf_counter() - began
    done.set()
    poller.join(60)
    if errors or poller.is_alive():
        raise SystemExit(f"{len(errors)} errors: {errors[:1]}")
    return {"microseconds": taken, "rate": len(taken) / elapsed}


def fetch(address: str, topic: str, records: int) -> dict[str, float]:
    """Seconds from the first to the last record of partition 0, and from the assignment on.

    Only the second figure includes records fetched during the delivery of the first records.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 262_144,
            # By default a consumer with 100,000 queued records sends no fetch for a whole second.
            # A faster broker would only make it sleep more often.
            "fetch.queue.backoff.ms": 10,
        }
    )
    assigned = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, size, began = 0, 0, 0.0
    while found < records:
        messages = consumer.consume(min(10_000, records - found), timeout=5)
        if not messages:
            raise SystemExit(f"no further message after {found} records")
        began = began or time.perf_counter()
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            size += len(message)
        found += len(messages)
    ended = time.perf_counter()
    consumer.close()
    return {
        "records": found,
        "bytes": size,
        "seconds": ended - began,
        "assigned_seconds": ended - assigned,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rdkafka")
    parser.add_argument("load", choices=["produce", "latency", "fetch"])
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--idempotent", type=float, default=0, help="1: with idempotence")
    parser.add_argument("--in-flight", type=int, help="requests, at most; else any number")
    parser.add_argument("--seed", type=int, help="of the contents of the records")
    arguments = parser.parse_args()
    idempotent = bool(arguments.idempotent)
    result: object
    if arguments.load == "produce":
        result = produce(
            arguments.address,
            arguments.topic,
            arguments.records,
            arguments.size,
            arguments.batch,
            idempotent,
            arguments.in_flight,
            arguments.seed,
        )
    elif arguments.load == "latency":
        result = latency(
            arguments.address,
            arguments.topic,
            arguments.rate,
            arguments.seconds,
            arguments.size,
            idempotent,
            arguments.seed,
        )
    else:
        result = fetch(arguments.address, arguments.topic, arguments.records)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
