"""Repeated SIGKILLs of a broker during compaction while a producer writes, and a check of the data.

A topic with tiny segments gets new values and tombstones for a few keys all the time. The cleaner
looks for work every few milliseconds, so that most kills happen during a cleaning or a swap. After
any number of SIGKILLs, a reader finds the last acknowledged value of each key. The values of a key
are in the order of the writes, and no worker process outlives its broker. As a program it makes
more kills than the tests do::

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
"""Lifetime of a broker unless it is seen to clean. The recovery point, which limits the cleanable
part, is written once a second.
"""
KILL_AFTER_S_MAX = 0.5
FLUSH_S = 240
WORKERS_END_S = 60
CLEANING_WITHIN_S = 300
"""A broker that is not killed cleans within this time. On a busy machine the lifetimes before may
be too short for a cleaning.
"""
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
    """Runs brokers that compact all the time."""

    def extra_settings(self) -> tuple[str, ...]:
        return SETTINGS

    def workers(self) -> list[psutil.Process]:
        assert self.process is not None
        try:
            return psutil.Process(self.process.pid).children()
        except psutil.NoSuchProcess:
            return []


class Ledger:
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
        """Write one more value, or a tombstone. Every few of them are late enough to roll a
        segment.
        """
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
    """Return whether the process still runs. A zombie does not: only init has to reap it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def seen(directory: Path, suffix: str) -> bool:
    """Return whether a cleaning, or a swap, is in progress."""
    partition = directory / f"{TOPIC}-0"
    return partition.is_dir() and any(name.endswith(suffix) for name in os.listdir(partition))  # noqa: PTH208


def values_on_disk(directory: Path) -> dict[bytes, int]:
    """Return the last value of each key on the disk. Check each CRC and the order of each key."""
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


def write_until_cleaned(ledger: Ledger, killer: CompactingKiller) -> None:
    """Write until a broker finished a cleaning, because kills may interrupt every one of them."""
    deadline = time.monotonic() + CLEANING_WITHIN_S
    while not cleanings(Path(killer.log.name).read_text("utf-8")):
        assert time.monotonic() < deadline, "no cleaning was finished"
        for _ in range(20):
            ledger.write()
            time.sleep(0.005)


def run(kills: int, seed: int, directory: Path) -> dict[str, int]:
    """Kill that many brokers. Return counts. Raise AssertionError if the data is wrong."""
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
    ledger = Ledger(killer.address, seed)
    unfinished = 0
    for _ in range(kills):
        killed_at = time.monotonic() + LIFE_S + killer.random.random() * KILL_AFTER_S_MAX
        suffix = killer.random.choice((".cleaned", ".swap", ".swap"))
        while time.monotonic() < killed_at and not seen(directory, suffix):
            ledger.write()
            time.sleep(0.0005)
        killer.kill()
        unfinished += seen(directory, ".cleaned") or seen(directory, ".swap")
        killer.start()
        ledger.flush()
    ledger.flush()
    write_until_cleaned(ledger, killer)
    ledger.flush()
    workers = killer.workers()
    killer.kill()
    deadline = time.monotonic() + WORKERS_END_S
    while any(map(is_alive, workers)):
        assert time.monotonic() < deadline, f"a worker outlives its broker: {workers}"
        time.sleep(0.01)
    assert values_on_disk(directory) == ledger.expected()
    log = Path(killer.log.name).read_text("utf-8")
    assert not (found := complaint(log)), found
    return {
        "writes": ledger.count,
        "kills": kills,
        "cleanings": cleanings(log),
        "killed_in_cleaning_or_swap": unfinished,
        "swaps_finished_at_start": len(re.findall(r"finishing the swap of \S+\.log\.swap", log)),
    }


def complaint(log: str) -> str:
    """The first log that cannot be compacted, or the error of the first traceback, or nothing."""
    if found := re.search(r"^.*cannot be compacted.*$", log, re.M):
        return found[0]
    found = re.search(r"^Traceback.*\n(?:[ ].*\n)*(\S.*)$", log, re.M)
    return found[1] if found else ""


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
