"""A whole broker on the fakes of the simulator, in a process that watches the operating system.

`main` is run in a process of its own, because an audit hook cannot be removed. It starts a broker,
produces, fetches, compacts, stops, and starts the broker again on the same files. It prints a line
of JSON: the calls that reached the operating system, and the results of the client.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.broker.broker import BrokerServer
from odradek.client.broker_channel import BrokerChannel
from odradek.config.broker import BrokerConfig
from odradek.environment.environment import Environment
from odradek.environment.files import RealFiles
from odradek.environment.randomness import SystemRandomness
from odradek.environment.thread_pool import ThreadExecutors
from odradek.errors import ErrorCode
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.records.record import Record, build_batch, iter_batches, iter_records
from odradek.result_tasks import wait
from tests.helpers.inline_cleaner import InlineCleaner
from tests.simulation.disk import Disk
from tests.simulation.ensemble import SimulatedRandomness
from tests.simulation.event_loop import SimulatedClock, SimulatedLoop
from tests.simulation.executors import SimulatedExecutors, Threads
from tests.simulation.files import SimulatedFiles
from tests.simulation.network import HostNetwork, SimulatedNetwork
from tests.simulation.scheduler import SECOND, Scheduler

SEED = 1
HOST, PORT = "broker-1", 9092
TOPIC = "pages"
KEYS = 5
BATCHES = 20
WATCHED = ("socket.", "subprocess.", "os.", "_thread.", "signal.", "shutil.", "fcntl.", "sqlite3.")
"""Prefixes of the audit events of calls that a broker must not make by itself."""
IMPORTED_FROM = tuple(map(str, (sys.prefix, sys.base_prefix, Path(__file__).parents[2])))

reached: list[str] = []
"""The calls that reached the operating system."""


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: note a call that reaches the operating system. Imports may read their files."""
    if event.startswith(WATCHED) or event == "open":
        path = str(arguments[0]) if arguments else ""
        is_import = event in ("open", "os.listdir") and path.startswith(IMPORTED_FROM)
        if not is_import:
            reached.append(f"{event} {path}")


def no_random_bytes(count: int) -> bytes:
    reached.append("os.urandom")
    return bytes(count)


def note_start(thread: threading.Thread) -> None:
    """Replace `Thread.start`, because Python 3.11 has no audit event for it."""
    reached.append(f"Thread.start {thread.name}")


class Machine:
    """A host whose broker stops and starts again, and a client on another host."""

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        self.scheduler = Scheduler(SEED)
        self.network = SimulatedNetwork(self.scheduler)
        self.disk = Disk(self.scheduler.stream("disk"))
        self.store = MemoryStore()
        self.randomness = SimulatedRandomness(self.scheduler, HOST)
        self.clock = SimulatedClock(self.scheduler)
        self.client_loop = SimulatedLoop(self.scheduler, "client", self.clock)
        self.config = BrokerConfig(
            {
                "node.id": "1",
                "log.dirs": "/data",
                "listeners": f"PLAINTEXT://{HOST}:{PORT}",
                "log.cleaner.backoff.ms": "1000",
                "log.flush.offset.checkpoint.interval.ms": "1000",
                **(config or {}),
            }
        )

    def broker(self) -> tuple[SimulatedLoop, BrokerServer]:
        """Return a new broker on this machine's disk, and its loop."""
        loop = SimulatedLoop(self.scheduler, HOST, self.clock)
        threads = Threads(self.scheduler, loop, self.scheduler.stream("threads"))
        files = SimulatedFiles(self.disk, threads, self.clock, "boot", {}, self._killed)
        files.send_region = self.network.send_region
        environment = Environment(
            clock=self.clock,
            files=files,
            network=HostNetwork(self.network, loop, HOST),
            executors=SimulatedExecutors(threads),
            randomness=self.randomness,
        )
        return loop, BrokerServer(
            self.config,
            environment=environment,
            store=self.store,
            start_cleaner_worker=lambda: InlineCleaner(files, self.clock),
        )

    def _killed(self) -> None:
        raise AssertionError("the broker was not to be killed")

    def channel(self) -> BrokerChannel:
        environment = Environment(
            clock=self.clock,
            network=HostNetwork(self.network, self.client_loop, "client"),
            randomness=self.randomness,
        )
        return BrokerChannel(HOST, PORT, environment)

    def run(self, loop: SimulatedLoop, coroutine: Any, seconds: float = 60) -> Any:
        """Run a coroutine on a loop to its end, while all loops make their steps."""
        task = loop.create_task(coroutine)
        done = self.scheduler.run_until(self.scheduler.now_us + int(seconds * SECOND), task.done)
        assert done, "the coroutine did not end"
        assert not loop.failures, loop.failures
        return task.result()

    def pass_time(self, seconds: float) -> None:
        self.scheduler.run_until(self.scheduler.now_us + int(seconds * SECOND))


