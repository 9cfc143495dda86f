"""Starts of the registry: `make evidence-registry-start`.

The figures are the time from the start of the process `odradek registry serve` to the first
response, with many schemas in the topic, its memory after that, and the time until further
`Registry(broker)` of one process are ready.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.processes import memory_bytes
from benchmarks.registry_reads import schema_text
from benchmarks.startup import run_script
from benchmarks.tables import MIB
from odradek.registry.kafka_settings import KafkaSettings
from odradek.registry.records import SchemaRecord, encode
from odradek.registry.schemas_topic import prepare_topic
from testkit.peer.artifacts import ROOT
from testkit.peer.server import free_ports, start_odradek

SCHEMAS = 10_000
REPEATS = 7
TIMEOUT_S = 120.0
POLL_S = 0.005

SECOND = """
import time
from odradek.testing import Broker, Registry
taken = []
with Broker() as broker:
    for _ in range(10):
        broker.reset()
        began = time.perf_counter()
        with Registry(broker):
            taken.append((time.perf_counter() - began) * 1000)
print(taken[1:])
"""


@contextmanager
def filled_broker(directory: Path, schemas: int) -> Iterator[str]:
    """Yield the address of a broker whose topic has so many schemas, each of its own subject."""
    with start_odradek(directory) as broker:
        prepare_topic(KafkaSettings(broker.bootstrap))
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number in range(1, schemas + 1):
            record = SchemaRecord(f"subject-{number:06}", 1, number, schema_text(number))
            key, value = encode(record)
            producer.produce("_schemas", value, key, 0)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        yield broker.bootstrap


def start(address: str, schemas: int) -> dict[str, float]:
    """Return the time in seconds until an instance has responded, and its memory in bytes."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "odradek", "registry", "serve"]
    began = time.perf_counter()
    with subprocess.Popen(
        [*command, "--listen", f"127.0.0.1:{port}", "--bootstrap-server", address],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _wait_for(port, f"/schemas/ids/{schemas}", began)
            ready_s = time.perf_counter() - began
            return {"ready_s": ready_s, "memory_bytes": float(memory_bytes(process.pid))}
        finally:
            process.terminate()


def second() -> list[float]:
    """Return the times in milliseconds until further registries of one process were ready."""
    return run_script(SECOND)


def _wait_for(port: int, path: str, began: float) -> None:
    """Return when a request has the status 200. Connections are refused before."""
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path)
            assert connection.getresponse().status == 200
            return
        except ConnectionRefusedError:
            assert time.perf_counter() - began < TIMEOUT_S
            time.sleep(POLL_S)
        finally:
            connection.close()


def main() -> None:
    """Print all values."""
    import tempfile

    with (
        tempfile.TemporaryDirectory() as work,
        filled_broker(Path(work) / "broker", SCHEMAS) as address,
    ):
        for _ in range(REPEATS):
            found = start(address, SCHEMAS)
            print(f"ready {found['ready_s']:.2f} s, {found['memory_bytes'] / MIB:.1f} MiB")
    print("second registry, ms:", *(f"{value:.0f}" for value in second()))


if __name__ == "__main__":
    main()
