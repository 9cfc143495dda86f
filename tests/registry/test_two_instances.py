"""Several instances on one topic: forwarding, own writes, and the end of the writer."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from odradek.testing import Broker, Registry

TIMEOUT_S = 120.0
SHORT_SESSION = {"session.timeout.ms": "1000", "heartbeat.interval.ms": "200"}
"""A killed writer is replaced after a second. Brokers permit it by `GROUP_CONFIG`."""
GROUP_CONFIG = {"group.min.session.timeout.ms": 500}
KILLS = 3
"""Kills of the writer in each run of the tests. docs/registry.md has the result of a long run."""
LISTENS = re.compile(r"the registry listens on ([^ ]+) and advertises")


def schema(number: int) -> str:
    return f'{{"type":"record","name":"R{number}","fields":[]}}'


def register(url: str, subject: str, text: str) -> httpx.Response:
    return httpx.post(
        f"{url}/subjects/{subject}/versions", json={"schema": text}, timeout=TIMEOUT_S
    )


def wait_until(condition: str, is_true: object) -> None:
    """Poll a function until it returns True."""
    assert callable(is_true)
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline_s, f"waited for {condition}"
        time.sleep(0.02)


@pytest.fixture
def pair(kafka: Broker) -> Iterator[tuple[Registry, Registry]]:
    """The writer and a follower."""
    with Registry(kafka) as first:
        wait_until("a writer", lambda: first.is_writer)
        with Registry(kafka) as second:
            yield first, second


def test_a_follower_forwards_writes_and_reads_its_own(pair: tuple[Registry, Registry]) -> None:
    writer, follower = pair
    for number in range(20):
        response = register(follower.url, f"s{number}", schema(number))
        assert response.status_code == 200, response.text
        found = httpx.get(f"{follower.url}/schemas/ids/{response.json()['id']}", timeout=TIMEOUT_S)
        assert found.status_code == 200
    assert writer.is_writer and not follower.is_writer


def test_the_writer_keeps_its_role_when_another_instance_joins(
    pair: tuple[Registry, Registry],
) -> None:
    writer, follower = pair
    assert register(follower.url, "a", schema(1)).status_code == 200
    assert writer.is_writer and not follower.is_writer


def test_both_instances_give_the_same_id_to_the_same_schema(
    pair: tuple[Registry, Registry],
) -> None:
    ids = [register(each.url, "a", schema(1)).json()["id"] for each in pair]
    ids += [register(each.url, "b", schema(1)).json()["id"] for each in pair]
    assert len(set(ids)) == 1


def test_errors_of_the_writer_are_the_errors_of_the_follower(
    pair: tuple[Registry, Registry],
) -> None:
    responses = [register(each.url, "a", '{"type":"nothing"}') for each in pair]
    assert [each.status_code for each in responses] == [422, 422]
    assert responses[0].json() == responses[1].json()


def test_a_follower_takes_over_when_the_writer_stops(kafka: Broker) -> None:
    first = Registry(kafka).start()
    wait_until("a writer", lambda: first.is_writer)
    with Registry(kafka) as second:
        ids = [register(second.url, "a", schema(1)).json()["id"]]
        first.close()
        response = register(second.url, "b", schema(2))
        assert response.status_code == 200, response.text
        ids.append(response.json()["id"])
        assert ids == [1, 2]
        assert second.is_writer


def test_registries_of_two_topics_are_independent(kafka: Broker) -> None:
    with Registry(kafka) as one, Registry(kafka, topic="schemas.two") as two:
        assert register(one.url, "a", schema(1)).json()["id"] == 1
        assert register(two.url, "a", schema(2)).json()["id"] == 1
        subjects = [
            httpx.get(f"{each.url}/subjects", timeout=TIMEOUT_S).json() for each in (one, two)
        ]
    assert subjects == [["a"], ["a"]]


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
    """A thread that registers schemas at all instances in turn, and keeps the acknowledged ids.

    The address list changes while it runs. A request without a response is repeated with the same
    schema, as clients do.
    """

    def __init__(self, instances: list[InstanceProcess]) -> None:
        self._instances = instances
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: dict[int, int] = {}
        self.failures: list[str] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        while not self._is_ended.is_set():
            schema_id = self._register(number)
            if schema_id is not None:
                self.acknowledged[number] = schema_id
                number += 1

    def _register(self, number: int) -> int | None:
        url = self._instances[number % len(self._instances)].url
        for attempt_url in (url, *(each.url for each in self._instances)):
            with contextlib.suppress(httpx.HTTPError):
                response = register(attempt_url, f"s{number}", schema(number))
                if response.status_code == 200:
                    schema_id: int = response.json()["id"]
                    return schema_id
                if response.json()["error_code"] not in (50001, 50002, 50003, 50004):
                    self.failures.append(response.text)
        return None


def test_no_id_is_given_twice_or_lost_when_the_writer_is_killed_under_load() -> None:
    with Broker(GROUP_CONFIG) as broker, two_processes(broker.bootstrap_servers) as instances:
        with Load(instances) as load:
            for _ in range(KILLS):
                acknowledged = len(load.acknowledged)
                wait_until("progress", lambda count=acknowledged: len(load.acknowledged) > count)
                wait_until("a writer", lambda: any(each.is_writer for each in instances))
                (killed,) = [number for number in (0, 1) if instances[number].is_writer]
                instances[killed].end(signal.SIGKILL)
                instances[killed] = InstanceProcess(broker.bootstrap_servers)
            acknowledged = len(load.acknowledged)
            wait_until("progress", lambda: len(load.acknowledged) > acknowledged)
        assert load.failures == []
        ids = list(load.acknowledged.values())
        assert len(set(ids)) == len(ids)
        for each in instances:
            for number, schema_id in load.acknowledged.items():
                found = httpx.get(f"{each.url}/schemas/ids/{schema_id}", timeout=TIMEOUT_S)
                assert found.json()["schema"] == schema(number), (number, schema_id)


def test_an_instance_ends_on_sigterm_and_the_other_one_takes_over() -> None:
    with Broker(GROUP_CONFIG) as broker, two_processes(broker.bootstrap_servers) as instances:
        wait_until("a writer", lambda: any(each.is_writer for each in instances))
        (stopped,) = [number for number in (0, 1) if instances[number].is_writer]
        began_s = time.monotonic()
        assert instances[stopped].end(signal.SIGTERM) == 0
        assert time.monotonic() - began_s < 10.0
        other = instances[1 - stopped]
        assert register(other.url, "a", schema(1)).status_code == 200
        wait_until("the other writer", lambda: other.is_writer)
