"""A member of a group, and transactions that abort at random, on confluent-kafka.

`conformance/program_cases.py` describes the command line and the expected output.
``--cooperative`` and ``--kip-848`` before the verb select the group protocol of a member.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_S = 60.0
JOINING = {
    "--cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "--kip-848": {"group.protocol": "consumer"},
}
SESSION_MS = int(os.environ.get("ODRADEK_CONFORMANCE_SESSION_MS", "6000"))
CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1_000}


def consume(
    how: dict[str, str], bootstrap: str, topic: str, group: str, instance: str = ""
) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 200,
        **({} if "group.protocol" in how else CLASSIC),
        **how,
        **({"group.instance.id": instance} if instance else {}),
    }
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not stopped:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            print(message.partition(), message.offset(), flush=True)
    consumer.close()


def _producer(bootstrap: str, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    made.init_transactions(TIMEOUT_S)
    return made


def _send(producer: Producer, topic: str, number: int) -> None:
    producer.begin_transaction()
    for part in range(5):
        producer.produce(topic, f"{number}-{part}", "k")
    producer.flush(TIMEOUT_S)


def transact(
    bootstrap: str, topic: str, name: str, count: str, seed: str, source: str, group: str
) -> None:
    dice = int(seed)
    producer = _producer(bootstrap, name)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    for number in range(int(count)):
        _send(producer, topic, number)
        offsets = [TopicPartition(source, 0, number + 1)]
        producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), TIMEOUT_S)
        dice = (dice * 1103515245 + 12345) % 2147483648
        if dice % 3 == 0:
            producer.abort_transaction(TIMEOUT_S)
            print("abort", number)
        else:
            producer.commit_transaction(TIMEOUT_S)
            print("commit", number)
    reader.close()


def fence(bootstrap: str, topic: str, name: str) -> None:
    old = _producer(bootstrap, name)
    _send(old, topic, 0)
    young = _producer(bootstrap, name)
    _send(young, topic, 1)
    young.commit_transaction(TIMEOUT_S)
    try:
        old.commit_transaction(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].fatal():
            print("fenced", error.args[0].name())


VERBS: dict[str, Callable[..., None]] = {"transact": transact, "fence": fence}

if __name__ == "__main__":
    words = sys.argv[1:]
    joining = JOINING[words.pop(0)] if words[0] in JOINING else {}
    if words[0] == "consume":
        consume(joining, *words[1:])
    else:
        VERBS[words[0]](*words[1:])
