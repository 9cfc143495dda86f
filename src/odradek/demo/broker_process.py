"""The demo's broker: `odradek serve` as a process of its own, as a user would start it."""

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
    """The broker did not start; the message says where its log is."""


@contextlib.contextmanager
def running_broker(data_dir: Path, log_file: Path) -> Iterator[str]:
    """Runs a broker on a free port of the loopback; its bootstrap address once it answers."""
    with _reserved_port() as port:
        yield from _run(f"127.0.0.1:{port}", data_dir, log_file)


def _run(address: str, data_dir: Path, log_file: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "odradek", "serve", "--listen", address]
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [*command, "--data", str(data_dir)], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_it_answers(process, address, log_file)
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
    """A free port of the loopback that nobody is given by chance until the broker listens there: a
    bound socket keeps it, and on Linux lets another with SO_REUSEADDR, as the broker's, listen.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        assert isinstance(port, int)
        yield port


def _wait_until_it_answers(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    # The port is asked first: a client that found nobody there would complain on stderr.
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
    raise BrokerFailed(f"the broker did not start; its log is {log}")
