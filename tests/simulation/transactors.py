"""Transactional producers of a simulation, with the first or the second protocol (KIP-890).

Each operation is one transaction of sends, which is committed or aborted. After an error that a
client cannot repair, the next incarnation initializes the transactional id again. That fences the
old one and aborts its transaction.
"""

from __future__ import annotations

from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
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
from tests.simulation.scheduler import SECOND

THINK_S_MAX = 5.0
PATIENCE_US = 20 * SECOND
TRANSACTION_TIMEOUT_MS = 15_000
SENDS_MAX = 4
ABORT_RATE = 0.2
TRANSACTION = 1
"""Type of a coordinator's key."""
PROTOCOL_1, PROTOCOL_2 = 1, 2
PRODUCE_VERSIONS = {PROTOCOL_1: 11, PROTOCOL_2: 12}
END_VERSIONS = {PROTOCOL_1: 4, PROTOCOL_2: 5}


class Fatal(Exception):
    """This incarnation of the producer cannot go on."""


class SimulatedTransactor(Client):
    """A transactional producer; see the module."""

    def __init__(self, world: World, name: str, *, protocol: int) -> None:
        super().__init__(world, name)
        self.protocol = protocol
        self._coordinator: tuple[str, int] | None = None
        self._committing = False
        self._given = -1
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
        await self._transaction(deadline_us)

    async def _transaction(self, deadline_us: int) -> None:
        keys = self.rng.sample(self.world.safe_keys, 2)
        sends: list[list[Any]] = [
            [self.rng.choice(keys).number, self.record.value(), None, "info"]
            for _ in range(self.rng.randint(1, SENDS_MAX))
        ]
        by_number = {key.number: key for key in keys}
        planned = [send[:2] for send in sends]
        self.record.begin("txn", sends=planned, protocol=self.protocol)
        self._committing = False
        commits = self.rng.random() >= ABORT_RATE
        try:
            added = set[Key]()
            for send in sends:
                key = by_number[send[0]]
                if self.protocol == PROTOCOL_1 and key not in added:
                    await self.until(deadline_us, lambda key=key: self._add_partition(key))
                    added.add(key)
                sequence = self._sequences.get(key, 0)
                self._sequences[key] = sequence + 1
                await self.until(
                    deadline_us,
                    lambda key=key, send=send, sequence=sequence: self._send(key, send, sequence),
                )
            if commits:
                self._committing = True
                self.record.event("committing", sends=sends)
            await self.until(deadline_us, lambda: self._end(commits))
        except (Retry, Fatal) as error:
            self.world.count("transactions given up")
            status = "info" if self._committing else "fail"
            self.record.event(status, error=str(error), sends=sends, protocol=self.protocol)
            self._restart()
            return
        what = "transactions committed" if commits else "transactions aborted"
        self.world.count(f"{what}, protocol {self.protocol}")
        self.record.event("ok" if commits else "fail", sends=sends, protocol=self.protocol)

    # -- requests ----------------------------------------------------------------------------------

    def _check(self, code: int) -> None:
        """Raise Retry or Fatal for an error of the coordinator or a partition."""
        if not code:
            return
        error = ErrorCode(code)
        self.world.count(f"transaction error {error.name}")
        if error in RETRIABLE:
            if error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                self._coordinator = None
            raise Retry(error.name)
        raise Fatal(error.name)

    async def _to_coordinator(self, request: Any, response: type[Any], version: int) -> Any:
        if self._coordinator is None:
            find = FindCoordinatorRequest("", TRANSACTION, [self.name])
            address = self.rng.choice(self.world.bootstrap)
            found = await self.call(address, find, FindCoordinatorResponse, 4)
            (coordinator,) = found.coordinators
            self._check(coordinator.error_code)
            self._coordinator = (coordinator.host, coordinator.port)
        try:
            return await self.call(self._coordinator, request, response, version)
        except Retry:
            self._coordinator = None
            raise

    async def _init(self) -> None:
        request = InitProducerIdRequest(self.name, TRANSACTION_TIMEOUT_MS)
        response = await self._to_coordinator(request, InitProducerIdResponse, 4)
        self._check(response.error_code)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        if self.epoch == 0 and self.producer_id != self._given:
            self._given = self.producer_id
            self.world.producer_id_given(self.producer_id, self.name)
        self._sequences = {}

    async def _add_partition(self, key: Key) -> None:
        topic = AddPartitionsToTxnTopic(key.topic, [key.partition])
        request = AddPartitionsToTxnRequest([], self.name, self.producer_id, self.epoch, [topic])
        response = await self._to_coordinator(request, AddPartitionsToTxnResponse, 3)
        (result,) = response.results_by_topic_v3_and_below
        self._check(result.results_by_partition[0].partition_error_code)

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
        response = await self.call(address, request, ProduceResponse, version)
        part = response.responses[0].partition_responses[0]
        if part.error_code in RETRIABLE:
            self.topics.pop(key.topic, None)
        self._check(part.error_code)
        send[2] = part.base_offset
        self.world.acknowledged(key, part.base_offset, part.base_offset, -1)

    async def _end(self, commits: bool) -> None:
        request = EndTxnRequest(self.name, self.producer_id, self.epoch, commits)
        response = await self._to_coordinator(request, EndTxnResponse, END_VERSIONS[self.protocol])
        self._check(response.error_code)
        if self.protocol == PROTOCOL_2:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences = {}
