"""The settings of the two compared brokers, for the record of the figures."""

from __future__ import annotations

import tempfile
from pathlib import Path

from odradek.environment.sockets import UNPACED
from odradek.net.limits import SEND_BUFFER_BYTES
from testkit.peer.server import KAFKA_HEAP, KAFKA_JVM

MOUNTS = Path("/proc/self/mounts")
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
            "receive buffer": "tuned by the system",
            "file system": disk,
            "storage": "SQLite for metadata, empty before the run",
        },
        "kafka": {
            "congestion control": f"{system}, the system's",
            "send buffer": f"{KAFKA_SOCKET_BUFFER_BYTES} bytes",
            "receive buffer": f"{KAFKA_SOCKET_BUFFER_BYTES} bytes",
            "file system": disk,
            "storage": "KRaft, one node, formatted before the run",
            "JVM": " ".join((KAFKA_HEAP, *KAFKA_JVM)),
        },
    }


def cluster_tuning() -> Tuning:
    """Clusters of three brokers with their defaults, apart from the replication factors."""
    found = as_shipped()
    common = {
        "topics": "3 replicas, min.insync.replicas 2",
        "producers": "idempotent, acks=all",
    }
    found["odradek"] |= {"storage": "ZooKeeper of one server, which syncs each write", **common}
    found["kafka"] |= {"storage": "KRaft, three combined nodes, formatted before the run", **common}
    return found


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
    """Return the type of the file system from the longest mount point above the path."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return "unknown"
    return file_system(lines, path.resolve())


def file_system(mounts: list[str], path: Path) -> str:
    """Return the type for a path, from lines of proc(5)'s mounts. A later mount hides others."""
    found, longest = "unknown", -1
    for line in mounts:
        _, point, kind, *_ = line.split()
        if path.is_relative_to(point) and len(point) >= longest:
            found, longest = kind, len(point)
    return found
