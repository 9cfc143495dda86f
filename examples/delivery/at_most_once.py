"""Copy a topic at most once: `python examples/delivery/at_most_once.py HOST:PORT FROM TO`.

The offsets are committed before the records are copied, and a send is never repeated. After a
failure in between, these records are never copied. Any error ends the program. When it is started
again, it continues at the committed offsets.
"""

from __future__ import annotations

import signal
import sys

from confluent_kafka import Consumer, KafkaException, Producer

running = True


def stop(*_: object) -> None:
    global running
    running = False


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
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "retries": 0})
    consumer.subscribe([source])
    while running:
        records = consumer.consume(20, timeout=0.2)
        if not records:
            continue
        for record in records:
            if record.error():
                raise KafkaException(record.error())
        consumer.commit(asynchronous=False)
        for record in records:
            producer.produce(target, record.value(), record.key())
        producer.flush()
        print(f"copied {len(records)}", flush=True)
    consumer.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    main(*sys.argv[1:])
