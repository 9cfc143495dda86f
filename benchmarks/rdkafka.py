"""The load that librdkafka makes, as a process of its own; prints one JSON object.

python -m benchmarks.rdkafka produce ADDRESS TOPIC --records N --size BYTES --batch N
python -m benchmarks.rdkafka latency ADDRESS TOPIC --rate N --seconds S --size BYTES
python -m benchmarks.rdkafka fetch   ADDRESS TOPIC --records N
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition


def produce(address: str, topic: str, records: int, size: int, batch: int) -> dict[str, float]:
    """Records a second, from the first call of produce() to the last answer."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": 1,
            "linger.ms": 5,
            "batch.num.messages": batch,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            "delivery.report.only.error": True,
        }
    )
    payload = os.urandom(size)
    producer.list_topics(topic, timeout=30)
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
        raise SystemExit(f"{left} records without an answer")
    return {"records": records, "seconds": seconds}


def latency(address: str, topic: str, rate: int, seconds: float, size: int) -> dict[str, object]:
    """The time from produce() to the delivery report of each record, in microseconds."""
    producer = Producer({"bootstrap.servers": address, "acks": 1, "linger.ms": 0})
    payload = os.urandom(size)
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

    producer.list_topics(topic, timeout=30)
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
    """Records a second and their bytes, from the first to the last one of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 262_144,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, size, began = 0, 0, 0.0
    while found < records:
        messages = consumer.consume(10_000, timeout=5)
        if not messages:
            raise SystemExit(f"no more after {found} records")
        began = began or time.perf_counter()
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            size += len(message)
        found += len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    return {"records": found, "bytes": size, "seconds": seconds}


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
    given = parser.parse_args()
    result: object
    if given.load == "produce":
        result = produce(given.address, given.topic, given.records, given.size, given.batch)
    elif given.load == "latency":
        result = latency(given.address, given.topic, given.rate, given.seconds, given.size)
    else:
        result = fetch(given.address, given.topic, given.records)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
