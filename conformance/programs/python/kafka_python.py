"""A member of a group, and transactions that abort at random, on kafka-python.

`conformance/program_cases.py` describes the command line and the expected output. With
``--cooperative`` before the verb a member revokes only the partitions that move.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

TIMEOUT_S = 60.0
SESSION_MS = int(os.environ.get("ODRADEK_CONFORMANCE_SESSION_MS", "6000"))


def consume(cooperative: bool, bootstrap: str, topic: str, group: str, instance: str = "") -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    more = {"partition_assignment_strategy": [CooperativeStickyAssignor]} if cooperative else {}
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance or None,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
        **more,
    )
    # Load the metadata before the first JoinGroup. `know_partitions` in
    # conformance/adapters/kafka_python.py gives the reason.
    assert consumer.partitions_for_topic(topic)
    while not stopped:
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                print(record.partition, record.offset, flush=True)
    consumer.close()


def _producer(bootstrap: str, transactional_id: str) -> KafkaProducer:
    made = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    made.init_transactions()
    return made


def _send(producer: KafkaProducer, topic: str, number: int) -> None:
    producer.begin_transaction()
    sent = [producer.send(topic, b"%d-%d" % (number, part), b"k") for part in range(5)]
    for future in sent:
        future.get(TIMEOUT_S)


def transact(
    bootstrap: str, topic: str, name: str, count: str, seed: str, source: str, group: str
) -> None:
    dice = int(seed)
    producer = _producer(bootstrap, name)
    for number in range(int(count)):
        _send(producer, topic, number)
        offset = OffsetAndMetadata(number + 1, "", -1)
        producer.send_offsets_to_transaction({TopicPartition(source, 0): offset}, group)
        dice = (dice * 1103515245 + 12345) % 2147483648
        if dice % 3 == 0:
            producer.abort_transaction()
            print("abort", number)
        else:
            producer.commit_transaction()
            print("commit", number)
    producer.close()


def fence(bootstrap: str, topic: str, name: str) -> None:
    old = _producer(bootstrap, name)
    _send(old, topic, 0)
    young = _producer(bootstrap, name)
    _send(young, topic, 1)
    young.commit_transaction()
    try:
        old.commit_transaction()
    except KafkaError as error:
        print("fenced", type(error).__name__)
    young.close()
    old.close(timeout=1)


VERBS: dict[str, Callable[..., None]] = {"transact": transact, "fence": fence}

if __name__ == "__main__":
    words = sys.argv[1:]
    one_by_one = words[0] == "--cooperative"
    verb, *rest = words[1:] if one_by_one else words
    if verb == "consume":
        consume(one_by_one, *rest)
    else:
        VERBS[verb](*rest)
