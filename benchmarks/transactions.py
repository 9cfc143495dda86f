"""Transactions of librdkafka, each with ten records over two partitions. It prints one JSON object.

python -m benchmarks.transactions ADDRESS TOPIC --transactions N --producers N [--ids ID,ID,...]

Each producer has its own transactional id and its own thread. It commits one transaction after
another.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time

from confluent_kafka import KafkaException, Producer

RECORDS = 10
PARTITIONS = 2
SIZE = 200


def committed(producer: Producer, topic: str, count: int) -> None:
    """Commit `count` transactions, one after another. An error ends the measurement."""
    payload = os.urandom(SIZE)
    for _ in range(count):
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce(topic, payload, partition=number % PARTITIONS)
        producer.commit_transaction(60)


def run(
    address: str, topic: str, transactions: int, producers: int, ids: str = ""
) -> dict[str, float]:
    """Return the seconds from the first begin to the last commit of all producers.

    `ids` has the transactional ids, separated by commas. By default they are made of the topic.
    """
    every = []
    names = ids.split(",") if ids else [f"{topic}-{number}" for number in range(producers)]
    for name in names[:producers]:
        config = {"transactional.id": name, "linger.ms": 0}
        producer = Producer({"bootstrap.servers": address, "log_level": 3, **config})
        producer.init_transactions(60)
        committed(producer, topic, 1)  # The coordinator and the leaders are then known.
        every.append(producer)
    errors: list[str] = []

    def work(producer: Producer) -> None:
        try:
            committed(producer, topic, transactions // producers)
        except KafkaException as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=(producer,)) for producer in every]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if errors:
        raise SystemExit(f"{len(errors)} producers ended with an error: {errors[0]}")
    done = transactions // producers * producers
    return {"transactions": done, "seconds": seconds, "client_cpu_s": time.process_time()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions")
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--transactions", type=int, default=2000)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--ids", default="", help="transactional ids, separated by commas")
    arguments = parser.parse_args()
    print(json.dumps(run(**vars(arguments))))


if __name__ == "__main__":
    main()
