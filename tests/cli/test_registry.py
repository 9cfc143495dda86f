"""`odradek registry serve` and `odradek serve --registry` as processes."""

from __future__ import annotations

import importlib.util
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
from pathlib import Path

import httpx
import pytest

from odradek.cli import extras
from odradek.cli.output import CommandError
from odradek.testing import Broker
from testkit.peer.server import free_ports

TIMEOUT_S = 120.0
STOP_S_MAX = 10.0
SECRET = "wonderland-7"
LISTENS = re.compile(r"the registry listens on ([^ ]+) and advertises")
STARTED = re.compile(r"started the schema registry with pid (\d+)")


class Process:
    """A running command and its log up to now."""

    def __init__(self, *arguments: str, cwd: Path | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "odradek", *arguments], stderr=subprocess.PIPE, cwd=cwd
        )
        self.log = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: re.Pattern[str], count: int = 1) -> list[str]:
        """Return the first groups of all matches in the log, when there are `count` of them."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: len(pattern.findall(self.log)) >= count or not self._reader.is_alive(),
                TIMEOUT_S,
            )
        matches = pattern.findall(self.log)
        assert found and len(matches) >= count, self.log
        return matches

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        descriptor = self.process.stderr.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while selector.select() and (text := os.read(descriptor, 65_536)):
                with self._changed:
                    self.log += text.decode()
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


@contextmanager
def running(*arguments: str, cwd: Path | None = None) -> Iterator[Process]:
    process = Process(*arguments, cwd=cwd)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)


def refused(*arguments: str) -> str:
    """Return the one line of a command that ends with an error."""
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("odradek: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def serves(url: str) -> bool:
    try:
        return httpx.get(url, timeout=TIMEOUT_S).status_code == 200
    except httpx.TransportError:
        return False


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie, whose parent has not waited for it, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_it_serves_until_sigterm_and_ends_in_time(kafka: Broker) -> None:
    options = ("--listen", "127.0.0.1:0", "--bootstrap-server", kafka.bootstrap_servers)
    with running("registry", "serve", *options) as registry:
        (address,) = registry.wait_for(LISTENS)
        body = {"schema": '{"type":"string"}'}
        response = httpx.post(f"http://{address}/subjects/a/versions", json=body, timeout=TIMEOUT_S)
        assert response.json()["id"] == 1
        began_s = time.monotonic()
        assert registry.end() == 0
        assert time.monotonic() - began_s < STOP_S_MAX
    assert "Traceback" not in registry.log
    assert "this instance is the writer of topic '_schemas'" in registry.log
    assert "the registry has stopped" in registry.log


def test_it_ends_on_sigterm_while_it_waits_for_brokers() -> None:
    (port,) = free_ports(1)
    options = ("--listen", "127.0.0.1:0", "--bootstrap-server", f"127.0.0.1:{port}")
    with running("registry", "serve", *options) as registry:
        registry.wait_for(re.compile("the start of the registry (waits)"))
        began_s = time.monotonic()
        assert registry.end() == 0
        assert time.monotonic() - began_s < STOP_S_MAX


def test_it_ends_in_time_when_the_brokers_are_gone() -> None:
    with Broker() as broker:
        options = ("--listen", "127.0.0.1:0", "--bootstrap-server", broker.bootstrap_servers)
        process = Process("registry", "serve", *options)
        process.wait_for(re.compile("this instance is (the writer)"))
    began_s = time.monotonic()
    assert process.end() == 0
    assert time.monotonic() - began_s < STOP_S_MAX


def test_passwords_never_appear_in_the_log(kafka: Broker, tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text(f"kafka.sasl.password={SECRET}\nkafka.sasl.username={SECRET}-user\n")
    options = ("--listen", "127.0.0.1:0", "--bootstrap-server", kafka.bootstrap_servers)
    command = ("registry", "serve", *options, "--config", str(file), "--log-level", "debug")
    with running(*command) as registry:
        registry.wait_for(LISTENS)
        registry.end()
    assert SECRET not in registry.log


def test_configs_of_the_file_are_replaced_by_options(kafka: Broker, tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text("listeners=http://127.0.0.1:1\nschema.compatibility.level=NONE\nunknown=1\n")
    options = ("--listen", "127.0.0.1:0", "--bootstrap-server", kafka.bootstrap_servers)
    sets = ("--set", "schema.compatibility.level=FULL")
    with running("registry", "serve", *options, "--config", str(file), *sets) as registry:
        (address,) = registry.wait_for(LISTENS)
        config = httpx.get(f"http://{address}/config", timeout=TIMEOUT_S).json()
        assert config["compatibilityLevel"] == "FULL"
        assert "unknown configs are ignored, check their spelling: unknown" in registry.log


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--listen", "8081"], "--listen takes HOST:PORT"),
        (["--config", "missing.properties"], "missing.properties"),
        (["--set", "schema.compatibility.level=UP"], "schema.compatibility.level"),
        (["--advertise", "registry"], "--advertise"),
        (["--topic", "a b"], "--topic"),
        (["--log-level", "loud"], "--log-level"),
        (["-X", f"sasl.password:{SECRET}"], "--kafka-option takes KEY=VALUE"),
        (["-X", f"group.id={SECRET}"], "group.id"),
    ],
)
def test_a_wrong_option_is_one_line_without_values(arguments: list[str], expected: str) -> None:
    line = refused("registry", "serve", *arguments)
    assert expected in line
    assert SECRET not in line


def test_a_refused_topic_is_one_line(kafka: Broker) -> None:
    kafka.create_topic("_schemas", partitions=3, config={"cleanup.policy": "compact"})
    options = ("--listen", "127.0.0.1:0", "--bootstrap-server", kafka.bootstrap_servers)
    assert "has 3 partitions" in refused("registry", "serve", *options)


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        extras, "find_spec", lambda name: None if name == "uvicorn" else find_spec(name)
    )
    with pytest.raises(
        CommandError, match=r"uvicorn is missing: pip install 'odradek\[registry\]'"
    ):
        extras.need_registry_server()


@contextmanager
def broker_with_registry(data: Path, cwd: Path | None = None) -> Iterator[tuple[Process, str]]:
    """Yield `odradek serve --registry` and the URL of its registry."""
    (port,) = free_ports(1)
    options = ("--listen", "127.0.0.1:0", "--data", str(data))
    with running("serve", *options, "--registry", f"127.0.0.1:{port}", cwd=cwd) as broker:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: serves(url))
        yield broker, url


def test_a_broker_runs_a_registry_beside_it_and_ends_it(tmp_path: Path) -> None:
    with broker_with_registry(tmp_path / "data") as (broker, url):
        body = {"schema": '{"type":"string"}'}
        response = httpx.post(f"{url}/subjects/a/versions", json=body, timeout=TIMEOUT_S)
        assert response.json()["id"] == 1
        (pid,) = broker.wait_for(STARTED)
        began_s = time.monotonic()
        assert broker.end() == 0
        assert time.monotonic() - began_s < STOP_S_MAX
        assert not is_alive(int(pid))
        assert "Traceback" not in broker.log


def test_the_registry_runs_no_modules_of_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('a module of the current directory')")
    with broker_with_registry(tmp_path / "data", cwd=tmp_path) as (broker, url):
        assert httpx.get(f"{url}/subjects", timeout=TIMEOUT_S).json() == []
        assert "current directory" not in broker.log


def test_the_broker_goes_on_and_starts_a_killed_registry_again(tmp_path: Path) -> None:
    with broker_with_registry(tmp_path / "data") as (broker, url):
        body = {"schema": '{"type":"string"}'}
        httpx.post(f"{url}/subjects/a/versions", json=body, timeout=TIMEOUT_S)
        (pid,) = broker.wait_for(STARTED)
        os.kill(int(pid), signal.SIGKILL)
        broker.wait_for(STARTED, count=2)
        wait_until(lambda: serves(url))
        assert httpx.get(f"{url}/subjects", timeout=TIMEOUT_S).json() == ["a"]
        assert "signal SIGKILL. It is started again in 0.5 s" in broker.log


def test_the_registry_ends_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    with broker_with_registry(tmp_path / "data") as (broker, _):
        (pid,) = broker.wait_for(STARTED)
        broker.process.kill()
        wait_until(lambda: not is_alive(int(pid)))
        broker.wait()


def test_a_malformed_address_of_the_registry_is_one_line(tmp_path: Path) -> None:
    line = refused("serve", "--data", str(tmp_path), "--registry", "8081")
    assert line == "odradek: --registry takes HOST:PORT, not '8081'."
