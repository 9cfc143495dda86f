"""Repeated SIGKILLs of a broker while an idempotent producer writes, and a check of the data.

After any number of SIGKILLs, every acknowledged message is in its partition at the acknowledged
offset. No message exists twice. Each partition has its messages in the order of their sends. Every
batch has its right CRC. The page cache outlives a process, so this needs no fsync. As a program it
makes more kills than the tests do::

    python -m tests.durability.kills --kills 200 --seed 7

The result is one line of JSON.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka

from odradek.records.batch import crc_is_valid, parse_header
from odradek.records.record import iter_batches, iter_records
from testkit.result_line import print_result

PARTITIONS = 3
MESSAGES_PER_LIFE_MAX = 400
VALUE_BYTES_MAX = 1_000_000
OUTSTANDING_MAX = 600
KILL_AFTER_S_MAX = 0.05
FLUSH_S = 240
START_S = 120
AIMED_SHARE = 0.7
WRITE_WITHIN_S = 0.5
LARGE_WRITE_BYTES = 4096
KILLS_MAX = 200
"""Maximum number of kills. About one in five leaves a torn tail, so this many suffice."""

Acknowledged = dict[int, tuple[int, int]]


def value_of(number: int, seed: int) -> bytes:
    """Return a message: its number and 1 B to 1 MB of filling. Small and large sizes are as
    frequent.
    """
    random = Random(seed * 1_000_003 + number)
    size = int(VALUE_BYTES_MAX ** random.random())
    return b"%d:" % number + bytes([number % 251]) * size


def reserve_port() -> socket.socket:
    """Return a socket that reserves a port of the loopback while it is open, also between brokers.

    No process gets the port by chance. Only a process that asks for this port, with SO_REUSEADDR,
    may listen there."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


class Killer:
    """Runs brokers in sequence on the same directory and port."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.random = Random(seed)
        self.log = (directory.parent / f"{directory.name}.log").open("ab")
        self.reserved = reserve_port()
        self.port = self.reserved.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "odradek", "serve", "--listen", self.address]
        # Topics are created by the first message. Segments are small, so that they roll as well.
        command += ["--data", str(self.directory), "--set", f"num.partitions={PARTITIONS}"]
        command += ["--set", "log.segment.bytes=8388608"]
        for setting in self.extra_settings():
            command += ["--set", setting]
        self.process = subprocess.Popen(command, stderr=self.log, stdout=self.log)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, "the broker ended by itself"
                time.sleep(0.01)
        raise AssertionError("the broker does not start")

    def close(self) -> None:
        self.log.close()
        self.reserved.close()

    def extra_settings(self) -> tuple[str, ...]:
        """Return further settings of the brokers."""
        return ()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def kill_later(self) -> threading.Thread:
        """Kill at a random time; in most cases, when a log file grows after that time."""
        delay_s = self.random.random() * KILL_AFTER_S_MAX
        aimed = self.random.random() < AIMED_SHARE

        def run() -> None:
            time.sleep(delay_s)
            if aimed:
                self._await_write()
            self.kill()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def _await_write(self) -> None:
        """Return when a large write has begun: a file grows by pages, so it is seen half
        written.
        """
        paths = [str(path) for path in self.directory.glob("t-*/*.log")]
        sizes = [os.stat(path).st_size for path in paths]  # noqa: PTH116 - each call costs
        deadline = time.monotonic() + WRITE_WITHIN_S
        while time.monotonic() < deadline:
            for path, size in zip(paths, sizes, strict=True):
                if os.stat(path).st_size > size + LARGE_WRITE_BYTES:  # noqa: PTH116
                    return

    def torn_tails(self) -> int:
        """Return how many torn tails were cut, according to the brokers' log."""
        return len(re.findall(r"cut \d+ torn bytes", Path(self.log.name).read_text("utf-8")))


