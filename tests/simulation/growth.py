"""The work for a record by the number of brokers, in a simulated cluster without faults.

Each broker leads as many partitions as the others and gets the same load, so eight brokers get
eight times the records of one. The replication factor is min(3, brokers). A run counts the messages
and the bytes between hosts, which are the same in each run of a seed, and the CPU time of the event
loops of all brokers.

The network, the disk and the metadata store are in memory, so their calls cost no system time. The
differences between numbers of brokers are therefore those of Odradek's own code.

    python -m tests.simulation.growth --brokers 3
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.records.record import Record, build_batch
from tests.simulation import network as simulated_network
from tests.simulation.client import METADATA_VERSION, Client, Retry
from tests.simulation.ensemble import SimulatedEnsemble
from tests.simulation.event_loop import START_TIME_MS, SimulatedClock, SimulatedLoop
from tests.simulation.graveyard import Graveyard
from tests.simulation.machine import PORT, Machine
from tests.simulation.network import REQUEST_HEAD_BYTES, End, SimulatedNetwork
from tests.simulation.planting import Patches
from tests.simulation.scheduler import MILLISECOND, SECOND, Scheduler
from tests.simulation.world_settings import NEVER, REPLICAS_MAX, cluster_config

TOPIC = "growth"
PARTITIONS_EACH = 12
"""Partitions that each broker leads."""
BATCHES = 20
"""Batches for each partition."""
BATCH_RECORDS, RECORD_BYTES = 50, 200
INTERVAL_S = 0.1
"""Time between two batches of one partition."""
SETTLED_S = 5.0
"""Time without load before the messages are counted."""
DEADLINE_S = 120.0
TIMEOUT_MS = 10_000
ALL = -1


@dataclass(slots=True)
class Growth:
    """The work of one run. All of it is of the time of the load.

    Attributes:
        requests: Requests of clients, by API.
        broker_requests: Requests between brokers, by API.
        broker_bytes: Bytes between brokers, requests and responses.
        cpu_ns: CPU time of the event loops of all brokers.
    """

    brokers: int
    replicas: int
    records: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    broker_requests: Counter[str] = field(default_factory=Counter)
    broker_bytes: int = 0
    cpu_ns: int = 0

    def values(self) -> dict[str, Any]:
        """Return the values for a record. A request and its response are two messages."""
        return {
            "brokers": self.brokers,
            "replicas": self.replicas,
            "records": self.records,
            "client_messages": 2 * self.requests.total(),
            "broker_messages": 2 * self.broker_requests.total(),
            "broker_requests": dict(sorted(self.broker_requests.items())),
            "broker_bytes": self.broker_bytes,
            "cpu_s": self.cpu_ns / 1e9,
        }


class RequestHeads:
    """The APIs of the requests in the bytes of one direction."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = 0

    def found(self, data: bytes) -> list[str]:
        """Return the APIs of the requests whose head ends in these further bytes."""
        names, position = [], 0
        while position < len(data):
            step = min(self._left or REQUEST_HEAD_BYTES - len(self._head), len(data) - position)
            if self._left:
                self._left -= step
            else:
                self._head += data[position : position + step]
            position += step
            if len(self._head) == REQUEST_HEAD_BYTES:
                self._left = int.from_bytes(self._head[:4], "big") - 2
                names.append(ApiKey(int.from_bytes(self._head[4:], "big")).name)
                self._head.clear()
        return names


