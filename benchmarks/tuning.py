"""The settings of the two compared brokers, for the record of the figures."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from odradek.net.limits import SEND_BUFFER_BYTES
from odradek.net.listener import UNPACED
from testkit.peer.server import KAFKA_HEAP, KAFKA_JVM

CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
# socket.send.buffer.bytes and socket.receive.buffer.bytes of Apache Kafka 4.3.
KAFKA_SOCKET_BUFFER_BYTES = 102_400

Tuning = dict[str, dict[str, str]]


def as_shipped() -> Tuning:
    """Both brokers with their defaults, and their data in the temporary directory."""
    system = _congestion_control()
    with tempfile.TemporaryDirectory() as directory:
        disk = _file_system(Path(directory))
    return {
        "odradek": {
            "congestion control": f"{UNPACED.decode()} for loopback peers (the system: {system})",
            "send buffer": f"{SEND_BUFFER_BYTES} bytes",
            "file system": disk,
            "storage": "SQLite for metadata, empty before the run",
        },
        "kafka": {
            "congestion control": f"{system}, the system's",
            "send buffer": f"{KAFKA_SOCKET_BUFFER_BYTES} bytes",
            "file system": disk,
            "storage": "KRaft, one node, formatted before the run",
            "JVM": " ".join((KAFKA_HEAP, *KAFKA_JVM)),
        },
    }


def equal_tuning() -> Tuning:
    """Both brokers in a network namespace of their own, with equal send buffers."""
    equal = {
        "congestion control": f"{UNPACED.decode()}, the default of a network namespace of its own",
        "send buffer": f"{SEND_BUFFER_BYTES} bytes",
    }
    return {name: {**shipped, **equal} for name, shipped in as_shipped().items()}


def _congestion_control() -> str:
    try:
        return CONGESTION.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _file_system(path: Path) -> str:
    command = ["stat", "--file-system", "--format=%T", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