class Writer:
    """An idempotent producer that outlives the brokers, and its acknowledgements."""

    def __init__(self, address: str, seed: int) -> None:
        self.seed = seed
        self.sent: dict[int, int] = {}
        self.acknowledged: Acknowledged = {}
        self.failed: list[str] = []
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.max.bytes": 1_048_000,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )

    def send(self) -> None:
        """Send one more message, and handle pending delivery reports."""
        number = len(self.sent)
        partition = self.sent[number] = number % PARTITIONS
        value = value_of(number, self.seed)
        self.producer.produce("t", value, partition=partition, on_delivery=self._delivered)
        self.producer.poll(0)

    def live(self, killer: Killer) -> None:
        """Send until this broker responds, and continue until it is killed in the middle of it."""
        known = len(self.acknowledged)
        limit = len(self.sent) + MESSAGES_PER_LIFE_MAX
        self.send()
        deadline = time.monotonic() + FLUSH_S
        while len(self.acknowledged) == known:
            assert time.monotonic() < deadline, "the broker does not respond"
            self.producer.poll(0.01)
        thread = killer.kill_later()
        while thread.is_alive() and len(self.sent) < limit:
            if len(self.sent) - len(self.acknowledged) < OUTSTANDING_MAX:
                self.send()
            else:
                self.producer.poll(0.001)
        thread.join()

    def _delivered(self, error: Any, message: Any) -> None:
        number = int(message.value().split(b":")[0])
        if error is not None:
            self.failed.append(f"{number}: {error}")
        else:
            self.acknowledged[number] = (message.partition(), message.offset())


def stored(directory: Path, partition: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, number) of every record on the disk, after a check of each CRC."""
    files = sorted((directory / f"t-{partition}").glob("*.log"))
    for path in files:
        data = memoryview(path.read_bytes())
        size = 0
        for batch in iter_batches(data):
            assert crc_is_valid(batch), f"{path}: a torn batch at {parse_header(batch).base_offset}"
            size += len(batch)
            for record in iter_records(batch):
                yield record.offset, int((record.value or b"").split(b":")[0])
        assert size == len(data), f"{path}: {len(data) - size} bytes are no batch"


def fetched(address: str, partition: int, end: int) -> list[tuple[int, int]]:
    """Return (offset, number) of every record as a consumer reads it."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "books", "log_level": 0, "check.crcs": True}
    )
    found: list[tuple[int, int]] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", partition, 0)])
        while len(found) < end:
            messages = consumer.consume(min(500, end - len(found)), FLUSH_S)
            assert messages, f"partition {partition}: {len(found)} of {end} records came"
            for message in messages:
                assert message.error() is None, message.error()
                found.append((message.offset(), int(message.value().split(b":")[0])))
    finally:
        consumer.close()
    return found


def reconcile(directory: Path, address: str, writer: Writer) -> int:
    """Compare the acknowledged messages with the stored ones. Return the number of records."""
    assert not writer.failed, writer.failed[:5]
    by_partition: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for partition in range(PARTITIONS):
        records = by_partition[partition] = list(stored(directory, partition))
        assert [offset for offset, _ in records] == list(range(len(records)))
        numbers = [number for _, number in records]
        assert len(set(numbers)) == len(numbers), "a message is there twice"
        assert numbers == sorted(numbers), "messages are out of order"
        assert fetched(address, partition, len(records)) == records
    for number, (partition, offset) in writer.acknowledged.items():
        assert by_partition[partition][offset] == (offset, number), f"{number} is lost"
    assert len(writer.acknowledged) == len(writer.sent)
    return len(writer.sent)


def run(directory: Path, kills: int, seed: int, torn_tails: int = 0) -> tuple[int, int]:
    """Kill `kills` times and continue until `torn_tails` were cut, then compare the data.

    Returns:
        The number of messages, and the number of torn tails that were cut.
    """
    killer = Killer(directory, seed)
    killer.start()
    writer = Writer(killer.address, seed)
    done = 0
    try:
        while done < kills or (killer.torn_tails() < torn_tails and done < KILLS_MAX):
            writer.live(killer)
            killer.start()
            done += 1
        assert writer.producer.flush(FLUSH_S) == 0
        messages = reconcile(directory, killer.address, writer)
    finally:
        killer.kill()
        killer.close()
        writer.producer.purge()
    return messages, killer.torn_tails()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)

    def result() -> dict[str, int]:
        with tempfile.TemporaryDirectory() as directory:
            messages, torn = run(Path(directory) / "data", arguments.kills, arguments.seed)
        return {
            "seed": arguments.seed,
            "kills": arguments.kills,
            "messages": messages,
            "torn_tails": torn,
        }

    return print_result(result)


if __name__ == "__main__":
    sys.exit(main())
