"""Producers of a simulation: idempotent ones, and plain ones that may write twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.records.record import Record, build_batch
from tests.simulation.client import Client, Key, Recorder, Retry, World
from tests.simulation.scheduler import SECOND

DELIVERY_TIMEOUT_US = 30 * SECOND
THINK_S_MAX = 4.0
BATCHES_MAX = 5
"""Batches of one partition in flight, as many as the broker remembers for a producer."""
RECORDS_MAX = 3
PRODUCE_VERSIONS = (9, 13)
COMPRESSIONS = ("none", "none", "gzip", "lz4", "zstd")
ALL = -1
LARGE_RATE = 0.01
LARGE_BYTES = (17_000, 50_000)
"""Sizes of the keys of large batches, whose regions the broker sends by `sendfile`."""
ENTRIES_RATE = 0.5
CHURN_TOPICS = 3
FORGOTTEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


@dataclass(slots=True)
class Batch:
    """A batch that is sent until it is acknowledged.

    Attributes:
        sends: The entries of the history: key, value, offset, status.
    """

    key: Key
    sequence: int
    sends: list[list[Any]] = field(default_factory=list)
    done: bool = False
    tries: int = 0


class GaveUp(Exception):
    """The producer cannot go on: its next incarnation has another producer id."""


class SimulatedProducer(Client):
    """A producer. Each operation sends some batches, and ends when all are acknowledged.

    Args:
        idempotent: It has a producer id and sequences. Otherwise it may write twice.
    """

    def __init__(self, world: World, name: str, *, idempotent: bool) -> None:
        super().__init__(world, name)
        self.idempotent = idempotent
        self.version = self.rng.choice(PRODUCE_VERSIONS)
        self.acks = ALL if idempotent else self.rng.choice((ALL, 1, 0))
        self.compression = self.rng.choice(COMPRESSIONS)
        # Entries without a part in the history. Version 13 needs topic ids, which may be old, and
        # with acks=0 an error ends the connection.
        self.adds_entries = self.version < 13 and self.acks and self.rng.random() < ENTRIES_RATE
        self._restart()

    def _restart(self) -> None:
        self.record = Recorder(self.world)
        self.producer_id = self.epoch = -1
        self._sequences: dict[Key, int] = {}

    async def run(self) -> None:
        while not self.world.draining:
            await self.think(THINK_S_MAX)
            await self.operation()
        await self.disconnect()

    async def operation(self) -> None:
        """Send batches to one or two keys."""
        keys = self.rng.sample(self.world.keys, min(2, len(self.world.keys)))
        batches = self._plan(keys)
        sends = [send for batch in batches for send in batch.sends]
        planned = [send[:2] for send in sends]
        self.record.begin("send", sends=planned, idempotent=self.idempotent)
        deadline_us = self.world.scheduler.now_us + DELIVERY_TIMEOUT_US
        try:
            if self.idempotent and self.producer_id < 0:
                await self.until(deadline_us, self._init_producer_id)
            for batch in batches:
                batch.sequence = self._sequences.get(batch.key, 0)
                self._sequences[batch.key] = batch.sequence + len(batch.sends)
            parts = [[batch for batch in batches if batch.key is key] for key in keys]
            tasks = [self.loop.create_task(self._send(part, deadline_us)) for part in parts if part]
            # All end before an error is raised: the next incarnation has another producer id.
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
        except (Retry, GaveUp) as error:
            self.world.count("sends given up")
            self.record.event("info", error=str(error), sends=sends, idempotent=self.idempotent)
            self._restart()
        else:
            self.world.count("sends")
            self.record.event("ok", sends=sends, idempotent=self.idempotent)

    def _plan(self, keys: list[Key]) -> list[Batch]:
        batches = []
        for _ in range(self.rng.randint(1, BATCHES_MAX)):
            key = self.rng.choice(keys)
            count = self.rng.randint(1, RECORDS_MAX)
            sends = [[key.number, self.record.value(), None, "info"] for _ in range(count)]
            batches.append(Batch(key, 0, sends))
        return batches

    async def _init_producer_id(self) -> None:
        address = self.rng.choice(self.world.bootstrap)
        request = InitProducerIdRequest(None, 0)
        response = await self.call(address, request, InitProducerIdResponse, 4)
        if response.error_code:
            raise Retry(ErrorCode(response.error_code).name)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self.world.count("producer ids")
        self.world.producer_id_given(self.producer_id, self.name)

    async def _send(self, batches: list[Batch], deadline_us: int) -> None:
        """Send the batches of one partition in order until all are acknowledged."""
        while waiting := [batch for batch in batches if not batch.done]:
            # A broker accepts any first sequence of a producer. The first batch goes alone, or a
            # second one could pass it after its failure.
            alone = not self.idempotent or waiting[0].sequence == 0
            in_flight = waiting[: 1 if alone else BATCHES_MAX]
            try:
                await self._send_once(in_flight)
            except Retry:
                if self.world.scheduler.now_us > deadline_us:
                    raise
                await self.sleep(self.rng.uniform(0.05, 0.5))

    async def _send_once(self, batches: list[Batch]) -> None:
        """Send batches without waiting in between. Raise Retry if one has to be sent again."""
        key = batches[0].key
        address, _ = await self.leader(key.topic, key.partition)
        calls = [
            self.loop.create_task(
                self.timed_call(address, self._request(batch), ProduceResponse, self.version)
            )
            for batch in batches
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        failed: Exception | None = None
        for batch, outcome in zip(batches, outcomes, strict=True):
            batch.tries += 1
            if isinstance(outcome, Retry):
                failed = failed or outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            elif outcome[0] is None:
                batch.done = True  # acks=0: the result is not known
                self.world.count("batches without acknowledgement")
            else:
                failed = self._take(batch, address, *outcome, failed)
        if failed is not None:
            raise failed

    def _take(
        self,
        batch: Batch,
        address: tuple[str, int],
        response: ProduceResponse,
        step: int,
        failed: Exception | None,
    ) -> Exception | None:
        """Take the response to one batch. Return the first failure of the batches so far.

        A deposed leader that does not know it yet lacks the batches that its successor has. A
        client whose metadata is old may ask it, and Kafka's leader refuses the sequence as well.
        """
        key = batch.key
        (topic,) = (each for each in response.responses if each.name in ("", key.topic))
        (part,) = topic.partition_responses
        try:
            error = self.check(key.topic, part.error_code)
        except Retry as retry:
            return failed or retry
        if error is ErrorCode.NONE:
            self._acknowledged(batch, part.base_offset, step)
            return failed
        if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            for send in batch.sends:
                send[3] = "ok"
            batch.done = True
            return failed
        if error in FORGOTTEN:
            if failed is not None:  # the batch before it has to come first
                return failed
            self.world.count("producers forgotten")
            if self.world.is_deposed(key, address):
                self.world.count("sequences refused by deposed leaders")
            elif not self.world.may_lose(key):
                self.world.violation(
                    f"{self.name}: the broker forgot producer {self.producer_id}: {error.name} for "
                    f"sequence {batch.sequence} of {key.topic}-{key.partition}, try {batch.tries}: "
                    f"{part.error_message}"
                )
            raise GaveUp(error.name)
        self.world.violation(f"{self.name}: a produce request failed with {error.name}")
        raise GaveUp(error.name)

    def _acknowledged(self, batch: Batch, base_offset: int, step: int) -> None:
        """Note the offsets. With acks=1 a change of the leader may lose the records."""
        key = batch.key
        if self.acks == ALL or key.replicas == 1:
            for at, send in enumerate(batch.sends):
                send[2], send[3] = base_offset + at, "ok"
        batch.done = True
        if batch.tries > 1:
            self.world.count("batches sent again")
        last = base_offset + len(batch.sends) - 1
        self.world.acknowledged(key, base_offset, last, self.acks, step)

    def _request(self, batch: Batch) -> ProduceRequest:
        key = batch.key
        large = bytes(self.rng.randint(*LARGE_BYTES)) if self.rng.random() < LARGE_RATE else None
        records = build_batch(
            [Record(large, b"%d" % value) for _, value, _, _ in batch.sends],
            timestamp_ms=1_700_000_000_000 + self.world.scheduler.now_us // 1_000,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=batch.sequence if self.idempotent else -1,
            compression=self.compression,
        )
        data = PartitionProduceData(key.partition, records)
        topic = TopicProduceData(key.topic, partition_data=[data])
        view = self.topics.get(key.topic)
        if self.version >= 13 and view is not None:
            topic = TopicProduceData(topic_id=view.topic_id, partition_data=[data])
        return ProduceRequest(None, self.acks, 5_000, [topic, *self._other_entries()])

    def _other_entries(self) -> list[TopicProduceData]:
        """Return entries for topics of the admin client, which may fail.

        The request is then executed in several time slices, if the seed has made these small.
        """
        if not self.adds_entries:
            return []
        now_ms = 1_700_000_000_000 + self.world.scheduler.now_us // 1_000
        records = build_batch([Record(b"0", b"")], timestamp_ms=now_ms)
        return [
            TopicProduceData(
                f"churn-{number}",
                partition_data=[PartitionProduceData(at, records) for at in range(2)],
            )
            for number in range(self.rng.randint(0, CHURN_TOPICS))
        ]
