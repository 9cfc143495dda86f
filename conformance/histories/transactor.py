"""Transactions: polls and sends in random order, then a commit with offsets, or an abort."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from confluent_kafka import KafkaException, Producer

from conformance.histories.history import FAIL, INFO, OK
from conformance.histories.reader import REASSIGN_SHARE, RESUBSCRIBE_SHARE, Reader
from conformance.histories.sender import Outbox, plan_sends
from conformance.histories.settings import (
    DEADLINE_S,
    TRANSACTION_TIMEOUT_MS,
    Recorder,
    Settings,
    attempt,
    kafka_error,
)

SENDS_MAX = 4
OPEN_DEADLINE_S = 60.0
LATE_S = 5.0
"""Time by which a call of the library may exceed its time limit."""
# Clients with the short delivery timeout abort while a produce request may still be in flight.
PATIENCE_MS = (1_000, TRANSACTION_TIMEOUT_MS)
# The stages at which a client aborts a transaction.
IN_FLIGHT, DELIVERED, WITH_OFFSETS = "in flight", "delivered", "with its offsets"


class Abandoned(Exception):
    """The client chose to abort this transaction."""


class Transactor:
    """Role `txn`. An abort moves the consumer back to the positions before the transaction."""

    def __init__(self, settings: Settings, record: Recorder, random: Random) -> None:
        self.settings = settings
        self.record = record
        self.random = random
        self.values = settings.values()
        self.committing = False
        self.abort_stage = ""

    def open(self) -> None:
        self.record.begin("open")
        self.reader = Reader(self.settings, self.random)
        self.producer = Producer(
            {
                **self.settings.common,
                "transactional.id": self.settings.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": self.random.choice(PATIENCE_MS),
                "linger.ms": self.random.choice([0, 2, 5]),
            }
        )
        try:
            attempt(self.producer.init_transactions, OPEN_DEADLINE_S)
        except KafkaException as error:
            self.record.give_up(INFO, error)
        self.record.event(OK)
        self._choose()

    def step(self) -> None:
        subscribed = self.settings.mode == "subscribe"
        if self.random.random() < (RESUBSCRIBE_SHARE if subscribed else REASSIGN_SHARE):
            self._choose()
        self._transaction()

    def close(self) -> None:
        self.reader.consumer.close()

    def _choose(self) -> None:
        if self.settings.mode == "subscribe":
            self.record.begin("subscribe")
            self.record.event(OK, topics=self.reader.subscribe())
            return
        keys = self.random.sample(range(self.settings.keys), self.random.randint(1, 3))
        self.record.begin("assign")
        try:
            offsets = self.reader.committed(keys)
            self.reader.assign(offsets)
        except KafkaException as error:
            self.record.give_up(INFO, error)
            return
        self.record.event(OK, sought=offsets)

    def _transaction(self) -> None:
        planned = plan_sends(self.random, self.settings, self.values, SENDS_MAX)
        planned = [] if self.random.random() < 0.15 else planned
        polls = self.random.choice([0, 1, 1, 2])
        steps: list[Any] = [*planned, *[None] * polls]
        self.random.shuffle(steps)
        sends = [each for each in steps if each is not None]
        self.record.begin("txn", sends=sends, group=self.settings.group)
        self.reader.begin()
        self.committing = False
        self.abort_stage = ""
        if self.random.random() < self.settings.abort_share:
            self.abort_stage = self.random.choice([IN_FLIGHT, DELIVERED, WITH_OFFSETS])
        outbox = Outbox(self.producer, self.settings)
        try:
            self.producer.begin_transaction()
            self._perform(steps, outbox)
            self._commit(outbox)
        except Abandoned as reason:
            self._abort(outbox, str(reason))
        except KafkaException as error:
            self._failed(outbox, error)

    def _perform(self, steps: list[Any], outbox: Outbox) -> None:
        for step in steps:
            if step is None:
                self.reader.poll()
            else:
                outbox.send(*step)
        if self.reader.taken:
            raise Abandoned("a rebalance")
        if self.abort_stage == IN_FLIGHT:
            raise Abandoned("by choice")

    def _commit(self, outbox: Outbox) -> None:
        positions = self.reader.positions()
        if positions and self.abort_stage != DELIVERED:
            offsets = self.reader.as_partitions(positions)
            metadata = self.reader.consumer.consumer_group_metadata()
            with self._bounded(outbox):
                attempt(
                    lambda left: self.producer.send_offsets_to_transaction(offsets, metadata, left)
                )
        self.producer.flush(DEADLINE_S)
        if self.abort_stage:
            raise Abandoned("by choice")
        self.committing = True
        self.record.event("committing", **self._seen(outbox), positions=positions)
        try:
            attempt(self.producer.commit_transaction)
        except KafkaException as error:
            if kafka_error(error).txn_requires_abort():
                raise
            self.record.give_up(INFO, error, **self._seen(outbox))
        self.record.event(OK, **self._seen(outbox), positions=positions)

    @contextmanager
    def _bounded(self, outbox: Outbox) -> Iterator[None]:
        """End the process if the library does not return in time (docs/histories.md)."""

        def give_up() -> None:
            self.record.give_up(FAIL, "the library has not returned", **self._seen(outbox))

        timer = threading.Timer(DEADLINE_S + LATE_S, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _failed(self, outbox: Outbox, error: KafkaException) -> None:
        if kafka_error(error).fatal():
            self.record.give_up(self._unknown, error, **self._seen(outbox))
        self._abort(outbox, str(error))

    def _abort(self, outbox: Outbox, reason: str) -> None:
        try:
            attempt(self.producer.abort_transaction)
        except KafkaException as error:
            self.record.give_up(self._unknown, error, **self._seen(outbox))
        try:
            sought = self.reader.rewind()
        except KafkaException as error:
            self.record.give_up(FAIL, error, **self._seen(outbox))
            return
        self.record.event(FAIL, error=reason, **self._seen(outbox), sought=sought)

    @property
    def _unknown(self) -> str:
        """Return the status after a library error: FAIL before the commit request, else INFO."""
        return INFO if self.committing else FAIL

    def _seen(self, outbox: Outbox) -> dict[str, Any]:
        return {**self.reader.seen(), "sends": outbox.sends}