async def produce(channel: BrokerChannel, clock: SimulatedClock, number: int) -> None:
    """Produce one batch with each key."""
    records = [
        Record(b"key-%d" % key, b"value %d of key %d" % (number, key), clock.time_ms())
        for key in range(KEYS)
    ]
    data = PartitionProduceData(0, build_batch(records, timestamp_ms=clock.time_ms()))
    request = ProduceRequest(None, -1, 10_000, [TopicProduceData(TOPIC, partition_data=[data])])
    response = await wait(channel.send(request, ProduceResponse, version=9))
    (partition,) = response.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NONE, ErrorCode(partition.error_code).name


async def fetch(channel: BrokerChannel) -> list[list[Any]]:
    """Return offset and value of each record of the partition."""
    found: list[list[Any]] = []
    offset = end = 0
    while True:
        partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(TOPIC, partitions=[partition])
        request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[topic])
        response = await wait(channel.send(request, FetchResponse, version=12))
        (data,) = response.responses[0].partitions
        assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code).name
        end = data.high_watermark
        for batch in iter_batches(data.records or b""):
            for record in iter_records(batch):
                if record.offset >= offset:
                    found.append([record.offset, (record.value or b"").decode()])
                    offset = record.offset + 1
        if offset >= end:
            return found


def scenario() -> dict[str, Any]:
    machine = Machine()
    loop, broker = machine.broker()
    machine.run(loop, broker.start())
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.01",
    }
    machine.run(loop, broker.create_topic(TOPIC, 1, configs))
    observed: dict[str, Any] = {}

    async def make_channel() -> BrokerChannel:
        return machine.channel()

    channel = machine.run(machine.client_loop, make_channel())
    for number in range(BATCHES):
        machine.run(machine.client_loop, produce(channel, machine.clock, number))
        machine.pass_time(0.5)
        if number == 0:
            observed["first"] = machine.run(machine.client_loop, fetch(channel))
    machine.pass_time(30)
    observed["compacted"] = machine.run(machine.client_loop, fetch(channel))
    machine.run(loop, broker.stop())
    loop, broker = machine.broker()
    machine.run(loop, broker.start())
    observed["started again"] = machine.run(machine.client_loop, fetch(channel))
    machine.run(loop, broker.stop())
    observed["steps"] = machine.scheduler.steps
    return observed


def start_watching() -> None:
    """Note all calls from now on that reach the operating system."""
    sys.addaudithook(watch)
    threading.Thread.start = note_start  # type: ignore[method-assign]
    os.urandom = no_random_bytes
    random._urandom = no_random_bytes  # type: ignore[attr-defined]


def main() -> None:
    start_watching()
    observed = scenario()
    threads = [each.name for each in threading.enumerate()]
    calls = list(reached)
    print(json.dumps({"reached": calls, "threads": threads, "noticed": noticed(), **observed}))


def noticed() -> list[str]:
    """Reach the operating system in each way. Return the calls that `watch` has noticed."""
    reached.clear()
    SystemRandomness().uuid()
    ThreadExecutors().start_thread(lambda: None, "thread")
    RealFiles().listdir("/")
    socket.socket().close()
    subprocess.run(["true"], check=True)
    return sorted({each.split()[0] for each in reached})
