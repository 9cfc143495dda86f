"""Time slices of the event loop in a cluster of three brokers, in phases of ordinary use.

    python -m benchmarks.time_slices [--seed N] [--scale X] [--no-stacks] [--causes] [--keep DIR]
        [--above MS]

Each broker is `odradek serve` with `benchmarks.slice_recorder`, on a real ZooKeeper. The clients
are librdkafka, and a wire client for the first request of each kind. The last line on stdout is the
JSON object of `benchmarks.slice_figures`. `make evidence-time-slices` runs it.

Before the first phase and after the last one, `benchmarks.slice_control` measures callbacks of
constant work. The phases begin when the file system makes new files at its usual cost, see
`benchmarks.file_creation`.

`--causes` prints the causes of the slices above 5 ms, too, or above another limit with `--above`.
`--keep` keeps the files of the run.
No phase has transactions, because this release does not complete a transaction with partitions that
other brokers than its coordinator lead.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from benchmarks import slice_control, slice_figures
from benchmarks.file_creation import await_cheap_files
from benchmarks.many_partitions import allow_open_files
from benchmarks.slice_figures import Mark, Process
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from testkit.many_elements import long_requests
from testkit.peer.artifacts import ROOT
from testkit.peer.server import BrokerProcess, start_command
from testkit.wire import ConnectionClosed, WireClient
from testkit.zookeeper import ZooKeeperProcess, start_zookeeper

BROKERS = (1, 2, 3)
TOPICS = 100
PARTITIONS_EACH = 100
RECORDS_EACH = 10
SMALL_PARTITIONS = 12
SMALL_RECORDS_EACH = 20_000
SEGMENTS_EACH = 400
REPLICATION_FACTOR = 3
DEADLINE_S = 120.0
CONTROL_S = 20.0
"""Duration of each of the two runs with callbacks of constant work."""
QUIET_S = 0.3
"""Pause between two phases, longer than the counts of the recorder."""
FIRST_RESPONSE_S = 3.0
CONFIGS = {
    "zookeeper.session.timeout.ms": "6000",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
    "log.retention.check.interval.ms": "5000",
    "default.replication.factor": str(REPLICATION_FACTOR),
    "min.insync.replicas": "2",
}


class NotDone(Exception):
    """A phase did not do its work, so its slices show nothing."""


def report(line: str) -> None:
    print(f"{time.strftime('%X')} {line}", file=sys.stderr, flush=True)


class Cluster:
    """Three recorded brokers, the phases so far, and the clients of the phases."""

    def __init__(
        self,
        work: Path,
        zookeeper: ZooKeeperProcess,
        seed: int,
        scale: float,
        recorder_options: list[str],
    ) -> None:
        self._work = work
        self._zookeeper = f"{zookeeper.address}/slices"
        self._recorder_options = recorder_options
        self._starts: list[tuple[Process, Path]] = []
        self.brokers: dict[int, BrokerProcess] = {}
        self.marks: list[Mark] = []
        self.random = random.Random(seed)
        self.scale = scale
        self.topics = [f"many-{number}" for number in range(max(2, round(TOPICS * scale)))]
        self.many = f"{len(self.topics) * PARTITIONS_EACH:,} partitions"

    def phase(self, name: str) -> None:
        time.sleep(QUIET_S)
        self.marks.append(Mark(time.monotonic(), name))
        report(name)

    def figures(self) -> dict[str, Any]:
        for process, path in self._starts:
            process.lines = slice_figures.parse(path.read_text(encoding="utf-8"))
        processes = [process for process, _ in self._starts]
        return slice_figures.figures(self.marks, time.monotonic(), processes)

    # --- processes ---

    def start(self, broker: int) -> None:
        path = self._work / f"slices-{broker}.jsonl"
        command = [sys.executable, "-m", "benchmarks.slice_recorder", str(path)]
        command += self._recorder_options
        command += ["--", "--broker-id", str(broker), "--zookeeper", self._zookeeper]
        command += ["--listen", "{address}", "--data", "{data}"]
        for key, value in CONFIGS.items():
            command += ["--set", f"{key}={value}"]
        directory = self._work / f"broker-{broker}"
        self._record(broker, path, lambda: start_command(command, directory))

    def restart(self, broker: int) -> None:
        path = self._work / f"slices-{broker}.jsonl"
        earlier = sum(process.broker == broker for process, _ in self._starts)
        path.rename(path.with_suffix(f".{earlier}.jsonl"))
        self._starts = [
            (process, path.with_suffix(f".{earlier}.jsonl") if each == path else each)
            for process, each in self._starts
        ]
        self._record(broker, path, self.brokers[broker].restart)

    def _record(self, broker: int, path: Path, start: Callable[[], BrokerProcess]) -> None:
        began = time.monotonic()
        self.brokers[broker] = start()
        # The broker responds to ApiVersions before it serves clients. Metadata waits until then.
        with WireClient(self.brokers[broker].bootstrap) as client:
            client.call(MetadataRequest(topics=[]), 12)
        self._starts.append((Process(broker, began, time.monotonic()), path))

    def kill_all(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def controller(self) -> int:
        for broker in self.brokers.values():
            with contextlib.suppress(OSError, ConnectionClosed), WireClient(broker.bootstrap) as c:
                return int(c.call(DescribeClusterRequest(), 0).controller_id)
        raise NotDone("no broker responds")

    def other_than_controller(self) -> int:
        controller = self.controller()
        return self.random.choice([each for each in BROKERS if each != controller])

    # --- clients ---

    def _settings(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **more}

    def admin(self) -> AdminClient:
        return AdminClient(self._settings())

    def create(self, names: list[str], partitions: int, **configs: str) -> None:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        new = [NewTopic(name, partitions, REPLICATION_FACTOR, config=dotted) for name in names]
        admin = self.admin()  # The end of its life would end its requests.
        _wait(admin.create_topics(new, operation_timeout=60, request_timeout=DEADLINE_S))

    def delete(self, names: list[str]) -> None:
        admin = self.admin()
        _wait(admin.delete_topics(names, operation_timeout=60, request_timeout=DEADLINE_S))

    def alter(self, kind: ConfigResource.Type, names: list[str], key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resources = [ConfigResource(kind, name, incremental_configs=[entry]) for name in names]
        admin = self.admin()
        _wait(admin.incremental_alter_configs(resources, request_timeout=DEADLINE_S))

    def elect_preferred_leaders(self) -> None:
        with WireClient(self.brokers[self.controller()].bootstrap) as client:
            found = client.call(ElectLeadersRequest(0, None, 60_000), 2)
        if found.error_code:
            raise NotDone(f"ElectLeaders returns error {found.error_code}")

    def produce(
        self, names: list[str], partitions: int, each: int, size: int = 100, **settings: Any
    ) -> None:
        """Send `each` records to each partition, one after the other, and wait for all acks."""
        producer = Producer(self._settings(acks="all", **{"linger.ms": 5, **_dotted(settings)}))
        errors = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(str(error))

        for _ in range(each):
            for name in names:
                for partition in range(partitions):
                    _send(producer, name, b"x" * size, partition, delivered)
                producer.poll(0)
        if left := producer.flush(DEADLINE_S):
            raise NotDone(f"{left} records are not acknowledged")
        if errors:
            raise NotDone(f"{len(errors)} records failed: {errors[0]}")

    def expired_segments(self, topic: str, partitions: int, each: int) -> None:
        """Send old records, each in a batch of its own."""
        producer = Producer(
            self._settings(**{"acks": "all", "batch.num.messages": 1, "linger.ms": 0})
        )
        oldest_ms = int(time.time() * 1000) - 3_600_000
        for number in range(each):
            for partition in range(partitions):
                at_ms = oldest_ms + 10 * number
                producer.produce(topic, b"x" * 100, partition=partition, timestamp=at_ms)
            producer.poll(0)
        if left := producer.flush(DEADLINE_S):
            raise NotDone(f"{left} records are not acknowledged")

    def consume(self, names: list[str], records: int, group: str) -> None:
        """Read so many records as a member of a group, and commit the offsets of all partitions."""
        consumer = Consumer(
            self._settings(**{"group.id": group, "auto.offset.reset": "earliest",
                              "auto.commit.interval.ms": 1000})
        )  # fmt: skip
        consumer.subscribe(names)
        found, end = 0, time.monotonic() + DEADLINE_S
        while found < records:
            if time.monotonic() > end:
                raise NotDone(f"read {found} of {records} records")
            found += sum(each.error() is None for each in consumer.consume(10_000, 1.0))
        consumer.commit(asynchronous=False)
        consumer.close()

    def first_requests(self, broker: int) -> None:
        """Send a request of each kind in its newest version, each on a connection of its own."""
        requests = [
            (api, request) for api, name, request in long_requests(1) if not name.endswith("[0]")
        ]
        self.random.shuffle(requests)
        for api, request in requests:
            # Some requests close the connection, because their fields are not valid.
            with (
                contextlib.suppress(OSError, ConnectionClosed),
                WireClient(self.brokers[broker].bootstrap) as client,
            ):
                client.socket.settimeout(FIRST_RESPONSE_S)
                client.call(request, api.max_version)

    def await_in_sync(self) -> None:
        """Wait until all brokers are registered and all replicas are in sync."""
        self._await(lambda topics, brokers: len(brokers) == len(BROKERS) and not any(
            len(each.isrs) < len(each.replicas) for topic in topics for each in topic
        ), "replicas in sync")  # fmt: skip

    def await_leaders_other_than(self, broker: int) -> None:
        self._await(
            lambda topics, _: not any(
                each.leader in (broker, -1) for topic in topics for each in topic
                if len(each.replicas) > 1
            ), f"leaders other than broker {broker}")  # fmt: skip

    def _await(self, holds: Callable[[list[Any], Any], bool], what: str) -> None:
        admin, end = self.admin(), time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            found = admin.list_topics(timeout=60)
            topics = [list(topic.partitions.values()) for topic in found.topics.values()]
            if holds(topics, found.brokers):
                return
            time.sleep(1)
        raise NotDone(f"no {what} within {DEADLINE_S:.0f} s")


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def _wait(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(2 * DEADLINE_S)


def _send(producer: Producer, topic: str, value: bytes, partition: int, delivered: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def small_phases(cluster: Cluster) -> None:
    """The phases with few partitions."""
    cluster.phase("start of three brokers")
    for broker in BROKERS:
        cluster.start(broker)
    cluster.await_in_sync()
    time.sleep(3)
    cluster.phase("first request of each kind, at a broker")
    cluster.first_requests(cluster.other_than_controller())
    cluster.phase("first request of each kind, at the controller")
    cluster.first_requests(cluster.controller())

    each = max(100, round(SMALL_RECORDS_EACH * cluster.scale))
    cluster.phase("12 partitions: creation")
    cluster.create(["small"], SMALL_PARTITIONS)
    cluster.phase("12 partitions: first records")
    cluster.produce(["small"], SMALL_PARTITIONS, 10)
    cluster.phase("12 partitions: produce")
    cluster.produce(["small"], SMALL_PARTITIONS, each)
    cluster.phase("12 partitions: produce, zstd")
    cluster.produce(["small"], SMALL_PARTITIONS, each // 2, compression_type="zstd")
    cluster.phase("12 partitions: produce, idempotent")
    cluster.produce(["small"], SMALL_PARTITIONS, each // 2, enable_idempotence=True)
    cluster.phase("12 partitions: consume in a group")
    cluster.consume(["small"], SMALL_PARTITIONS * (2 * each + 10), "small")
    cluster.phase("3 partitions: 400 segments each")
    cluster.create(["old"], 3, segment_ms="1", file_delete_delay_ms="2000",
                   retention_ms="360000000")  # fmt: skip
    cluster.expired_segments("old", 3, max(10, round(SEGMENTS_EACH * cluster.scale)))
    cluster.await_in_sync()
    cluster.phase("3 partitions: retention of 400 segments each")
    cluster.alter(ConfigResource.Type.TOPIC, ["old"], "retention.ms", "1")
    time.sleep(10)


def large_phases(cluster: Cluster) -> None:
    """The phases with 10,000 partitions and all brokers."""
    names, partitions = cluster.topics, PARTITIONS_EACH
    cluster.phase(f"{cluster.many}: creation")
    cluster.create(names[: len(names) // 2], partitions)
    cluster.create(names[len(names) // 2 :], partitions)
    cluster.await_in_sync()
    cluster.phase(f"{cluster.many}: idle")
    time.sleep(5)
    cluster.phase(f"{cluster.many}: first records")
    cluster.produce(names, partitions, 1)
    cluster.await_in_sync()
    cluster.phase(f"{cluster.many}: produce")
    cluster.produce(names, partitions, RECORDS_EACH)
    cluster.phase(f"{cluster.many}: consume in a group, commit offsets")
    cluster.consume(names, len(names) * partitions * (RECORDS_EACH + 1), "large")
    cluster.phase(f"{cluster.many}: AlterConfigs of all topics")
    cluster.alter(ConfigResource.Type.TOPIC, names, "retention.ms", "86400000")
    time.sleep(2)
    cluster.phase(f"{cluster.many}: AlterConfigs of a broker")
    cluster.alter(ConfigResource.Type.BROKER, ["1"], "log.retention.ms", "360000000")
    time.sleep(2)


def failure_phases(cluster: Cluster) -> None:
    """The phases in which brokers of 10,000 partitions fail, return and stop."""
    names, partitions = cluster.topics, PARTITIONS_EACH

    def returns(name: str, broker: int) -> None:
        cluster.phase(f"{cluster.many}: {name}")
        cluster.restart(broker)
        cluster.await_in_sync()

    victim = cluster.other_than_controller()
    cluster.phase(f"{cluster.many}: SIGKILL of a leader")
    cluster.brokers[victim].kill()
    cluster.await_leaders_other_than(victim)
    cluster.phase(f"{cluster.many}: produce without it")
    cluster.produce(names, partitions, 2)
    returns("restart, with a full image", victim)
    controller = cluster.controller()
    cluster.phase(f"{cluster.many}: SIGKILL of the controller")
    cluster.brokers[controller].kill()
    cluster.await_leaders_other_than(controller)
    returns("restart of the controller", controller)
    victim = cluster.other_than_controller()
    cluster.phase(f"{cluster.many}: controlled stop")
    cluster.brokers[victim].stop()
    cluster.await_leaders_other_than(victim)
    returns("restart after it", victim)
    cluster.phase(f"{cluster.many}: election of the preferred leaders")
    cluster.elect_preferred_leaders()
    time.sleep(5)


def last_phases(cluster: Cluster) -> None:
    """The phases in which records and topics are deleted."""
    names = cluster.topics
    cluster.phase(f"{cluster.many}: retention")
    cluster.alter(ConfigResource.Type.TOPIC, names, "retention.ms", "1")
    time.sleep(40)  # for all 10,000 logs of each broker
    cluster.phase(f"{cluster.many}: deletion")
    cluster.delete(names)
    time.sleep(10)
    cluster.phase("stop of three brokers")
    for broker in cluster.brokers.values():
        broker.stop()


PHASES = (small_phases, large_phases, failure_phases, last_phases)


@contextmanager
def work_directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="time-slices-") as directory:
            yield Path(directory)
    else:
        keep.mkdir(parents=True)
        yield keep.resolve()


def run(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Run all phases and return their figures."""
    with start_zookeeper(work / "zookeeper") as zookeeper:
        recorder_options = [] if options.stacks else ["--no-stacks"]
        recorder_options += [] if options.above is None else [f"--above={options.above}"]
        cluster = Cluster(work, zookeeper, options.seed, options.scale, recorder_options)
        control = {}
        try:
            control["before"] = slice_control.measured(len(BROKERS), CONTROL_S)
            for phases in PHASES:
                await_cheap_files(work / "files" / phases.__name__, report)
                phases(cluster)
            control["after"] = slice_control.measured(len(BROKERS), CONTROL_S)
        finally:
            cluster.kill_all()
            found = {**cluster.figures(), "control": control}
            # For --keep, also after a failure.
            (work / "figures.json").write_text(json.dumps(found), encoding="utf-8")
        return found


