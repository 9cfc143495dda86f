"""A broker that is killed again and again while it compacts what a producer writes; then the books.

A few keys are overwritten and deleted all the time in a topic with tiny segments, and the cleaner
looks for work every few milliseconds, so that most kills hit a cleaning or a swap. What must hold
after any number of SIGKILLs: of each key a reader finds the last value that was acknowledged,
values of a key come in the order in which they were written, and no worker process outlives its
broker. Run alone, it takes more kills than the tests do::

    python -m tests.durability.compaction_kills --kills 100 --seed 7

The result is one line of JSON.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.records.batch import crc_is_valid
from odradek.records.record import iter_batches, iter_records
from testkit.result_line import print_result
from tests.durability.kills import Killer

TOPIC = "compacted"
KEYS = 40
LIFE_S = 1.5
"""So long a broker lives unless it is seen to clean: what may be cleaned is written down once a
second.
"""
KILL_AFTER_S_MAX = 0.5
FLUSH_S = 240
WORKERS_END_S = 60
CLEANING_WITHIN_S = 300
"""Left alone, a broker cleans within this; on a busy machine the lives before may be too short."""
SETTINGS = (
    "log.cleaner.backoff.ms=5",
    "log.cleaner.min.cleanable.ratio=0.01",
    "log.flush.offset.checkpoint.interval.ms=20",
    "log.cleaner.io.buffer.size=65536",
)
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "1000",
    "delete.retention.ms": "10",
    "min.cleanable.dirty.ratio": "0.01",
    "message.timestamp.after.max.ms": str(2**62),
}


class CompactingKiller(Killer):
    """Brokers that compact all the time."""

    def extra_settings(self) -> tuple[str, ...]:
        return SETTINGS

    def workers(self) -> list[psutil.Process]:
        assert self.process is not None
        try:
            return psutil.Process(self.process.pid).children()
        except psutil.NoSuchProcess:
            return []


class Books:
    """A producer that outlives the brokers, and the last value of each key."""

    def __init__(self, address: str, seed: int) -> None:
        self.random = Random(seed)
        self.last: dict[bytes, int | None] = {}
        self.count = 0
        self.failed: list[str] = []
        self.time_ms = time.time_ns() // 1_000_000 - 3_000_000
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

    def write(self) -> None:
        """One more value, or a tombstone; every few of them are late enough to roll a segment."""
        self.count += 1
        self.time_ms += 250
        key = b"key-%d" % self.random.randrange(KEYS)
        gone = self.random.random() < 0.1
        self.last[key] = None if gone else self.count
        value = None if gone else b"%d:" % self.count + b"." * self.random.randrange(200)
        self.producer.produce(
            TOPIC, value, key, 0, timestamp=self.time_ms, on_delivery=self._delivered
        )
        self.producer.poll(0)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))

    def flush(self) -> None:
        assert self.producer.flush(FLUSH_S) == 0
        assert not self.failed, self.failed[:5]

    def expected(self) -> dict[bytes, int]:
        return {key: number for key, number in self.last.items() if number is not None}


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs: a zombie waits for the system's init alone."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def seen(directory: Path, suffix: str) -> bool:
    """Whether a cleaning, or a swap, is under way."""
    partition = directory / f"{TOPIC}-0"
    return partition.is_dir() and any(name.endswith(suffix) for name in os.listdir(partition))  # noqa: PTH208


def found(directory: Path) -> dict[bytes, int]:
    """The last value of each key on the disk; each batch's CRC and each key's order are right."""
    last: dict[bytes, int] = {}
    for path in sorted((directory / f"{TOPIC}-0").glob("*.log")):
        data = memoryview(path.read_bytes())
        for batch in iter_batches(data):
            assert crc_is_valid(batch), path
            for record in iter_records(batch):
                assert record.key is not None
                if record.value is None:
                    last.pop(record.key, None)
                    continue
                number = int(record.value.split(b":")[0])
                assert number > last.get(record.key, 0), "an older value behind a newer one"
                last[record.key] = number
    return last


def cleanings(log: str) -> int:
    return len(re.findall(r"compacted \S+ up to", log))


def write_until_cleaned(books: Books, killer: CompactingKiller) -> None:
    """Writes on until some broker finished a cleaning: kills alone may hit every one of them."""
    deadline = time.monotonic() + CLEANING_WITHIN_S
    while not cleanings(Path(killer.log.name).read_text("utf-8")):
        assert time.monotonic() < deadline, "no cleaning was finished"
        for _ in range(20):
            books.write()
            time.sleep(0.005)


def run(kills: int, seed: int, directory: Path) -> dict[str, int]:
    """Kills that many brokers; what was done. AssertionError when the books do not balance."""
    killer = CompactingKiller(directory, seed)
    try:
        return _killed_and_balanced(killer, kills, seed)
    finally:
        killer.kill()  # also after a failure
        killer.close()


def _killed_and_balanced(killer: CompactingKiller, kills: int, seed: int) -> dict[str, int]:
    directory = killer.directory
    killer.start()
    admin = AdminClient({"bootstrap.servers": killer.address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=TOPIC_CONFIG)])[TOPIC].result(FLUSH_S)
    books = Books(killer.address, seed)
    unfinished = 0
    for _ in range(kills):
        killed_at = time.monotonic() + LIFE_S + killer.random.random() * KILL_AFTER_S_MAX
        wanted = killer.random.choice((".cleaned", ".swap", ".swap"))
        while time.monotonic() < killed_at and not seen(directory, wanted):
            books.write()
            time.sleep(0.0005)
        killer.kill()
        unfinished += seen(directory, ".cleaned") or seen(directory, ".swap")
        killer.start()
        books.flush()
    books.flush()
    write_until_cleaned(books, killer)
    books.flush()
    workers = killer.workers()
    killer.kill()
    deadline = time.monotonic() + WORKERS_END_S
    while any(map(is_alive, workers)):
        assert time.monotonic() < deadline, f"a worker outlives its broker: {workers}"
        time.sleep(0.01)
    assert found(directory) == books.expected()
    log = Path(killer.log.name).read_text("utf-8")
    assert "cannot be compacted" not in log and "Traceback" not in log, log[-3000:]
    return {
        "writes": books.count,
        "kills": kills,
        "cleanings": cleanings(log),
        "killed_in_cleaning_or_swap": unfinished,
        "swaps_finished_at_start": len(re.findall(r"finishing the swap of \S+\.log\.swap", log)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    def result() -> dict[str, int]:
        with tempfile.TemporaryDirectory(prefix="compaction-kills-") as directory:
            found = run(arguments.kills, arguments.seed, Path(directory) / "data")
        return {"seed": arguments.seed, **found}

    return print_result(result)


if __name__ == "__main__":
    sys.exit(main())
