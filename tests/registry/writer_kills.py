"""Kills the writer of two instances under load: `make evidence-registry-kills`.

`python -m tests.registry.writer_kills --kills N --seed S` prints the result as JSON. Several
clients register schemas at both instances. A kill follows a random number of acknowledged
registrations. At the end, no id was given to two schemas, and both instances have each schema
under its acknowledged id.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import httpx

from odradek.testing import Broker
from testkit.result_line import print_result

TIMEOUT_S = 120.0
POLL_S = 0.02
SHORT_SESSION = {"session.timeout.ms": "1000", "heartbeat.interval.ms": "200"}
"""A killed writer is replaced after a second. Brokers permit it by `GROUP_CONFIG`."""
GROUP_CONFIG = {"group.min.session.timeout.ms": 500}
CLIENTS = 4
ACKNOWLEDGED_BETWEEN_KILLS_MAX = 100
LISTENS = re.compile(r"the registry listens on ([^ ]+) and advertises")
UNCERTAIN = (50001, 50002, 50003, 50004)
"""Errors after which a client tries again."""


def schema(number: int) -> str:
    """Return the text of an Avro schema."""
    return f'{{"type":"record","name":"R{number}","fields":[]}}'


def register(url: str, subject: str, text: str) -> httpx.Response:
    """Register a schema at one instance."""
    return httpx.post(
        f"{url}/subjects/{subject}/versions", json={"schema": text}, timeout=TIMEOUT_S
    )


def wait_until(condition: str, is_true: Callable[[], bool]) -> None:
    """Poll a function until it returns True."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline_s, f"waited for {condition}"
        time.sleep(POLL_S)


class InstanceProcess:
    """`odradek registry serve` as a process, with its URL."""

    def __init__(self, servers: str) -> None:
        properties = [f"-X{name}={value}" for name, value in SHORT_SESSION.items()]
        command = [sys.executable, "-m", "odradek", "registry", "serve", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*command, "--bootstrap-server", servers, *properties],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = ""
        self.url = f"http://{self._wait_for(LISTENS)[1]}"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_writer(self) -> bool:
        lines = [line for line in self.log.splitlines() if "the writer of topic" in line]
        return bool(lines) and "this instance is the writer" in lines[-1]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def _wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        assert self.process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while selector.select(TIMEOUT_S):
                text = os.read(self.process.stderr.fileno(), 65_536).decode()
                self.log += text
                if found := pattern.search(self.log):
                    return found
                if not text:
                    break
        self.process.kill()
        raise AssertionError(f"the instance did not start: {self.log}")

    def _read(self) -> None:
        assert self.process.stderr is not None
        while text := os.read(self.process.stderr.fileno(), 65_536):
            self.log += text.decode()


@contextmanager
def two_processes(servers: str) -> Iterator[list[InstanceProcess]]:
    """Yield two instances. The test may replace them in the list."""
    instances: list[InstanceProcess] = []
    try:
        for _ in range(2):
            instances.append(InstanceProcess(servers))
        yield instances
    finally:
        for each in instances:
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


class Load:
    """Threads that register schemas at all instances in turn, and keep the acknowledged ids.

    The address list changes while they run. A request without a response is repeated with the same
    schema, as clients do.
    """

    def __init__(self, instances: list[InstanceProcess], clients: int = CLIENTS) -> None:
        self._instances = instances
        self._is_ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(client, clients), daemon=True)
            for client in range(clients)
        ]
        self.acknowledged: dict[int, int] = {}
        self.failures: list[str] = []

    def __enter__(self) -> Load:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended.set()
        for each in self._threads:
            each.join(TIMEOUT_S)
            assert not each.is_alive()

    def wait_for(self, more: int) -> None:
        """Return when so many more registrations are acknowledged."""
        count = len(self.acknowledged) + more
        wait_until("progress", lambda: len(self.acknowledged) >= count)

    def _run(self, number: int, clients: int) -> None:
        while not self._is_ended.is_set():
            schema_id = self._register(number)
            if schema_id is not None:
                self.acknowledged[number] = schema_id
                number += clients

    def _register(self, number: int) -> int | None:
        url = self._instances[number % len(self._instances)].url
        for attempt_url in (url, *(each.url for each in self._instances)):
            with contextlib.suppress(httpx.HTTPError):
                response = register(attempt_url, f"s{number}", schema(number))
                if response.status_code == 200:
                    schema_id: int = response.json()["id"]
                    return schema_id
                if response.json()["error_code"] not in UNCERTAIN:
                    self.failures.append(response.text)
        return None


def writer_of(instances: list[InstanceProcess]) -> int:
    """Return the index of the writer, when there is one."""
    wait_until("a writer", lambda: any(each.is_writer for each in instances))
    (writer,) = [number for number in (0, 1) if instances[number].is_writer]
    return writer


def kill_writers(kills: int, seed: int) -> dict[str, int]:
    """Kill the writer `kills` times, and compare the schemas with the acknowledged ids.

    Raises:
        AssertionError: An id was given twice, a schema is lost, or a registration failed.
    """
    random = Random(seed)
    with Broker(GROUP_CONFIG) as broker, two_processes(broker.bootstrap_servers) as instances:
        with Load(instances) as load:
            for _ in range(kills):
                load.wait_for(random.randint(1, ACKNOWLEDGED_BETWEEN_KILLS_MAX))
                killed = writer_of(instances)
                instances[killed].end(signal.SIGKILL)
                instances[killed] = InstanceProcess(broker.bootstrap_servers)
            load.wait_for(1)
        assert load.failures == [], load.failures
        ids = list(load.acknowledged.values())
        assert len(set(ids)) == len(ids), f"ids given twice: {load.acknowledged}"
        for each in instances:
            _compare(each, load.acknowledged)
    return {"seed": seed, "kills": kills, "schemas": len(ids)}


def _compare(instance: InstanceProcess, acknowledged: dict[int, int]) -> None:
    with httpx.Client(base_url=instance.url, timeout=TIMEOUT_S) as client:
        for number, schema_id in acknowledged.items():
            found = client.get(f"/schemas/ids/{schema_id}").json()
            assert found.get("schema") == schema(number), f"lost: {number}, {schema_id}: {found}"


def main() -> int:
    """Kill writers. Return 1 if a schema was lost or an id was given twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.registry.writer_kills")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    return print_result(lambda: kill_writers(options.kills, options.seed))


if __name__ == "__main__":
    sys.exit(main())