def print_causes(found: dict[str, Any]) -> None:
    for phase in found["phases"]:
        cpu_ms, wall_ms = slice_figures.longest(phase)
        print(
            f"{phase['name']}: {phase['callbacks']:,} callbacks in {phase['seconds']} s, "
            f"{len(phase['slices'])} above the limit, longest {cpu_ms} ms (wall {wall_ms} ms), "
            f"busy {phase.get('longest_busy_ms')}, above 5 ms {phase.get('busy_above')}"
        )
    for each in slice_figures.causes([*found["phases"], *found["before_clients"]]):
        print(
            f"\n{each.phase}\n  {each.cause}\n  callback {each.callback}\n"
            f"  {each.slices} slices, median {each.median_ms} ms, longest {each.longest_ms} ms "
            f"(wall {each.longest_wall_ms} ms, collections {each.collections_ms:.1f} ms)"
        )
        for frame in each.stack:
            print(f"    {frame}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_slices")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of the partitions and records")
    parser.add_argument("--no-stacks", dest="stacks", action="store_false",
                        help="do not sample the stacks of callbacks")  # fmt: skip
    parser.add_argument("--causes", action="store_true", help="print the causes of long slices")
    parser.add_argument("--above", type=float, metavar="MS", help="record slices above this limit")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for all files")
    options = parser.parse_args(arguments)
    allow_open_files()
    # As after an installation by pip: no import of a broker compiles its source.
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    compileall.compile_dir(str(ROOT / "src"), quiet=1)
    with work_directory(options.keep) as work:
        found = run(options, work)
    if options.causes:
        print_causes(found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
