"""Copy a topic exactly once: `python examples/delivery/exactly_once.py HOST:PORT FROM TO`.

The copies and the offsets are one transaction: both take effect, or neither does. A consumer of the
target with `isolation.level=read_committed` receives each record once. Any error ends the program.
When it is started again with the same transactional id, it first aborts the open transaction of the
previous run. Then it continues at the committed offsets.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer

running = True


def stop(*_: object) -> None:
    global running
    running = False


def patiently(call: Callable[[float], object], seconds: float = 30) -> None:
    """Repeat the call while the library reports a retriable error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            call(max(0.1, deadline - time.monotonic()))
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def copy(consumer: Consumer, producer: Producer, records: list[Message], target: str) -> None:
    """Copy the records and commit their offsets in one transaction."""
    producer.begin_transaction()
    for record in records:
        producer.produce(target, record.value(), record.key())
    offsets = consumer.position(consumer.assignment())
    group = consumer.consumer_group_metadata()
    patiently(lambda left: producer.send_offsets_to_transaction(offsets, group, left))
    patiently(producer.commit_transaction)


def main(bootstrap: str, source: str, target: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{target}-copier",
            "group.instance.id": "copier-1",  # restarted, it is the same member at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{target}-copier-1",
            # librdkafka 2.16 may lose its coordinator permanently when it looks for new brokers.
            "metadata.recovery.strategy": "none",
        }
    )
    patiently(producer.init_transactions)
    consumer.subscribe([source])
    while running:
        records = consumer.consume(20, timeout=0.2)
        if not records:
            continue
        for record in records:
            if record.error():
                raise KafkaException(record.error())
        copy(consumer, producer, records, target)
        print(f"copied {len(records)}", flush=True)
    consumer.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    main(*sys.argv[1:])
