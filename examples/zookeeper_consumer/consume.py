"""Print the records of a topic, shared with the other members of a group in ZooKeeper.

    python examples/zookeeper_consumer/consume.py HOST:PORT/PATH GROUP TOPIC [SESSION_MS]

HOST:PORT/PATH is the `--zookeeper` of the brokers. Each line has the time, the partition, the
offset, the claim of the partition, and the value. A line `committed` follows each commit. Any error
ends the program. When it is started again, it is a new member of the group.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from contextlib import closing

from odradek.consumers.zookeeper import SESSION_TIMEOUT_MS, ZooKeeperConsumer
from odradek.metadata.store.zookeeper_client import ZooKeeperAddress

COMMIT_EVERY = 20
running = True


def stop(*_: object) -> None:
    global running
    running = False


def main(
    zookeeper: str, group: str, topic: str, session_ms: str | int = SESSION_TIMEOUT_MS
) -> None:
    hosts, slash, path = zookeeper.partition("/")
    address = ZooKeeperAddress(hosts, slash + path)
    consumer = ZooKeeperConsumer(address, group, [topic], session_timeout_ms=int(session_ms))
    uncommitted = 0
    with closing(consumer):
        while running:
            record = consumer.poll(0.2)
            if record is not None:
                claim = consumer.claims[topic, record.partition()]
                value = record.value().decode()
                print(
                    time.monotonic_ns(),
                    record.partition(),
                    record.offset(),
                    claim,
                    value,
                    flush=True,
                )
                uncommitted += 1
            if uncommitted >= COMMIT_EVERY or (uncommitted and record is None):
                consumer.commit()
                print("committed", flush=True)
                uncommitted = 0
        consumer.commit()
        print("committed", flush=True)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    signal.signal(signal.SIGTERM, stop)
    main(*sys.argv[1:])
