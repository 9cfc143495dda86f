"""ZooKeeper as a child process for tests, on a free loopback port.

`ZooKeeperProcess.stop` or the end of `with` ends it. Its data are in the caller's directory, and
are not synced unless the caller asks for it.
"""

from __future__ import annotations

from pathlib import Path

from odradek.launcher.plan import HOST, TICK_MS, ZooKeeperPlan
from odradek.launcher.programs import ZooKeeperUnavailable
from odradek.launcher.readiness import zookeeper_serves
from odradek.launcher.zookeeper import ZooKeeperServer as ZooKeeperProcess
from testkit.peer.server import free_ports

__all__ = [
    "TICK_MS",
    "ZooKeeperProcess",
    "ZooKeeperUnavailable",
    "prepared_zookeeper",
    "serves",
    "start_zookeeper",
]


def start_zookeeper(directory: Path, *, syncs: bool = False) -> ZooKeeperProcess:
    """Start a server and wait until it serves.

    Args:
        directory: The place of its data, its configuration and its log. Created if missing.
        syncs: Whether a write is synced to the disk before its response.
    """
    server = prepared_zookeeper(directory, syncs=syncs)
    server.start()
    return server


def prepared_zookeeper(directory: Path, *, syncs: bool = False) -> ZooKeeperProcess:
    """Return a server that is not started. The arguments are those of `start_zookeeper`."""
    (port,) = free_ports(1)
    return ZooKeeperProcess(ZooKeeperPlan(port, directory / "server", syncs))


def serves(port: int) -> bool:
    """Return whether a ZooKeeper at the port of this host responds."""
    return zookeeper_serves(HOST, port)
