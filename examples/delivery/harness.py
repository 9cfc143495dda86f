"""Run the three programs while they and the broker are killed, and count records.

    python -m examples.delivery.harness
    python -m examples.delivery.harness --broker kafka --kills 40 --seed 7

The default broker is Odradek. Every program copies numbered records. The program or the broker is
killed with SIGKILL after a few copied batches, again and again. The kills come from a seed that is
printed. Then the program may finish. The harness counts the records that are missing from the
target, and the copies beyond the first copy of each record.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from testkit.peer import BrokerProcess
from testkit.peer.server import STARTERS
from testkit.result_line import print_result

HERE = Path(__file__).resolve().parent
PROGRAMS = ("at_most_once", "at_least_once", "exactly_once")
PARTITIONS = 2
RECORDS_PER_KILL = 150
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts of a run: `lost` records without a copy, `doubled` copies beyond the first."""

    program: str
    records: int
    program_kills: int
    broker_kills: int
    lost: int
    doubled: int


class Copier:
    """A program that is restarted each time it ends, until `finish`."""

    def __init__(self, program: str, bootstrap: str, source: str, target: str) -> None:
        path = HERE / f"{program}.py"
        self.command = [sys.executable, str(path), bootstrap, source, target]
        self.batches = 0
        self.progress = threading.Condition()
        self.finishing = False
        self.changing = threading.Lock()  # of `process`, so that the last process gets the signal
        self.process = self._start()
        self.thread = threading.Thread(target=self._supervise, daemon=True)
        self.thread.start()

    def wait_for_batches(self, count: int) -> None:
        """Wait until the program has copied this many more batches."""
        with self.progress:
            goal = self.batches + count
            if not self.progress.wait_for(lambda: self.batches >= goal, PATIENCE_S):
                raise TimeoutError("the program does not copy")

    def kill(self) -> None:
        self.process.kill()

    def finish(self) -> None:
        with self.changing:
            self.finishing = True
            self.process.terminate()
        self.thread.join()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def _supervise(self) -> None:
        while True:
            assert self.process.stdout is not None
            for _ in self.process.stdout:
                with self.progress:
                    self.batches += 1
                    self.progress.notify_all()
            self.process.stdout.close()
            self.process.wait()
            with self.changing:
                if self.finishing:
                    return
                self.process = self._start()


def run(
    program: str, broker: BrokerProcess, kills: int, seed: int
) -> tuple[Outcome, BrokerProcess]:
    """One program with `kills` of it and half as many of the broker; the broker as it is then.

    When this raises, the broker has been stopped.
    """
    current = [broker]
    try:
        return _run(program, current, kills, seed), current[-1]
    except BaseException:
        current[-1].stop()
        raise


def _run(program: str, current: list[BrokerProcess], kills: int, seed: int) -> Outcome:
    """`current` ends with the broker that runs."""
    random = Random(seed)
    broker = current[-1]
    source, target = f"{program}-numbers-{seed}", f"{program}-copies-{seed}"
    _create(broker.bootstrap, source, target)
    feeder = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    copier = Copier(program, broker.bootstrap, source, target)
    records = 0
    victims = ["program"] * kills + ["broker"] * (kills // 2)
    random.shuffle(victims)
    for victim in victims:
        for _ in range(RECORDS_PER_KILL):
            feeder.produce(source, b"%d" % records, partition=records % PARTITIONS)
            records += 1
        feeder.poll(0)
        copier.wait_for_batches(random.randint(1, 4))
        time.sleep(random.random() * 0.01)
        if victim == "program":
            copier.kill()
        else:
            broker.kill()
            broker = broker.restart()
            current.append(broker)
    assert feeder.flush(PATIENCE_S) == 0, "the source was not written"
    _await_copied(broker.bootstrap, source, f"{target}-copier")
    copier.finish()
    copies = Counter(_read(broker.bootstrap, target))
    lost = records - len(copies)
    doubled = copies.total() - len(copies)
    return Outcome(program, records, kills, kills // 2, lost, doubled)


def _create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    for future in made.values():
        future.result()


def _reader(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
            "isolation.level": "read_committed",
        }
    )


def _await_copied(bootstrap: str, source: str, group: str) -> None:
    """Wait until the group has committed the end offset of the source."""
    consumer = _reader(bootstrap, group)
    partitions = [TopicPartition(source, number) for number in range(PARTITIONS)]
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(KafkaException):  # of a broker that has just been started again
            committed = consumer.committed(partitions, timeout=30)
            ends = [consumer.get_watermark_offsets(p, timeout=30)[1] for p in partitions]
            if [max(0, p.offset) for p in committed] == ends:
                consumer.close()
                return
        time.sleep(0.1)
    raise TimeoutError("the program does not come to the end")


def _read(bootstrap: str, topic: str) -> list[bytes]:
    """Return all committed values of a topic."""
    consumer = _reader(bootstrap, "unused")
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, "the target cannot be read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append(message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return values


def main() -> int:
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument("--broker", choices=sorted(STARTERS), default="odradek")
    parser.add_argument("--kills", type=int, default=20, help="of the program; half of the broker")
    parser.add_argument("--seed", type=int, default=Random().randrange(1 << 31))
    parser.add_argument("--only", choices=PROGRAMS, action="append")
    parser.add_argument("--json", action="store_true", help="the results as one line of JSON")
    options = parser.parse_args()
    if options.json:
        return print_result(lambda: _results(options))
    print(f"seed {options.seed}")
    print("| program | records | program killed | broker killed | lost | doubled |")
    print("|---|---|---|---|---|---|", flush=True)
    for o in _outcomes(options):
        print(
            f"| {o.program} | {o.records:,} | {o.program_kills} | {o.broker_kills} "
            f"| {o.lost} | {o.doubled} |",
            flush=True,
        )
    return 0


def _results(options: argparse.Namespace) -> dict[str, dict[str, int | str]]:
    return {outcome.program: asdict(outcome) for outcome in _outcomes(options)}


def _outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    """Run each program on one broker, which is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="delivery-") as work:
        broker = STARTERS[options.broker](Path(work) / "broker")
        try:
            for program in options.only or PROGRAMS:
                outcome, broker = run(program, broker, options.kills, options.seed)
                yield outcome
        finally:
            broker.stop()


if __name__ == "__main__":
    sys.exit(main())
