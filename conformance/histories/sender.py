"""Sends: each value is sent once, and its result is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from conformance.histories.history import INFO, OK
from conformance.histories.library_log import FAILED_BATCH, LibraryLog
from conformance.histories.settings import DEADLINE_S, PRODUCER_LOG, Recorder, Settings

SENDS_MAX = 6


class Outbox:
    """The sends of one operation; delivery reports fill in offset and status."""

    def __init__(self, producer: Producer, settings: Settings) -> None:
        self.producer = producer
        self.settings = settings
        self.sends: list[list[Any]] = []

    def send(self, key: int, value: int) -> None:
        entry = [key, value, None, INFO]
        self.sends.append(entry)
        topic, partition = self.settings.partition_of(key)
        self.producer.produce(
            topic, b"%d" % value, partition=partition, on_delivery=self._report(entry)
        )
        self.producer.poll(0)

    @property
    def delivered(self) -> bool:
        return all(entry[3] == OK for entry in self.sends)

    @staticmethod
    def _report(entry: list[Any]) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                entry[2], entry[3] = message.offset(), OK

        return report


def plan_sends(random: Random, settings: Settings, values: Any, most: int) -> list[list[int]]:
    """Return random keys with new values. A key often occurs more than once."""
    chosen = random.sample(range(settings.keys), min(2, settings.keys))
    return [[random.choice(chosen), next(values)] for _ in range(random.randint(1, most))]


class PlainSender:
    """Roles `producer` and `plain`."""

    def __init__(self, settings: Settings, record: Recorder, random: Random) -> None:
        self.settings = settings
        self.record = record
        self.random = random
        self.values = settings.values()
        self.idempotent = settings.role == "producer"
        self.library_log = LibraryLog(FAILED_BATCH)

    def open(self) -> None:
        self.producer = Producer(
            {
                **self.settings.common,
                **PRODUCER_LOG,
                "enable.idempotence": self.idempotent,
                "acks": "all" if self.idempotent else self.settings.acks,
                "linger.ms": self.random.choice([0, 2, 5]),
                "message.timeout.ms": int(DEADLINE_S * 800),
            },
            logger=self.library_log.logger,
        )

    def step(self) -> None:
        planned: Sequence[list[int]] = plan_sends(
            self.random, self.settings, self.values, SENDS_MAX
        )
        self.record.begin(
            "send", sends=planned, idempotent=self.idempotent, client=self.settings.role
        )
        outbox = Outbox(self.producer, self.settings)
        try:
            for key, value in planned:
                outbox.send(key, value)
            left = self.producer.flush(DEADLINE_S)
        except KafkaException as error:
            self.record.give_up(INFO, error, **self._result(outbox))
            return
        if left or not outbox.delivered:
            self.record.give_up(INFO, f"{left} without a response", **self._result(outbox))
        self.record.event(OK, **self._result(outbox))

    def _result(self, outbox: Outbox) -> dict[str, Any]:
        """Return the fields of the operation's result."""
        retried = sorted(self.settings.key(*each) for each in self.library_log.take())
        return {"sends": outbox.sends, **({"retried": retried} if retried else {})}

    def close(self) -> None:
        self.producer.flush(DEADLINE_S)
