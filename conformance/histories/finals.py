"""The end of a run: end the faults, end open transactions, and read all records."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from conformance.histories.clients import HistoryFile
from conformance.histories.history import FINAL_PROCESS, OK, READ_COMMITTED, READ_UNCOMMITTED
from conformance.histories.settings import Settings, attempt, number_of

STABLE_S = 180.0
READ_S = 300.0


def finish(
    settings: Settings,
    transactional_ids: list[str],
    history: HistoryFile,
    check: Callable[[], None],
    stable_s: float = STABLE_S,
) -> None:
    """Write the `stuck` events, both final reads, and the `final` event.

    A partition is stuck if a transaction is still open `stable_s` after all transactions were
    ended.

    Args:
        settings: The settings of any client.
        check: Raises if the broker has ended.
    """
    for transactional_id in transactional_ids:
        check()
        _end_transaction(settings, transactional_id)
    admin = AdminClient(settings.common)
    keys = range(settings.keys)
    partitions = {key: TopicPartition(*settings.partition_of(key)) for key in keys}
    check()
    stable, ends = _await_stable(admin, partitions, stable_s)
    for key in keys:
        if stable[key] < ends[key]:
            both = {"last_stable_offset": stable[key], "high_watermark": ends[key]}
            history.event("stuck", key=key, **both)
    whole = True
    for index, isolation in enumerate((READ_COMMITTED, READ_UNCOMMITTED)):
        check()
        goal = stable if isolation == READ_COMMITTED else ends
        whole &= _read_all(settings, partitions, goal, isolation, FINAL_PROCESS + index, history)
    if whole:
        history.event("final")


def _end_transaction(settings: Settings, transactional_id: str) -> None:
    """Abort the open transaction of an id by initializing another producer with the same id."""
    producer = Producer(
        {
            **settings.common,
            "transactional.id": transactional_id,
        }
    )
    attempt(producer.init_transactions, STABLE_S)


def _await_stable(
    admin: AdminClient, partitions: dict[int, TopicPartition], stable_s: float
) -> tuple[dict[int, int], dict[int, int]]:
    """Wait for markers to be written. Return the last stable offsets and the end offsets."""
    deadline = time.monotonic() + stable_s
    while True:
        stable = _offsets(admin, partitions, IsolationLevel.READ_COMMITTED)
        ends = _offsets(admin, partitions, IsolationLevel.READ_UNCOMMITTED)
        if stable == ends or time.monotonic() > deadline:
            return stable, ends
        time.sleep(0.2)


def _offsets(
    admin: AdminClient, partitions: dict[int, TopicPartition], isolation: IsolationLevel
) -> dict[int, int]:
    asked = {each: OffsetSpec.latest() for each in partitions.values()}
    responses = admin.list_offsets(asked, isolation_level=isolation, request_timeout=STABLE_S)
    found = {
        (tp.topic, tp.partition): response.result().offset for tp, response in responses.items()
    }
    return {key: found[each.topic, each.partition] for key, each in partitions.items()}


def _read_all(
    settings: Settings,
    partitions: dict[int, TopicPartition],
    goal: dict[int, int],
    isolation: str,
    process: int,
    history: HistoryFile,
) -> bool:
    """Read all keys as one poll operation. Return whether the end of each key was reached."""
    fields: dict[str, Any] = {"process": process, "op": 0, "f": "poll", "isolation": isolation}
    history.event("invoke", **fields)
    consumer = Consumer(
        {
            **settings.common,
            "group.id": f"{settings.group}-final",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(tp.topic, tp.partition, 0) for tp in partitions.values()])
    left = {key for key, end in goal.items() if end > 0}
    reads: list[list[int]] = []
    deadline = time.monotonic() + READ_S
    while left and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        key = settings.key(message.topic(), message.partition())
        error = message.error()
        if error is None:
            reads.append([key, message.offset(), number_of(message.value().decode())])
        elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= goal[key]:
            left.discard(key)
    consumer.close()
    history.event(OK, **fields, reads=reads)
    return not left
