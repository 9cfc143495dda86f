"""Run one to five consumers while they and a broker are killed, and check every delivery.

    python -m examples.zookeeper_consumer.harness
    python -m examples.zookeeper_consumer.harness --consumers 3 --brokers 3 --seed 7

A group of `consume.py` grows from one process to `--consumers`. At each size some consumers and one
broker are killed with SIGKILL while numbered records arrive, and are started again. The output of
all processes must show three properties:

* Each record is delivered at least once.
* A partition has one owner at a time. After the first record of a claim, no earlier claim delivers.
* A record is delivered again only if it follows the last commit of a consumer that was killed, or
  that has lost its session.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from testkit.peer import BrokerProcess, start_odradek
from testkit.result_line import print_result
from testkit.zookeeper import start_zookeeper

PROGRAM = Path(__file__).resolve().with_name("consume.py")
TOPIC = "numbers"
GROUP = "readers"
CHROOT = "/zookeeper-consumer"
PARTITIONS = 6
CONSUMERS_MAX = 5
BROKERS_MAX = 3
RECORDS_PER_KILL = 240
"""The largest number of records between two kills. Half of it is the smallest."""
PACE_S = 0.04
"""Time between two records. The partitions of a killed consumer have a new owner before the next
kill, or at about the same time."""
SESSION_MS = 6_000
BROKER_SESSION_MS = 3_000
PATIENCE_S = 180.0
SESSION_LOST = "has lost its session"


@dataclass(slots=True)
class Claim:
    """The deliveries under one owner node of a partition."""

    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    committed: int = -1
    """The offset after the last record that was committed, -1 without a commit."""
    was_interrupted: bool = False
    """Whether the consumer was killed, ended with an error, or lost its session."""

    @property
    def next_start_min(self) -> int:
        """The smallest offset at which the next claim may begin."""
        if self.was_interrupted:
            return max(self.offsets[0], self.committed)
        return self.offsets[-1] + 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The counts of a run. `lost`, `skipped`, `overlaps` and `unexplained` must be 0."""

    claims: int
    lost_sessions: int
    lost: int
    """Records that no consumer has got."""
    skipped: int
    """Offsets that a claim, or the next claim, has left out."""
    overlaps: int
    """Claims that delivered after the first delivery of a later claim."""
    doubled: int
    """Deliveries of records that an earlier claim had delivered."""
    unexplained: int
    """Records before the offset at which a claim had to begin."""


@dataclass(frozen=True, slots=True)
class Output:
    """The lines of one process, and whether it was killed or ended with an error."""

    lines: Sequence[str]
    was_interrupted: bool


def check(outputs: Iterable[Output], records: int) -> Verdict:
    """Check the deliveries of all processes of a group.

    Args:
        outputs: The lines of `consume.py`. Other lines are ignored.
        records: The values of the topic are the numbers from 0 to `records` - 1.
    """
    partitions: dict[int, dict[int, Claim]] = defaultdict(dict)
    values: set[int] = set()
    lost_sessions = 0
    for output in outputs:
        own: dict[tuple[int, int], Claim] = {}
        for line in output.lines:
            words = line.split()
            if SESSION_LOST in line:
                lost_sessions += 1
                _interrupt(own.values())
                own.clear()
            elif words == ["committed"]:
                for each in own.values():
                    each.committed = each.offsets[-1] + 1
            elif len(words) == 5 and words[0].isdigit():
                time_ns, partition, offset, claim, value = map(int, words)
                found = own.setdefault((partition, claim), Claim())
                partitions[partition][claim] = found
                found.offsets.append(offset)
                found.times.append(time_ns)
                values.add(value)
        if output.was_interrupted:
            _interrupt(own.values())
    histories = [[claims[zxid] for zxid in sorted(claims)] for claims in partitions.values()]
    return Verdict(
        claims=sum(map(len, histories)),
        lost_sessions=lost_sessions,
        lost=records - len(values),
        **_compared(histories),
    )


def _interrupt(claims: Iterable[Claim]) -> None:
    for each in claims:
        each.was_interrupted = True


def _compared(histories: Iterable[list[Claim]]) -> dict[str, int]:
    """Compare the claims of each partition, in the order of their creation."""
    counts = dict.fromkeys(("skipped", "overlaps", "doubled", "unexplained"), 0)
    for claims in histories:
        earlier: Claim | None = None
        end = 0
        for claim in claims:
            first = claim.offsets[0]
            counts["skipped"] += claim.offsets[-1] - first + 1 - len(claim.offsets)
            counts["doubled"] += sum(offset < end for offset in claim.offsets)
            if earlier is None:
                counts["skipped"] += first
            else:
                counts["skipped"] += max(0, first - earlier.offsets[-1] - 1)
                counts["unexplained"] += max(0, earlier.next_start_min - first)
                counts["overlaps"] += earlier.times[-1] >= claim.times[0]
            end, earlier = max(end, claim.offsets[-1] + 1), claim
    return counts


