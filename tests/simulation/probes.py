"""Probes of a cluster that has recovered: each broker must carry out admin requests and produce.

A partition may have a leader and a full ISR although no broker is the controller, or although a
broker no longer receives the metadata. A probe creates a topic through one broker, appends to it,
deletes it, and waits until the metadata of this broker has no such topic.
"""

from __future__ import annotations

from odradek.errors import ErrorCode
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.records.record import Record, build_batch
from tests.simulation.client import Client, Retry, World

TIMEOUT_MS = 3_000
ALL = -1


class Probe(Client):
    """The probe of one broker; see the module.

    Attributes:
        step: The operation in progress, for the report.
    """

    def __init__(self, world: World, address: tuple[str, int]) -> None:
        super().__init__(world, f"probe of {address[0]}")
        self.bootstrap = [address]
        self._address = address
        self._topic = f"probe-{address[0]}"
        self.step = "create"

    async def run(self, deadline_us: int) -> None:
        """Carry out all operations. Raise Retry if one of them fails until the deadline."""
        operations = {
            "create": self._create,
            "append to": self._produce,
            "delete": self._delete,
            "forget": self._forget,
        }
        for self.step, operation in operations.items():
            await self.until(deadline_us, operation)
        self.world.count("probes")
        await self.disconnect()

    def _expect(self, code: int, *allowed: ErrorCode) -> None:
        """Raise Retry unless the error code is allowed."""
        if code and code not in allowed:
            raise Retry(ErrorCode(code).name)

    async def _create(self) -> None:
        topic = CreatableTopic(self._topic, 1, self.world.replicas_max, [], [])
        request = CreateTopicsRequest([topic], TIMEOUT_MS)
        response = await self.call(self._address, request, CreateTopicsResponse, 7)
        self._expect(response.topics[0].error_code, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _produce(self) -> None:
        address, _ = await self.leader(self._topic, 0)
        now_ms = 1_700_000_000_000 + self.world.scheduler.now_us // 1_000
        records = build_batch([Record(None, b"probe")], timestamp_ms=now_ms)
        topic = TopicProduceData(self._topic, partition_data=[PartitionProduceData(0, records)])
        request = ProduceRequest(None, ALL, TIMEOUT_MS, [topic])
        response = await self.call(address, request, ProduceResponse, 9)
        code = response.responses[0].partition_responses[0].error_code
        if code:
            self.topics.clear()
        self._expect(code)

    async def _delete(self) -> None:
        request = DeleteTopicsRequest([DeleteTopicState(self._topic)], timeout_ms=TIMEOUT_MS)
        response = await self.call(self._address, request, DeleteTopicsResponse, 6)
        code = response.responses[0].error_code
        self._expect(code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _forget(self) -> None:
        await self.refresh(self._topic)
        if self._topic in self.topics:
            raise Retry(f"{self._topic} still exists")


async def probe(world: World, address: tuple[str, int], deadline_us: int) -> str:
    """Probe one broker. Return the problem, or an empty string."""
    client = Probe(world, address)
    try:
        await client.run(deadline_us)
    except Retry as error:
        return f"{address[0]} does not {client.step} a topic: {error}"
    return ""
