"""Brokers of one cluster on loopback sockets, in one event loop, on one ensemble in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from odradek.broker.broker import BrokerServer
from odradek.broker.cluster_member import ClusterMember, ClusterSettings
from odradek.client.broker_channel import BrokerChannel
from odradek.config.broker import BrokerConfig
from odradek.environment.environment import Environment
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode
from odradek.ids import TopicName
from odradek.metadata.image import MetadataImage
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.codec import Message
from odradek.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.records.record import iter_records
from odradek.result_tasks import wait
from testkit.requests import batch, fetch, produce
from tests.helpers.broker_channels import channel_to, port_of
from tests.helpers.inline_cleaner import InlineCleaner
from tests.helpers.running_clock import RunningClock

CONFIG = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
SETTINGS = ClusterSettings(id_timeout_ms=2_000, shutdown_timeout_ms=5_000)


class ClusterBrokers:
    """The running brokers by id, from 1, and connections to them.

    A stopped broker keeps its log directory, and `start` starts it again.
    """

    def __init__(
        self,
        tmp_path: Path,
        config: dict[str, str] | None = None,
        settings: ClusterSettings = SETTINGS,
        *,
        directories: int = 1,
        session_timeout_ms: int = 2_000,
    ) -> None:
        self.tmp_path = tmp_path
        self.config = {**CONFIG, **(config or {})}
        self.file: dict[str, str] | None = None
        self.settings = settings
        self.directories = directories
        self.ensemble = MemoryEnsemble(
            EnsembleConditions(session_timeout_ms=session_timeout_ms), timers=LoopTimers()
        )
        self.clock = RunningClock()
        self.servers: dict[int, BrokerServer] = {}
        self.stores: dict[int, MemoryStore] = {}
        self._channels: list[BrokerChannel] = []

    async def start(self, *broker_ids: int) -> None:
        """Start brokers at the same time."""
        started = [self._server(each).start() for each in broker_ids]
        await asyncio.gather(*started)

    def _server(self, broker_id: int) -> BrokerServer:
        def open_store() -> MemoryStore:
            self.stores[broker_id] = MemoryStore(self.ensemble)
            return self.stores[broker_id]

        log_dirs = [self.tmp_path / f"{broker_id}{'b' * each}" for each in range(self.directories)]
        properties = {
            "node.id": str(broker_id),
            "log.dirs": ",".join(map(str, log_dirs)),
            **self.config,
        }
        environment = Environment(clock=self.clock)
        self.servers[broker_id] = server = BrokerServer(
            BrokerConfig(properties, self.file),
            environment=environment,
            cluster_store=open_store,
            cluster_settings=self.settings,
            start_cleaner_worker=lambda: InlineCleaner(environment.files, environment.clock),
        )
        return server

    async def stop(self, *broker_ids: int) -> None:
        """Stop brokers, one after the other. Without ids: all of them."""
        for each in broker_ids or list(self.servers):
            await self.servers.pop(each).stop()

    async def restart(self, broker_id: int) -> None:
        await self.stop(broker_id)
        await self.start(broker_id)

    def expire(self, broker_id: int) -> None:
        """End the session of a broker."""
        self.ensemble.expire(self.stores[broker_id].session_id)

    def member(self, broker_id: int) -> ClusterMember:
        cluster = self.servers[broker_id].services.cluster
        assert cluster is not None
        assert isinstance(cluster.membership, ClusterMember)
        return cluster.membership

    @property
    def controller_id(self) -> int:
        """The id of the active controller."""
        (found,) = [each for each in self.servers if self.member(each).is_controller]
        return found

    def image(self, broker_id: int) -> MetadataImage:
        return self.servers[broker_id].services.image()

    def port(self, broker_id: int, listener: str = "CLIENTS") -> int:
        return port_of(self.servers[broker_id], listener)

    def channel(self, broker_id: int, listener: str = "CLIENTS") -> BrokerChannel:
        """Return a new connection to a listener of a broker."""
        channel = channel_to(self.servers[broker_id], listener)
        self._channels.append(channel)
        return channel

    async def call(
        self,
        broker_id: int,
        request: Message,
        response: type[Any],
        *,
        version: int | None = None,
        listener: str = "CLIENTS",
    ) -> Any:
        """Send a request over a new connection and return its response."""
        channel = self.channel(broker_id, listener)
        return await wait(channel.send(request, response, version=version))

    async def create_topic(
        self,
        name: str,
        partitions: int = 3,
        replication_factor: int = 1,
        *,
        at: int = 1,
        assignment: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, and wait until all running brokers know it and lead its partitions.

        Args:
            name, partitions, replication_factor: The topic.
            at: The broker that gets the request.
            assignment: The replicas of each partition, in place of numbers.
            configs: The configs of the topic.
        """
        assigned = [
            CreatableReplicaAssignment(number, list(replicas))
            for number, replicas in enumerate(assignment)
        ]
        numbers = (-1, -1) if assigned else (partitions, replication_factor)
        settings = [CreatableTopicConfig(*each) for each in (configs or {}).items()]
        topic = CreatableTopic(name, *numbers, assigned, settings)
        request = CreateTopicsRequest([topic], 30_000)
        response = await self.call(at, request, CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.NONE, response
        await self.until(
            lambda: all(name in self.image(each).topics_by_name for each in self.servers)
        )
        await self.until(
            lambda: all(self._leads_its_partitions(each, name) for each in self.servers)
        )

    def _leads_its_partitions(self, broker_id: int, topic: str) -> bool:
        """Return whether a broker serves the partitions that it leads in its image.

        The image is newer than the partitions for some time slices.
        """
        find = self.servers[broker_id].services.replica_manager.find
        partitions = self.image(broker_id).topics_by_name[TopicName(topic)].partitions
        led = [find(topic, each.partition) for each in partitions if each.leader == broker_id]
        return all(each is not None and not each.error for each in led)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader in the image of any broker."""
        broker_id = next(iter(self.servers))
        found = self.image(broker_id).partition(topic, partition)
        assert found is not None
        return found.leader

    async def produce(
        self, topic: str, *values: bytes, partition: int = 0, acks: int = -1, at: int | None = None
    ) -> PartitionProduceResponse:
        """Append a batch at the leader, or at a broker."""
        records = batch(*values, timestamp_ms=self.clock.time_ms())
        request = produce(topic, records, partition=partition, acks=acks)
        broker_id = self.leader(topic, partition) if at is None else at
        response = await self.call(broker_id, request, ProduceResponse, version=12)
        found: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return found

    async def fetch(self, topic: str, partition: int = 0, at: int | None = None) -> list[bytes]:
        """Return the values of all records, from the leader or from a broker."""
        request = fetch(topic, partitions=(partition,))
        broker_id = self.leader(topic, partition) if at is None else at
        response = await self.call(broker_id, request, FetchResponse, version=12)
        (found,) = response.responses[0].partitions
        assert found.error_code == ErrorCode.NONE, found
        return _values(bytes(found.records or b""))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. The test's time limit bounds it."""
        while not condition():  # noqa: ASYNC110 - any part of any broker may make it hold
            await asyncio.sleep(0.005)

    def close_channels(self) -> None:
        for channel in self._channels:
            channel.close()


def _values(records: bytes) -> list[bytes]:
    """Return the values of the records in whole batches."""
    values: list[bytes] = []
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        values += [each.value or b"" for each in iter_records(records[:size])]
        records = records[size:]
    return values


@asynccontextmanager
async def cluster_brokers(
    tmp_path: Path, count: int = 3, config: dict[str, str] | None = None, **options: int
) -> AsyncIterator[ClusterBrokers]:
    """Start `count` brokers, and stop them at the end."""
    cluster = ClusterBrokers(tmp_path, config, **options)
    try:
        await cluster.start(*range(1, count + 1))
        yield cluster
    finally:
        cluster.close_channels()
        await cluster.stop()


def run_with_cluster(
    tmp_path: Path,
    test: Callable[[ClusterBrokers], Awaitable[None]],
    *,
    count: int = 3,
    config: dict[str, str] | None = None,
    **options: int,
) -> None:
    """Run a test on the event loop of the brokers. The options are those of `ClusterBrokers`."""

    async def main() -> None:
        async with cluster_brokers(tmp_path, count, config, **options) as cluster:
            await test(cluster)

    asyncio.run(main())
