"""The demo's broker, a process that runs `odradek serve`."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from odradek.launcher.plan import HOST
from odradek.launcher.ports import ReservedPorts

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 10


class BrokerFailed(Exception):
    """The broker did not start. The message names its log."""


@contextlib.contextmanager
def running_broker(data_dir: Path, log_file: Path) -> Iterator[str]:
    """Run a broker on a free port of the loopback interface. Yield its address when it responds."""
    with ReservedPorts(1) as reserved:
        yield from _run(f"{HOST}:{reserved.ports[0]}", data_dir, log_file)


def _run(address: str, data_dir: Path, log_file: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "odradek", "serve", "--listen", address]
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [*command, "--data", str(data_dir)], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_ready(process, address, log_file)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    # Connect to the port first, because librdkafka logs a refused connection on stderr.
    host, port = address.split(":")
    until = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), timeout=1).close()
            with contextlib.suppress(KafkaException):
                AdminClient({"bootstrap.servers": address}).list_topics(timeout=5)
                return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    raise BrokerFailed(f"The broker did not start. See its log {log}.")
