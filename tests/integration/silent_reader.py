"""A consumer process that reads until it is killed."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer

if __name__ == "__main__":
    consumer = Consumer(
        {
            "bootstrap.servers": sys.argv[-1],
            "group.id": "g",
            "group.protocol": "consumer",
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    while True:
        consumer.poll(1.0)