class Member:
    """A process of the group, whose output goes to a file."""

    def __init__(self, zookeeper: str, directory: Path, number: int) -> None:
        self.path = directory / f"consumer-{number}.txt"
        self.was_killed = False
        command = [sys.executable, str(PROGRAM), zookeeper, GROUP, TOPIC, str(SESSION_MS)]
        with self.path.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def output(self) -> Output:
        # A process that is killed may leave the beginning of a line.
        text, _, _ = self.path.read_text("utf-8", errors="replace").rpartition("\n")
        return Output(text.splitlines(), self.was_killed or self.process.poll() not in (None, 0))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.was_killed = True

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Group:
    """All members of the group, and the running ones."""

    def __init__(self, zookeeper: str, directory: Path) -> None:
        self._zookeeper = zookeeper
        self._directory = directory
        self.all: list[Member] = []
        self.running: list[Member] = []

    def add(self) -> None:
        self.all.append(Member(self._zookeeper, self._directory, len(self.all)))
        self.running.append(self.all[-1])

    def kill_one(self, random: Random) -> None:
        victim = random.choice(self.running)
        victim.kill()
        self.replace_ended()

    def replace_ended(self) -> None:
        """Start a member in the place of each ended one."""
        ended = [each for each in self.running if each.process.poll() is not None]
        self.running = [each for each in self.running if each not in ended]
        for _ in ended:
            self.add()

    def stop(self) -> None:
        for each in self.running:
            each.stop()

    def verdict(self, records: int) -> Verdict:
        return check([each.output() for each in self.all], records)

    def await_records(self, records: int) -> None:
        """Wait until the group has got all records."""
        deadline = time.monotonic() + PATIENCE_S
        while self.verdict(records).lost:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the group does not read all records: {self.verdict(records)}")
            self.replace_ended()
            time.sleep(0.2)


@contextmanager
def cluster(directory: Path, count: int) -> Iterator[tuple[str, list[BrokerProcess]]]:
    """Start a ZooKeeper and brokers. Yield the address of ZooKeeper, and the brokers."""
    brokers: list[BrokerProcess] = []
    with start_zookeeper(directory / "zookeeper") as zookeeper:
        address = zookeeper.address + CHROOT
        properties = {
            "zookeeper.session.timeout.ms": str(BROKER_SESSION_MS),
            "broker.session.timeout.ms": str(BROKER_SESSION_MS),
        }
        try:
            for number in range(1, count + 1):
                options = ("--broker-id", str(number), "--zookeeper", address)
                brokers.append(
                    start_odradek(directory / f"broker-{number}", properties, options=options)
                )
            yield address, brokers
        finally:
            for each in brokers:
                each.stop()


def run(
    directory: Path, *, consumers: int, brokers: int, kills: int, seed: int
) -> tuple[Verdict, int]:
    """Grow a group from one consumer to `consumers`. Return the verdict and the number of records.

    Args:
        directory: A directory for the data of the brokers and the output of the consumers.
        consumers: The largest number of consumers.
        brokers: The number of brokers, with up to three replicas of each partition.
        kills: The number of killed consumers at each size. One broker is killed as well.
        seed: Decides the victims, their order and the moments.
    """
    random = Random(seed)
    with cluster(directory, brokers) as (zookeeper, running):
        servers = ",".join(each.bootstrap for each in running)
        _create_topic(servers, brokers)
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0}
        producer = Producer(settings)
        group = Group(zookeeper, directory)
        records = 0
        try:
            for _ in range(consumers):
                group.add()
                actions: list[Callable[[], None]] = [lambda: group.kill_one(random)] * kills
                actions.append(lambda: _restart_one(running, random))
                random.shuffle(actions)
                for action in actions:
                    count = random.randint(RECORDS_PER_KILL // 2, RECORDS_PER_KILL)
                    for value in range(records, records + count):
                        producer.produce(TOPIC, str(value), partition=value % PARTITIONS)
                        producer.poll(PACE_S)
                        group.replace_ended()
                    records += count
                    action()
            assert producer.flush(PATIENCE_S) == 0, "the records were not written"
            group.await_records(records)
        finally:
            group.stop()
        return group.verdict(records), records


def _restart_one(brokers: list[BrokerProcess], random: Random) -> None:
    position = random.randrange(len(brokers))
    brokers[position].kill()
    brokers[position] = brokers[position].restart()


def _create_topic(servers: str, brokers: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    factor = min(3, brokers)
    config = {"min.insync.replicas": str(max(1, factor - 1))}
    created = admin.create_topics([NewTopic(TOPIC, PARTITIONS, factor, config=config)])
    created[TOPIC].result(PATIENCE_S)


def main() -> int:
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument("--consumers", type=int, choices=range(1, CONSUMERS_MAX + 1), default=5)
    parser.add_argument("--brokers", type=int, choices=range(1, BROKERS_MAX + 1), default=3)
    parser.add_argument("--kills", type=int, default=2, help="of consumers, at each size")
    parser.add_argument("--seed", type=int, default=Random().randrange(1 << 31))
    parser.add_argument("--json", action="store_true", help="the result as one line of JSON")
    options = parser.parse_args()
    if options.json:
        return print_result(lambda: _result(options))
    print("\n".join(f"{name}: {value}" for name, value in _result(options).items()))
    return 0


def _result(options: argparse.Namespace) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="zookeeper-consumer-") as work:
        verdict, records = run(
            Path(work),
            consumers=options.consumers,
            brokers=options.brokers,
            kills=options.kills,
            seed=options.seed,
        )
    return {"seed": options.seed, "records": records, **asdict(verdict)}


if __name__ == "__main__":
    sys.exit(main())
