"""A cluster of three brokers after a SIGKILL, during a drain, and when a replica returns.

A `Sampler` sends a small record with acks=all to each of up to 100 sampled partitions every
`SAMPLE_EVERY_S` seconds, by librdkafka, and keeps the time of each response. A `DirectSampler` does
so by single requests.

- After a SIGKILL: the time from the signal to the first response to a record that was sent after
  it, for each sampled partition. A partition that another broker leads waits as well, because its
  ISR still contains the killed broker.
- During a drain: the largest time between two responses of a sampled partition.
- When a replica returns: the bytes that it lacks by the time until it is in sync everywhere, and
  the latencies at 2,000 records/s before and during that time.

`benchmarks.evidence.clusters` runs them and renders their tables.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.cluster_rows import (
    BROKERS,
    IDLE_METRICS,
    LATENCY_RATE,
    admin,
    idle_cpu,
    spread,
    topic_of,
)
from benchmarks.evidence.paired import Row
from benchmarks.loads import MILLION, Driven
from benchmarks.many_partitions import PARTITIONS, TOPICS, fill, topic
from benchmarks.processes import memory_bytes
from benchmarks.tables import MIB
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from testkit.peer.artifacts import ROOT
from testkit.peer.cluster import ClusterProcesses
from testkit.peer.server import awaited
from testkit.requests import batch
from testkit.wire import ConnectionClosed, WireClient

SESSION_MS = 6_000
SETTINGS = {
    "odradek": {
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "broker.session.timeout.ms": str(SESSION_MS),
    },
    "kafka": {"broker.session.timeout.ms": str(SESSION_MS)},
}
SAMPLED = 100
SAMPLE_EVERY_S = 0.05
DIRECT_TIMEOUT_MS = 200
START_SAMPLE_EVERY_S = 0.5
POLL_S_MIN = 0.001
DIRECT_EVERY_S = 0.02
RESTING_S = 2.0
DEADLINE_S = 300.0
DRAIN_S = 3.0
LOAD_S = 10.0
VALUE = bytes(200)
PREFERRED = 0
"""The election type of ElectLeaders for the first replica of each partition."""
CATCH_UP_PARTITIONS = 12
CATCH_UP_RECORD_BYTES = 1024
CATCH_UP_RECORDS = MILLION
PRODUCER = {
    "acks": "all",
    "linger.ms": 0,
    "log_level": 0,
    # A client that finds new leaders soon, so that the time is the brokers'.
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "message.timeout.ms": 120_000,
}
Sampled = tuple[str, int]


class Sampler:
    """Records to sampled partitions in a thread of its own, with the times of the responses.

    Attributes:
        responses: For each partition (sent, received) of each acknowledged record, in monotonic
            seconds, in the order of the responses.
        errors: The errors of records that were not acknowledged.
    """

    def __init__(
        self, cluster: Driven, partitions: list[Sampled], every_s: float = SAMPLE_EVERY_S
    ) -> None:
        self._every_s = every_s
        self.responses: dict[Sampled, list[tuple[float, float]]] = {each: [] for each in partitions}
        self.errors: list[str] = []
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, **PRODUCER})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            for each in self.responses:
                self._send(each)
            due += self._every_s
            while (left := due - time.monotonic()) > 0:
                # librdkafka rounds a timeout below 1 ms down to 0, which would use a processor.
                self._producer.poll(max(left, POLL_S_MIN))
        self._producer.flush(60)

    def _send(self, partition: Sampled) -> None:
        sent = time.monotonic()

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.responses[partition].append((sent, time.monotonic()))
            else:
                self.errors.append(str(error))

        with contextlib.suppress(BufferError):
            topic_name, number = partition
            self._producer.produce(topic_name, VALUE, partition=number, on_delivery=delivered)

    def await_all(self, since: float) -> dict[Sampled, float]:
        """Return for each partition the seconds from `since` to the first later response.

        Only a response to a record that was sent after `since` counts.
        """
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = {
                partition: next((got - since for sent, got in tuple(times) if sent >= since), None)
                for partition, times in self.responses.items()
            }
            known = {key: value for key, value in found.items() if value is not None}
            if len(known) == len(found):
                return known
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(known)} of {len(found)} partitions acknowledge again")
            time.sleep(0.05)

    def latencies_us(self, since: float, until: float) -> list[int]:
        """Return the microseconds of all records that were sent in this time."""
        return [
            round((got - sent) * 1e6)
            for times in self.responses.values()
            for sent, got in times
            if since <= sent < until
        ]

    def largest_gap_s(self, since: float, until: float) -> float:
        """Return the largest time between two responses of a partition in this time."""
        gaps = []
        for times in self.responses.values():
            received = [since, *(got for _, got in tuple(times) if since < got < until), until]
            gaps += [later - earlier for earlier, later in pairwise(received)]
        return max(gaps)


class DirectSampler(Sampler):
    """The same by single requests, because librdkafka looks for a new leader once a second.

    A request with acks=all for all sampled partitions of a broker follows the response to the last
    one. After an error, or without a response, the leaders are looked up before the next requests.
    """

    def __init__(self, cluster: ClusterProcesses, partitions: list[Sampled]) -> None:
        super().__init__(cluster, partitions, DIRECT_EVERY_S)
        self._addresses = {number: broker.bootstrap for number, broker in cluster.brokers.items()}
        self._clients: dict[int, WireClient] = {}

    def _run(self) -> None:
        leaders: dict[Sampled, int] = {}
        while not self._stopped.wait(self._every_s):
            if not leaders:
                leaders = self._leaders()
            of_brokers: dict[int, list[Sampled]] = {}
            for partition, leader in leaders.items():
                of_brokers.setdefault(leader, []).append(partition)
            for broker, partitions in of_brokers.items():
                if not self._sent(broker, partitions):
                    leaders = {}
        for broker in tuple(self._clients):
            self._drop(broker)

    def _drop(self, broker: int) -> None:
        self._clients.pop(broker).close()

    def _client(self, broker: int) -> WireClient:
        if broker not in self._clients:
            self._clients[broker] = WireClient(self._addresses[broker])
        return self._clients[broker]

    def _leaders(self) -> dict[Sampled, int]:
        """Ask the brokers in turn, because one of them may be killed."""
        names = sorted({name for name, _ in self.responses})
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], False)
        found = None
        for broker in self._addresses:
            found = self._call(broker, request)
            if found is not None:
                break
        return (
            {}
            if found is None
            else {
                (each.name, partition.partition_index): partition.leader_id
                for each in found.topics
                for partition in each.partitions
                if (each.name, partition.partition_index) in self.responses
                and partition.leader_id in self._addresses
            }
        )

    def _call(self, broker: int, request: Any) -> Any:
        """Return the response, or None without a connection to the broker."""
        try:
            return self._client(broker).call(request, 9)
        except (OSError, ConnectionClosed):
            if broker in self._clients:
                self._drop(broker)
            return None

    def _sent(self, broker: int, partitions: list[Sampled]) -> bool:
        """Send a record to each partition. Return whether all of them are acknowledged."""
        topics: dict[str, list[PartitionProduceData]] = {}
        for name, number in partitions:
            topics.setdefault(name, []).append(PartitionProduceData(number, batch(VALUE)))
        data = [TopicProduceData(name, partition_data=each) for name, each in topics.items()]
        at = time.monotonic()
        response = self._call(broker, ProduceRequest(None, -1, DIRECT_TIMEOUT_MS, data))
        if response is None:
            return False
        now, is_whole = time.monotonic(), True
        for topic_response in response.responses:
            for each in topic_response.partition_responses:
                if each.error_code:
                    is_whole = False
                else:
                    self.responses[topic_response.name, each.index].append((at, now))
        return is_whole


def sampled(partitions: int) -> list[Sampled]:
    """Return up to `SAMPLED` partitions of the topics of `many_partitions.fill`."""
    each = partitions // TOPICS
    step = max(1, partitions // SAMPLED)
    numbers = range(0, partitions, step)
    return [(topic(number // each), number % each) for number in numbers][:SAMPLED]


def await_in_sync(cluster: Driven, replicas: int = BROKERS) -> None:
    """Wait until each partition of the cluster has so many replicas in sync, and a leader."""
    deadline = time.monotonic() + DEADLINE_S
    maker = admin(cluster)
    while True:
        topics = maker.list_topics(timeout=60).topics.values()
        behind = [
            (each.topic, number)
            for each in topics
            for number, partition in each.partitions.items()
            if partition.leader < 0 or len(partition.isrs) < replicas
        ]
        if topics and not behind:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(behind)} partitions are not in sync, such as {behind[0]}")
        time.sleep(0.1 if len(behind) < 100 else 1.0)


def elect_preferred_leaders(cluster: Driven) -> None:
    """Let the first replica of each partition lead again."""
    with WireClient(cluster.bootstrap.split(",")[0]) as client:
        found = client.call(ElectLeadersRequest(PREFERRED, None, 60_000), 2)
    if found.error_code:
        raise RuntimeError(f"ElectLeaders returns error {found.error_code}")


def restarted(cluster: ClusterProcesses, _: str, scale: float) -> dict[str, Any]:
    """Stop all brokers cleanly and start them: the time until the sample acknowledges, the memory
    and the CPU time at rest. The first call creates the partitions.
    """
    partitions = max(TOPICS * SAMPLED // 10, int(PARTITIONS * scale))
    if topic(0) not in admin(cluster).list_topics(timeout=60).topics:
        fill(cluster, partitions)
        await_in_sync(cluster)
    stopped = cluster.stop_brokers()
    cluster.restart_all()
    with Sampler(cluster, sampled(partitions), START_SAMPLE_EVERY_S) as sampler:
        served = sampler.await_all(cluster.began_s)
    await_in_sync(cluster)
    found = idle_cpu(cluster, scale)
    memory = sum(map(memory_bytes, cluster.pids)) / MIB
    return {
        "start_s": max(served.values()),
        "memory_mib": memory,
        "stop_s": max(stopped.values()),
        **found,
    }


def killed(cluster: ClusterProcesses, victim: int, partitions: int) -> dict[str, Any]:
    """Kill a broker by SIGKILL, and start it again when all sampled partitions acknowledge."""
    with DirectSampler(cluster, sampled(partitions)) as sampler:
        sampler.await_all(time.monotonic())
        time.sleep(RESTING_S)
        at = time.monotonic()
        cluster.brokers[victim].kill()
        taken = sampler.await_all(at)
    cluster.brokers[victim] = awaited(cluster.brokers[victim].begin_restart())
    await_in_sync(cluster)
    elect_preferred_leaders(cluster)
    return {"seconds": sorted(taken.values()), "errors": len(sampler.errors)}


def drained(cluster: ClusterProcesses, broker: int, partitions: int) -> dict[str, Any]:
    """Move all leaderships of a broker away, and permit them again. Odradek only."""
    with DirectSampler(cluster, sampled(partitions)) as sampler:
        sampler.await_all(time.monotonic())
        time.sleep(RESTING_S)
        at = time.monotonic()
        resting_s = sampler.largest_gap_s(at - RESTING_S, at)
        _drain(cluster, broker)
        took = time.monotonic() - at
        time.sleep(DRAIN_S)
        gap = sampler.largest_gap_s(at, time.monotonic())
        _drain(cluster, broker, "--undo")
        time.sleep(DRAIN_S)
    elect_preferred_leaders(cluster)
    return {
        "gap_s": gap,
        "resting_gap_s": resting_s,
        "drain_s": took,
        "errors": len(sampler.errors),
    }


def _drain(cluster: ClusterProcesses, broker: int, *options: str) -> None:
    command = [sys.executable, "-m", "odradek", "cluster", "drain", str(broker), *options]
    command += ["--bootstrap-server", cluster.bootstrap.split(",")[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"drain of broker {broker}: {done.stdout}{done.stderr}")


# --- a returning replica ---


def fill_topic(cluster: Driven, name: str, records: int) -> int:
    """Write records of 1 KB to all partitions. Return their bytes."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0, "linger.ms": 20,
         "batch.size": 131_072, "queue.buffering.max.kbytes": 262_144}
    )  # fmt: skip
    value = bytes(CATCH_UP_RECORD_BYTES)
    for number in range(records):
        while True:
            try:
                producer.produce(name, value, partition=number % CATCH_UP_PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(DEADLINE_S):
        raise RuntimeError("records without a response")
    return records * CATCH_UP_RECORD_BYTES


def returned(cluster: ClusterProcesses, broker: int, scale: float) -> dict[str, Any]:
    """Stop a broker, write what it will lack, and start it under a steady load.

    The steady load goes to a partition that another broker leads and this one follows. Its
    latencies count from the first response of the broker until it is in sync everywhere.
    """
    records = max(10_000, int(CATCH_UP_RECORDS * scale))
    others = [each for each in cluster.brokers if each != broker]
    with (
        topic_of(cluster, spread(CATCH_UP_PARTITIONS)) as name,
        topic_of(cluster, [[*others, broker]]) as steady,
    ):
        load = [(steady, 0)]
        with Sampler(cluster, load, 1 / LATENCY_RATE) as resting:
            resting.await_all(time.monotonic())
            time.sleep(RESTING_S)
            before = time.monotonic()
            time.sleep(max(2.0, LOAD_S * scale))
        cluster.brokers[broker].stop()
        size = fill_topic(cluster, name, records)
        with Sampler(cluster, load, 1 / LATENCY_RATE) as during:
            during.await_all(time.monotonic())
            time.sleep(RESTING_S)
            cluster.brokers[broker] = cluster.brokers[broker].begin_restart()
            awaited(cluster.brokers[broker])
            began = time.monotonic()
            await_in_sync(cluster)
            ended = time.monotonic()
    elect_preferred_leaders(cluster)
    return {
        "bytes": size,
        "start_s": cluster.brokers[broker].started_s,
        "in_sync_s": ended - began,
        "resting_us": histogram(resting.latencies_us(before, ended)),
        "during_us": histogram(during.latencies_us(began, ended)),
    }


def histogram(taken: list[int]) -> dict[str, int]:
    counts = Counter(taken)
    return {str(us): counts[us] for us in sorted(counts)}


MANY_ROWS = (
    Row("many", f"{PARTITIONS:,} partitions", {
        "start_s": "s from the start of all to the last acknowledgement of the sample",
        "memory_mib": "MiB of all at rest",
        **IDLE_METRICS,
        "stop_s": "s of a clean stop",
    }, restarted),
)  # fmt: skip
