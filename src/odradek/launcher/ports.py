"""Free ports of the loopback interface, kept for processes that start later."""

from __future__ import annotations

import socket
from typing import Self

from odradek.launcher.plan import HOST


class ReservedPorts:
    """Ports that the system assigns to no other program until `close`.

    A bound socket reserves each port. On Linux another socket with SO_REUSEADDR, such as the one of
    a broker or of ZooKeeper, can still listen on it.
    """

    def __init__(self, count: int) -> None:
        self._sockets = [socket.socket() for _ in range(count)]
        self.ports: list[int] = []
        for each in self._sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind((HOST, 0))
            self.ports.append(each.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the ports. A second call does nothing."""
        for each in self._sockets:
            each.close()
