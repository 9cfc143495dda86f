"""Polls: the records read, and every cause that moves a consumer's position."""

from __future__ import annotations

from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from conformance.histories.history import FAIL, INFO, OK
from conformance.histories.library_log import LibraryLog
from conformance.histories.settings import (
    CONSUMER_LOG,
    Recorder,
    Settings,
    attempt,
    number_of,
)

POLL_S = 0.15
RECORDS_PER_POLL_MAX = 50
REASSIGN_SHARE = 1 / 12
RESUBSCRIBE_SHARE = 1 / 60
SESSION_TIMEOUT_MS = 6_000
OFFSET_INVALID = -1001


class Reader:
    """A read_committed consumer.

    `reads`, `moved`, `taken` and `requeried` belong to the current operation, which `begin` starts.
    `taken` maps each key that a rebalance moved after a read to the number of reads before it.
    """

    def __init__(self, settings: Settings, random: Random) -> None:
        self.settings = settings
        self.random = random
        self.reads: list[list[int]] = []
        self.moved: set[int] = set()
        self.next: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.requeried: set[int] = set()
        self.library_log = LibraryLog()
        self.consumer = Consumer(_consumer_config(settings), logger=self.library_log.logger)

    def begin(self) -> None:
        self.reads, self.moved, self.taken, self.requeried = [], set(), {}, set()

    def subscribe(self) -> list[str]:
        """Subscribe to all topics, or sometimes to one topic. Return the topics."""
        topics = self.settings.topics
        if self.random.random() < 0.3:
            topics = [self.random.choice(topics)]
        moved = {"on_assign": self._on_move, "on_revoke": self._on_move, "on_lost": self._on_move}
        self.consumer.subscribe(topics, **moved)
        return topics

    def assign(self, offsets: dict[int, int]) -> None:
        """Assign only these keys, starting at these offsets."""
        self.next = dict(offsets)
        self.consumer.assign(
            [
                TopicPartition(*self.settings.partition_of(key), offset)
                for key, offset in offsets.items()
            ]
        )

    def committed(self, keys: list[int]) -> dict[int, int]:
        """Return the group's committed offsets, or 0 for a key without a committed offset."""
        asked = [TopicPartition(*self.settings.partition_of(key)) for key in keys]
        found = attempt(lambda left: self.consumer.committed(asked, timeout=left))
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        offsets = [0 if each.offset == OFFSET_INVALID else each.offset for each in found]
        return dict(zip(keys, offsets, strict=True))

    def poll(self) -> None:
        """Poll once with a wait, then read all records that are available without a wait."""
        wait = POLL_S
        for _ in range(RECORDS_PER_POLL_MAX):
            message = self.consumer.poll(wait)
            if message is None:
                return
            error = message.error()
            if error is not None:
                if error.fatal():
                    raise KafkaException(error)
                return
            key = self.settings.key(message.topic(), message.partition())
            self.reads.append([key, message.offset(), number_of(message.value().decode())])
            self.next[key] = message.offset() + 1
            wait = 0

    def seen(self) -> dict[str, Any]:
        """Return the fields of the current operation's event."""
        self.requeried |= {self.settings.key(*each) for each in self.library_log.take()}
        seen = {"reads": self.reads, "moved": sorted(self.moved)}
        return {**seen, "requeried": sorted(self.requeried)} if self.requeried else seen

    def positions(self) -> dict[int, int]:
        """Return the next offset of each key that was read."""
        return {key: offset + 1 for key, offset, _ in self.reads}

    def as_partitions(self, positions: dict[int, int]) -> list[TopicPartition]:
        return [
            TopicPartition(*self.settings.partition_of(k), offset)
            for k, offset in positions.items()
        ]

    def rewind(self) -> dict[int, int]:
        """Seek back to the first record of each key read since the key was assigned."""
        sought: dict[int, int] = {}
        for index, (key, offset, _) in enumerate(self.reads):
            if index >= self.taken.get(key, 0):
                sought.setdefault(key, offset)
        for each in self.as_partitions(sought):
            self.consumer.seek(each)
        self.next |= sought
        return sought

    def _on_move(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {self.settings.key(each.topic, each.partition) for each in partitions}
        self.moved |= keys
        if self.reads:
            self.taken |= dict.fromkeys(keys, len(self.reads))


def _consumer_config(settings: Settings) -> dict[str, Any]:
    config: dict[str, Any] = {
        **settings.common,
        **CONSUMER_LOG,
        "group.id": settings.group,
        "group.protocol": settings.group_protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 50,
    }
    if settings.group_protocol == "classic":
        config["partition.assignment.strategy"] = settings.assignor
        config["session.timeout.ms"] = SESSION_TIMEOUT_MS
        config["heartbeat.interval.ms"] = 500
    return config


class PlainReader:
    """Role `consumer`. It is at-least-once in a group, and reads any offsets with `assign`."""

    def __init__(self, settings: Settings, record: Recorder, random: Random) -> None:
        self.settings = settings
        self.record = record
        self.random = random

    def open(self) -> None:
        self.reader = Reader(self.settings, self.random)
        self._choose()

    def step(self) -> None:
        share = RESUBSCRIBE_SHARE if self._in_group else REASSIGN_SHARE
        if self.random.random() < share:
            self._choose()
        self.record.begin("poll", group=self._group)
        self.reader.begin()
        try:
            self.reader.poll()
        except KafkaException as error:
            self.record.give_up(FAIL, error, **self.reader.seen())
        self.record.event(OK, **self.reader.seen())
        if self._in_group and self.reader.reads:
            self._commit()

    def close(self) -> None:
        self.reader.consumer.close()

    @property
    def _in_group(self) -> bool:
        return self.settings.mode == "subscribe"

    @property
    def _group(self) -> str | None:
        return self.settings.group if self._in_group else None

    def _choose(self) -> None:
        if self._in_group:
            self.record.begin("subscribe")
            self.record.event(OK, topics=self.reader.subscribe())
            return
        keys = self.random.sample(range(self.settings.keys), self.random.randint(1, 3))
        offsets = {
            key: 0 if self.random.random() < 0.2 else self.reader.next.get(key, 0) for key in keys
        }
        self.record.begin("assign")
        self.reader.assign(offsets)
        self.record.event(OK, sought=offsets)

    def _commit(self) -> None:
        positions = self.reader.positions()
        self.record.begin("commit", group=self._group, positions=positions)
        try:
            done = self.reader.consumer.commit(
                offsets=self.reader.as_partitions(positions), asynchronous=False
            )
        except KafkaException as error:
            self.record.event(INFO, error=str(error))
            return
        failed = [str(each.error) for each in done if each.error is not None]
        self.record.event(INFO if failed else OK, error=", ".join(failed))
