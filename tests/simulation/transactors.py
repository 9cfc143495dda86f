"""Transactional producers of a simulation, with the first or the second protocol (KIP-890).

Each operation is one transaction of sends, which is committed or aborted. As in Kafka's client,
some errors abort the transaction, and the producer goes on. After others the next incarnation
initializes the transactional id again. That fences the old one and aborts its transaction.

A client with little patience aborts while its produce request may still be in flight. With the
first protocol it then asks for a new epoch, because sequences may be missing (KIP-360).
"""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.records.record import Record, build_batch
from tests.simulation.client import RETRIABLE, Client, Key, Recorder, Retry, World
from tests.simulation.coordinator_link import TRANSACTION, CoordinatorLink
from tests.simulation.scheduler import SECOND

THINK_S_MAX = 5.0
PATIENCE_US = 20 * SECOND
SEND_PATIENCE_S = (1.0, 20.0)
TRANSACTION_TIMEOUT_MS = 15_000
SENDS_MAX = 4
ABORT_RATE = 0.2
AGAIN_RATE = 0.25
"""Share of the transactions that begin at once, while the markers of the last one are written."""
PROTOCOL_1, PROTOCOL_2 = 1, 2
PRODUCE_VERSIONS = {PROTOCOL_1: 11, PROTOCOL_2: 12}
END_VERSIONS = {PROTOCOL_1: 4, PROTOCOL_2: 5}
ABORTABLE = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Errors after which the producer aborts the transaction and goes on."""


class Fatal(Exception):
    """This incarnation of the producer cannot go on."""


class Abortable(Exception):
    """The transaction has to be aborted. The producer can go on."""


class SimulatedTransactor(Client):
    """A transactional producer; see the module."""

    def __init__(self, world: World, name: str, *, protocol: int) -> None:
        super().__init__(world, name)
        self.protocol = protocol
        self.coordinator = CoordinatorLink(self, TRANSACTION, name)
        self._committing = False
        self._is_begun = False
        self._given = -1
        self._restart()

    def _restart(self) -> None:
        self.record = Recorder(self.world)
        self.producer_id = self.epoch = -1
        self._sequences: dict[Key, int] = {}

    async def run(self) -> None:
        while not self.world.draining:
            if self.rng.random() >= AGAIN_RATE:
                await self.think(THINK_S_MAX)
            await self.operation()
        await self.disconnect()

    async def operation(self) -> None:
        """Run one transaction, after the initialization of the transactional id if needed."""
        deadline_us = self.world.scheduler.now_us + PATIENCE_US
        if self.producer_id < 0:
            self.record.begin("open", protocol=self.protocol)
            try:
                await self.until(deadline_us, self._init)
            except (Retry, Fatal) as error:
                self.record.event("info", error=str(error))
                self._restart()
                return
            self.record.event("ok")
        if await self._is_ready():
            await self._transaction(deadline_us)

    async def _is_ready(self) -> bool:
        """Prepare a transaction. Return whether one can begin."""
        return True

    async def _transaction(self, deadline_us: int) -> None:
        """Send to one or two keys, and commit or abort."""
        keys = self.rng.sample(self.world.safe_keys, 2)
        sends: list[list[Any]] = [
            [self.rng.choice(keys).number, self.record.value(), None, "info"]
            for _ in range(self.rng.randint(1, SENDS_MAX))
        ]
        planned = [send[:2] for send in sends]
        self.record.begin("txn", sends=planned, protocol=self.protocol, **self._named())
        self._committing = False
        self._is_begun = self.protocol == PROTOCOL_2
        since = self._log_end()
        commits = self.rng.random() >= ABORT_RATE
        try:
            try:
                await self._perform(keys, sends, deadline_us)
                await self._add_offsets(deadline_us)
            except (Retry, Abortable) as error:
                self.world.count("transactions aborted after an error")
                await self._abort(deadline_us, since)
                self._finish("fail", sends, str(error))
                return
            if commits:
                self._committing = True
                self.record.event("committing", sends=sends, **self._seen())
            await self.until(deadline_us, lambda: self._end(commits, since))
        except (Retry, Abortable, Fatal) as error:
            self.world.count("transactions given up")
            self._finish("info" if self._committing else "fail", sends, str(error))
            self._restart()
            return
        what = "transactions committed" if commits else "transactions aborted"
        self.world.count(f"{what}, protocol {self.protocol}")
        self._finish("ok" if commits else "fail", sends)

    def _named(self) -> dict[str, Any]:
        """Return further fields of the operation."""
        return {}

    def _seen(self) -> dict[str, Any]:
        """Return further fields of the commit."""
        return {}

    def _finish(self, status: str, sends: list[list[Any]], error: str = "") -> None:
        """Record the outcome of a transaction."""
        seen = self._seen()
        self.record.event(status, error=error, sends=sends, protocol=self.protocol, **seen)

    async def _add_offsets(self, deadline_us: int) -> None:
        """Add the positions of the reads to the transaction, if it has any."""

    async def _perform(self, keys: list[Key], sends: list[list[Any]], deadline_us: int) -> None:
        """Send all records. With the first protocol, add their partitions before."""
        by_number, added = {key.number: key for key in keys}, set[Key]()
        patience_s = self.rng.choice(SEND_PATIENCE_S)
        for send in sends:
            key = by_number[send[0]]
            if self.protocol == PROTOCOL_1 and key not in added:
                await self.until(deadline_us, lambda key=key: self._add_partition(key))
                added.add(key)
            sequence = self._sequences.get(key, 0)
            self._sequences[key] = sequence + 1
            send_us = min(deadline_us, self.world.scheduler.now_us + int(patience_s * SECOND))
            try:
                async with asyncio.timeout(patience_s):
                    await self.until(send_us, lambda k=key, s=send, n=sequence: self._send(k, s, n))
            except TimeoutError:
                raise Abortable("a send was not answered in time") from None

    async def _abort(self, deadline_us: int, since: int) -> None:
        """Abort after an error. Sends without a response may still reach the partition."""
        await self.until(deadline_us, lambda: self._end(False, since))
        if self.protocol == PROTOCOL_1:
            identity = self.producer_id, self.epoch
            await self.until(deadline_us, lambda: self._init(*identity))

    # -- requests ----------------------------------------------------------------------------------

    def check_transaction(self, code: int) -> None:
        """Raise Retry, Abortable or Fatal for an error of the coordinator or a partition."""
        if not code:
            return
        self.coordinator.check(code)
        error = ErrorCode(code)
        self.world.count(f"transaction error {error.name}")
        if error in RETRIABLE:
            raise Retry(error.name)
        raise Abortable(error.name) if error in ABORTABLE else Fatal(error.name)

    async def _init(self, producer_id: int = -1, epoch: int = -1) -> None:
        """Initialize the transactional id, or get the next epoch after this one."""
        request = InitProducerIdRequest(self.name, TRANSACTION_TIMEOUT_MS, producer_id, epoch)
        response, _ = await self.coordinator.call(request, InitProducerIdResponse, 4)
        self.check_transaction(response.error_code)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        if self.epoch == 0 and self.producer_id != self._given:
            self._given = self.producer_id
            self.world.producer_id_given(self.producer_id, self.name)
        self._sequences = {}

    async def _add_partition(self, key: Key) -> None:
        topic = AddPartitionsToTxnTopic(key.topic, [key.partition])
        request = AddPartitionsToTxnRequest([], self.name, self.producer_id, self.epoch, [topic])
        response, _ = await self.coordinator.call(request, AddPartitionsToTxnResponse, 3)
        (result,) = response.results_by_topic_v3_and_below
        self.check_transaction(result.results_by_partition[0].partition_error_code)
        self._is_begun = True

    async def _send(self, key: Key, send: list[Any], sequence: int) -> None:
        address, _ = await self.leader(key.topic, key.partition)
        records = build_batch(
            [Record(None, b"%d" % send[1])],
            timestamp_ms=1_700_000_000_000 + self.world.scheduler.now_us // 1_000,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(key.partition, records)
        topic = TopicProduceData(key.topic, partition_data=[data])
        request = ProduceRequest(self.name, -1, 5_000, [topic])
        version = PRODUCE_VERSIONS[self.protocol]
        response, step = await self.timed_call(address, request, ProduceResponse, version)
        part = response.responses[0].partition_responses[0]
        if part.error_code in RETRIABLE:
            self.topics.pop(key.topic, None)
        if part.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return
        if part.error_code == ErrorCode.INVALID_TXN_STATE and self.protocol == PROTOCOL_2:
            # The request itself adds the partition, and a former epoch has another error code.
            self.world.violation(f"{self.name}: a send of a transaction got INVALID_TXN_STATE")
        self.check_transaction(part.error_code)
        send[2] = part.base_offset
        self.world.acknowledged(key, part.base_offset, part.base_offset, -1, step)

    def _log_end(self) -> int:
        """Return the end of the coordinator's log before the transaction."""
        rules = self.world.coordinators
        return 0 if rules is None else rules.log_of(self.name).end

    async def _end(self, commits: bool, since: int) -> None:
        identity = self.producer_id, self.epoch
        request = EndTxnRequest(self.name, *identity, commits)
        version = END_VERSIONS[self.protocol]
        response, step = await self.coordinator.call(request, EndTxnResponse, version)
        self.check_transaction(response.error_code)
        # Without a partition, an abort with the first protocol may find the transaction before.
        if self.world.coordinators is not None and self._is_begun:
            self.world.coordinators.outcome_sent(self.name, identity, commits, since, step)
        if self.protocol == PROTOCOL_2:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences = {}
