"""An admin client of a simulation: it creates, changes and deletes topics, and deletes records.

The topics of the history live for the whole run. The topics "churn-N" come and go under their
names, with new topic ids, and get records of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_records_response import DeleteRecordsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.elect_leaders_response import ElectLeadersResponse
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.records.record import Record, build_batch
from tests.simulation.client import RETRIABLE, Client, Retry, World
from tests.simulation.scheduler import SECOND
from tests.simulation.world_settings import MIN_ISR, NEVER

THINK_S_MAX = 3.0
CHURN_TOPICS = 3
TOPIC_RESOURCE = 2
SET = 0
PREFERRED, UNCLEAN_ELECTION = 0, 1
RECORDS_MAX = 5
RECORD_BYTES_MAX = 600
PATIENCE_US = 20 * SECOND


class SimulatedAdmin(Client):
    """The admin client; see the module."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._operations: tuple[tuple[Callable[[str], Awaitable[None]], int], ...] = (
            (self._churn, 2),
            (self._create_partitions, 1),
            (self._alter_configs, 1),
            (self._delete_records, 3),
            (self._produce, 8),
        )
        if world.replicas_max > 1:
            self._operations += ((self._elect_leader, 2), (self._alter_min_isr, 1))

    async def create_topics(self) -> None:
        """Create the topics of the history."""
        for topic in self.world.topics:
            configs = {
                "segment.ms": str(self.rng.randint(2_000, 8_000)),
                "retention.ms": "-1",
                "index.interval.bytes": "100",
            }
            if "flush.messages" not in topic.configs:
                configs["flush.messages"] = NEVER
                configs["flush.ms"] = str(self.rng.choice((1_000, 5_000, 60_000)))
            configs |= topic.configs
            deadline_us = self.world.scheduler.now_us + PATIENCE_US
            replicas = min(topic.replicas, self.world.replicas_max)
            create = partial(self._create, topic.name, topic.partitions, configs, replicas)
            await self.until(deadline_us, create)
            await self.until(deadline_us, partial(self.refresh, topic.name))

    async def run(self) -> None:
        operations = [each for each, _ in self._operations]
        weights = [weight for _, weight in self._operations]
        while not self.world.draining:
            await self.think(THINK_S_MAX)
            (operation,) = self.rng.choices(operations, weights)
            topic = f"churn-{self.rng.randrange(CHURN_TOPICS)}"
            try:
                await operation(topic)
            except Retry:
                self.world.count("admin operations failed")
        await self.disconnect()

    async def _controller(self, request: Any, response: type[Any], version: int) -> Any:
        return await self.call(self.rng.choice(self.world.bootstrap), request, response, version)

    def _allow(self, what: str, code: int, *allowed: ErrorCode) -> bool:
        """Return whether an operation succeeded. Report an error that it cannot have."""
        error = ErrorCode(code)
        if error is ErrorCode.NONE:
            self.world.count(what)
            return True
        # Not enough brokers are alive for the replicas.
        few = ErrorCode.INVALID_REPLICATION_FACTOR
        usual = (*RETRIABLE, ErrorCode.UNKNOWN_SERVER_ERROR, few)
        if error not in allowed and error not in usual:
            self.world.violation(f"{what} failed with {error.name}")
        raise Retry(error.name)

    async def _create(
        self, topic: str, partitions: int, configs: dict[str, str], replicas: int = 1
    ) -> None:
        entries = [CreatableTopicConfig(name, value) for name, value in configs.items()]
        new = CreatableTopic(topic, partitions, replicas, [], entries)
        request = CreateTopicsRequest([new], 5_000)
        response = await self._controller(request, CreateTopicsResponse, 7)
        code = response.topics[0].error_code
        if code != ErrorCode.TOPIC_ALREADY_EXISTS:
            self._allow("topics created", code)

    async def _churn(self, topic: str) -> None:
        """Delete the topic if it is known, otherwise create it. Sometimes both."""
        await self.refresh(topic)
        if topic in self.topics:
            state = DeleteTopicState(topic)
            request = DeleteTopicsRequest([state], timeout_ms=5_000)
            response = await self._controller(request, DeleteTopicsResponse, 6)
            code = response.responses[0].error_code
            self._allow("topics deleted", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.topics.pop(topic, None)
            if self.rng.random() < 0.3:
                return
        configs = {
            "segment.ms": str(self.rng.choice((1_000, 5_000, 60_000))),
            "retention.ms": self.rng.choice(("-1", "-1", "10000")),
            "file.delete.delay.ms": self.rng.choice(("0", "3000", "60000")),
        }
        configs["flush.messages"] = self.rng.choice(("1", NEVER))
        if self.rng.random() < 0.3:
            configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        replicas = self.rng.randint(1, self.world.replicas_max)
        if replicas > 1:
            configs["min.insync.replicas"] = self.rng.choice(("1", "2"))
        await self._create(topic, self.rng.randint(1, 2), configs, replicas)

    async def _create_partitions(self, topic: str) -> None:
        await self.refresh(topic)
        view = self.topics.get(topic)
        if view is None or len(view.leaders) > 3:
            return
        new = CreatePartitionsTopic(topic, len(view.leaders) + 1, None)
        request = CreatePartitionsRequest([new], 5_000, validate_only=False)
        response = await self._controller(request, CreatePartitionsResponse, 3)
        self._allow(
            "partitions created",
            response.results[0].error_code,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_PARTITIONS,
        )

    async def _alter_configs(self, topic: str) -> None:
        name, value = self.rng.choice(
            (
                ("flush.messages", "1"),
                ("flush.messages", "3"),
                ("segment.ms", "2000"),
                ("segment.ms", "30000"),
                ("flush.ms", "1000"),
                ("compression.type", "gzip"),
                ("message.timestamp.type", "LogAppendTime"),
            )
        )
        await self._alter(topic, name, value)

    async def _alter(self, topic: str, name: str, value: str) -> None:
        config = AlterableConfig(name, SET, value)
        resource = AlterConfigsResource(TOPIC_RESOURCE, topic, [config])
        request = IncrementalAlterConfigsRequest([resource], validate_only=False)
        response = await self._controller(request, IncrementalAlterConfigsResponse, 1)
        code = response.responses[0].error_code
        self._allow("configs altered", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _alter_min_isr(self, topic: str) -> None:
        await self._alter(topic, MIN_ISR, self.rng.choice(("1", "2")))

    async def _elect_leader(self, topic: str) -> None:
        """Elect the preferred leader of any partition, or uncleanly where records may be lost."""
        kind = self.rng.choice((PREFERRED, PREFERRED, UNCLEAN_ELECTION))
        if kind == PREFERRED:
            topic = self.rng.choice((topic, *(each.name for each in self.world.topics)))
        await self.refresh(topic)
        view = self.topics.get(topic)
        if view is None:
            return
        partition = self.rng.choice(list(view.leaders))
        asked = [TopicPartitions(topic, [partition])]
        request = ElectLeadersRequest(kind, asked, timeout_ms=5_000)
        response = await self._controller(request, ElectLeadersResponse, 2)
        code = response.error_code
        if not code:
            code = response.replica_election_results[0].partition_result[0].error_code
        self._allow(
            "leaders elected",
            code,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        )

    async def _delete_records(self, topic: str) -> None:
        """Delete records up to the high watermark, or below some offset."""
        await self.refresh(topic)
        view = self.topics.get(topic)
        if view is None:
            return
        partition = self.rng.choice(list(view.leaders))
        address, _ = await self.leader(topic, partition)
        asked = DeleteRecordsPartition(partition, self.rng.choice((-1, 1, 5, 20)))
        request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [asked])], 5_000)
        response = await self.call(address, request, DeleteRecordsResponse, 2)
        code = response.topics[0].partitions[0].error_code
        self.check(topic, code)
        refused = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.POLICY_VIOLATION)
        self._allow("records deleted", code, *refused)

    async def _produce(self, topic: str) -> None:
        """Append a batch to a partition of a topic that may just be deleted."""
        if topic not in self.topics:
            await self.refresh(topic)
        view = self.topics.get(topic)
        if view is None:
            return
        partition = self.rng.choice(list(view.leaders))
        address, _ = await self.leader(topic, partition)
        records = build_batch(
            [
                Record(b"%d" % self.rng.randrange(10), bytes(self.rng.randrange(RECORD_BYTES_MAX)))
                for _ in range(self.rng.randint(1, RECORDS_MAX))
            ],
            timestamp_ms=1_700_000_000_000 + self.world.scheduler.now_us // 1_000,
        )
        data = PartitionProduceData(partition, records)
        acks = self.rng.choice((1, -1))
        topic_data = TopicProduceData(topic, partition_data=[data])
        request = ProduceRequest(None, acks, 5_000, [topic_data])
        response = await self.call(address, request, ProduceResponse, 9)
        self.check(topic, response.responses[0].partition_responses[0].error_code)
        self.world.count("batches of churn topics")
