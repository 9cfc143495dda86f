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

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 10


class BrokerFailed(Exception):
    """The broker did not start. The message names its log."""


@contextlib.contextmanager
def running_broker(data_dir: Path, log_file: Path) -> Iterator[str]:
    """Run a broker on a free port of the loopback interface. Yield its address when it responds."""
    with _reserved_port() as port:
        yield from _run(f"127.0.0.1:{port}", data_dir, log_file)


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


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """Reserve a free port of the loopback interface until the broker listens on it.

    The bound socket keeps the system from assigning the port to another program. On Linux another
    socket with SO_REUSEADDR, such as the broker's, can still listen on it.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        assert isinstance(port, int)
        yield port


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