class GrowthWorld:
    """A cluster without faults, and its load. Use `run` once, and `close` at the end.

    Args:
        batches: Batches for each partition.
        cpu_ns: Returns the CPU time of this thread in nanoseconds.
    """

    draining = False
    tempo = 1.0

    def __init__(
        self,
        brokers: int,
        seed: int,
        batches: int = BATCHES,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.scheduler = Scheduler(seed)
        self.network = SimulatedNetwork(self.scheduler)
        self.network.report = self._fail
        self.client_loop = SimulatedLoop(self.scheduler, "clients", SimulatedClock(self.scheduler))
        self.growth = Growth(brokers, min(REPLICAS_MAX, brokers))
        self._batches = batches
        self._cpu_ns = cpu_ns
        self._failures: list[str] = []
        self.client_loop.failures = self._failures
        self._counts = False
        self._heads: dict[End, RequestHeads] = {}
        self._patches = Patches()
        self._graveyard = Graveyard()
        ensemble = SimulatedEnsemble(self.scheduler)
        ensemble.conditions = ensemble.conditions._replace(
            lag_ms=(0, 0), latency_ms=(0, 0), requests_lost_per_mille=0, responses_lost_per_mille=0
        )
        self.machines = [
            Machine(self.scheduler, self.network, self._graveyard, number, self._config(),
                    lambda _: None, lambda *_: None, ensemble)
            for number in range(1, brokers + 1)
        ]  # fmt: skip
        self.bootstrap = [(machine.host, PORT) for machine in self.machines]

    def _config(self) -> dict[str, str]:
        """Return the configs of `odradek cluster up`, with the intervals of the product."""
        return {
            **cluster_config(self.growth.replicas),
            "log.flush.interval.messages": NEVER,
            "broker.session.timeout.ms": "9000",
            "replica.lag.time.max.ms": "30000",
            "request.timeout.ms": "30000",
            "leader.imbalance.check.interval.seconds": "300",
            "log.retention.check.interval.ms": "300000",
            "log.flush.offset.checkpoint.interval.ms": "60000",
            "log.cleaner.backoff.ms": "15000",
        }

    # -- interface of clients ----------------------------------------------------------------------

    def request_ended(self, began_us: int, failure: str) -> None:
        """Do nothing. A failed request is tried again, and counts as another one."""

    def count(self, what: str, number: int = 1) -> None:
        """Do nothing. Only messages and CPU time are counted."""

    # -- measuring ---------------------------------------------------------------------------------

    def _fail(self, what: str) -> None:
        self._failures.append(what)

    def _measure(self) -> None:
        """Count the bytes that arrive, and the CPU time of each step of a broker's loop."""
        arrived, step, growth = End.arrived, SimulatedLoop._step, self.growth

        def counted(end: End, data: bytes) -> None:
            between_brokers = end.host.startswith("broker-") and end.peer.host.startswith("broker-")
            if self._counts and between_brokers:
                growth.broker_bytes += len(data)
            if not end.is_client:
                names = self._heads.setdefault(end, RequestHeads()).found(data)
                if self._counts:
                    (growth.broker_requests if between_brokers else growth.requests).update(names)
            arrived(end, data)

        def timed(loop: SimulatedLoop) -> None:
            if not self._counts or loop is self.client_loop:
                step(loop)
                return
            began_ns = self._cpu_ns()
            step(loop)
            growth.cpu_ns += self._cpu_ns() - began_ns

        self._patches.replace(End, "arrived", counted)
        self._patches.replace(SimulatedLoop, "_step", timed)
        # A network in which nothing is slow, and each delivery is whole.
        for name in ("SLOW_RATE", "PIECE_RATE", "PARTIAL_SEND_RATE"):
            self._patches.set(simulated_network, name, 0.0)

    # -- the run -----------------------------------------------------------------------------------

    def run(self) -> Growth:
        """Start the cluster, run the load, and return its work.

        Raises:
            AssertionError: The cluster does not start, or a record is not acknowledged.
        """
        collects = gc.isenabled()
        gc.disable()  # collections would make the CPU time depend on earlier runs
        self._measure()
        try:
            for machine in self.machines:
                machine.start()
            admin = _LoadClient(self, "admin")
            self._until_done([self.client_loop.create_task(admin.create())])
            self.scheduler.run_until(self.scheduler.now_us + int(SETTLED_S * SECOND))
            producers = [
                _LoadClient(self, f"producer-{partition}")
                for partition in range(self.growth.brokers * PARTITIONS_EACH)
            ]
            self._until_done([
                self.client_loop.create_task(producer.find_leader(partition))
                for partition, producer in enumerate(producers)
            ])  # fmt: skip
            self._counts = True
            self._until_done([
                self.client_loop.create_task(producer.produce(partition, self._batches))
                for partition, producer in enumerate(producers)
            ])  # fmt: skip
            self._counts = False
        finally:
            if collects:
                gc.enable()
        self.growth.records = len(producers) * self._batches * BATCH_RECORDS
        return self.growth

    def _until_done(self, tasks: list[asyncio.Task[None]]) -> None:
        deadline_us = self.scheduler.now_us + int(DEADLINE_S * SECOND)
        self.scheduler.run_until(
            deadline_us, lambda: bool(self._failures) or all(task.done() for task in tasks)
        )
        assert not self._failures, self._failures
        for task in tasks:
            assert task.done(), "the cluster does not respond in time"
            task.result()

    def close(self) -> None:
        """Drop all objects of the run."""
        self._patches.undo()
        for machine in self.machines:
            machine.kill()
        self._graveyard.bury(self.client_loop)
        graveyard, scheduler = self._graveyard, self.scheduler
        self.__dict__.clear()
        graveyard.close(scheduler)


class _LoadClient(Client):
    """A client that creates the topic, or sends batches to one partition."""

    def __init__(self, world: Any, name: str) -> None:
        super().__init__(world, name)
        self._growth: Growth = world.growth

    async def create(self) -> None:
        """Create the topic, and wait until each partition has all of its replicas in sync."""
        deadline_us = self.world.scheduler.now_us + int(DEADLINE_S * SECOND)
        await self.until(deadline_us, self._create)
        await self.until(deadline_us, self._in_sync)

    async def _create(self) -> None:
        partitions = self._growth.brokers * PARTITIONS_EACH
        topic = CreatableTopic(TOPIC, partitions, self._growth.replicas, [], [])
        request = CreateTopicsRequest([topic], TIMEOUT_MS)
        response = await self.call(self.bootstrap[0], request, CreateTopicsResponse, 7)
        if response.topics[0].error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Retry(ErrorCode(response.topics[0].error_code).name)

    async def _in_sync(self) -> None:
        request = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
        response = await self.call(self.bootstrap[0], request, MetadataResponse, METADATA_VERSION)
        partitions = response.topics[0].partitions
        if len(response.brokers) < self._growth.brokers or not partitions:
            raise Retry("a broker is not registered")
        if any(len(each.isr_nodes) < self._growth.replicas for each in partitions):
            raise Retry("a replica is not in sync")

    async def find_leader(self, partition: int) -> None:
        """Fetch the metadata and connect, before the messages are counted."""
        address, _ = await self.leader(TOPIC, partition)
        request = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
        await self.call(address, request, MetadataResponse, METADATA_VERSION)

    async def produce(self, partition: int, batches: int) -> None:
        """Send one batch in each interval. Partitions begin at different times."""
        values = [Record(None, bytes(RECORD_BYTES))] * BATCH_RECORDS
        await self.sleep(INTERVAL_S * (partition % PARTITIONS_EACH) / PARTITIONS_EACH)
        for _ in range(batches):
            began_us = self.world.scheduler.now_us
            records = build_batch(values, timestamp_ms=START_TIME_MS + began_us // MILLISECOND)
            data = TopicProduceData(
                TOPIC, partition_data=[PartitionProduceData(partition, records)]
            )
            address, _ = await self.leader(TOPIC, partition)
            request = ProduceRequest(None, ALL, TIMEOUT_MS, [data])
            response = await self.call(address, request, ProduceResponse, 9)
            code = ErrorCode(response.responses[0].partition_responses[0].error_code)
            assert code is ErrorCode.NONE, f"{TOPIC}-{partition}: {code.name}"
            took_s = (self.world.scheduler.now_us - began_us) / SECOND
            await self.sleep(max(INTERVAL_S - took_s, 0.0))


def measured(brokers: int, seed: int, batches: int = BATCHES) -> dict[str, Any]:
    """Return the values of one run, for a record."""
    world = GrowthWorld(brokers, seed, batches)
    try:
        return world.run().values()
    finally:
        world.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batches", type=int, default=BATCHES)
    options = parser.parse_args()
    print(json.dumps(measured(options.brokers, options.seed, options.batches)))


if __name__ == "__main__":
    main()
