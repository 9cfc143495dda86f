"""The links between brokers, ZooKeeper and clients, and their faults in one direction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from odradek.launcher.plan import HOST
from odradek.launcher.ports import ReservedPorts
from odradek.testing.link_proxies import (
    CLIENTS,
    STORE,
    Conditions,
    Direction,
    LinkProxies,
    broker_name,
)

SLOW_BYTES_PER_S = 16 * 1024
__all__ = ["CLIENTS", "STORE", "Direction", "LinkFaults", "Network", "Proxies", "broker_name"]


@dataclass(frozen=True, slots=True)
class LinkFaults:
    """Directions that do not work as usual. Pure.

    Attributes:
        cut: No byte arrives. Connections stay open.
        slow: `SLOW_BYTES_PER_S` arrive.
    """

    cut: frozenset[Direction] = frozenset()
    slow: frozenset[Direction] = frozenset()

    def between(self, *directions: Direction) -> LinkFaults:
        """Return these faults, with further directions cut."""
        return LinkFaults(self.cut | frozenset(directions), self.slow)


def both_ways(one: str, other: str) -> tuple[Direction, Direction]:
    return (one, other), (other, one)


class Network(ABC):
    """The addresses of a cluster, and the conditions of its links. Owned by the cluster.

    Attributes:
        kind: The text for the report.
    """

    kind: str

    @abstractmethod
    def broker(self, number: int) -> tuple[str, int]:
        """Return the address on which a broker listens. The run asks it there."""

    @abstractmethod
    def advertised(self, number: int) -> str:
        """Return the address for clients and other brokers, as ``HOST:PORT``."""

    @abstractmethod
    def zookeeper(self) -> tuple[str, int]:
        """Return the address on which ZooKeeper listens."""

    @abstractmethod
    def zookeeper_of(self, number: int) -> str:
        """Return the address of ZooKeeper for a broker, as ``HOST:PORT``."""

    @abstractmethod
    def prefix(self, host: str) -> list[str]:
        """Return the command that runs a command line on a host: a broker, `STORE` or `CLIENTS`."""

    @abstractmethod
    def apply(self, faults: LinkFaults) -> None:
        """Replace the faults of all links."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. The processes of the cluster have ended."""


class Proxies(Network):
    """TCP proxies on the loopback interface, in front of all brokers and of ZooKeeper."""

    kind = "TCP proxies"

    def __init__(self, brokers: int) -> None:
        self._ports = ReservedPorts(brokers + 1)
        self._proxies = LinkProxies()
        numbers = range(1, brokers + 1)
        self._advertised = {
            number: self._proxies.to_broker(number, self._ports.ports[number]) for number in numbers
        }
        self._stores = {
            number: self._proxies.to_store(number, self._ports.ports[0]) for number in numbers
        }

    def broker(self, number: int) -> tuple[str, int]:
        return HOST, self._ports.ports[number]

    def advertised(self, number: int) -> str:
        return f"{HOST}:{self._advertised[number]}"

    def zookeeper(self) -> tuple[str, int]:
        return HOST, self._ports.ports[0]

    def zookeeper_of(self, number: int) -> str:
        return f"{HOST}:{self._stores[number]}"

    def prefix(self, host: str) -> list[str]:
        return []

    def apply(self, faults: LinkFaults) -> None:
        slow = dict.fromkeys(faults.slow, SLOW_BYTES_PER_S)
        self._proxies.hold(Conditions(faults.cut, slow))

    def close(self) -> None:
        self._proxies.close()
        self._ports.close()
