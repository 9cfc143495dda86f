"""Copy a topic at least once: `python examples/delivery/at_least_once.py HOST:PORT FROM TO`.

The offsets are committed after the copies have been acknowledged, every hundred records or when
there are no new records. After a failure in between, these records are copied again. Any error ends
the program. When it is started again, it continues at the committed offsets.
"""

from __future__ import annotations

import signal
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

COMMIT_EVERY = 100
running = True


def stop(*_: object) -> None:
    global running
    running = False


def delivered(error: KafkaError | None, _: Message) -> None:
    """Raise on a failed delivery. `flush` passes the exception on."""
    if error is not None:
        raise KafkaException(error)


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
    # With idempotence the producer's own retries write no duplicates.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    consumer.subscribe([source])
    uncommitted = 0
    while running:
        records = consumer.consume(20, timeout=0.2)
        for record in records:
            if record.error():
                raise KafkaException(record.error())
            producer.produce(target, record.value(), record.key(), on_delivery=delivered)
        uncommitted += len(records)
        if producer.flush(30):
            raise TimeoutError("not every copy was acknowledged")
        if uncommitted >= COMMIT_EVERY or (uncommitted and not records):
            consumer.commit(asynchronous=False)
            uncommitted = 0
        if records:
            print(f"copied {len(records)}", flush=True)
    consumer.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    main(*sys.argv[1:])
