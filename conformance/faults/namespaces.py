"""A network namespace for each broker, for ZooKeeper and for the clients, joined by a router.

The router is the network namespace of this process, which `python -m conformance.faults` has made
for itself (`enter_own`). Host N has the address 10.90.N.2, on a pair of virtual Ethernet devices
whose other end has the address 10.90.N.1 in the router. A policy rule of the router drops the
packets of a direction that is cut. A queueing discipline of the router's device limits the rate of
a slow direction. All of it ends with the processes: nothing is left behind, even after SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from conformance.faults.network import (
    CLIENTS,
    SLOW_BYTES_PER_S,
    STORE,
    Direction,
    LinkFaults,
    Network,
    broker_name,
)

BROKER_PORT = 9092
ZOOKEEPER_PORT = 2181
RULE_PRIORITY = 100
FULL_RATE = "10gbit"
UNSHARE_S = 10.0
COMMAND_S = 30.0
MARK = "ODRADEK_FAULTS_NAMESPACE"
"""Set in the environment of a process that has a network namespace and mounts of its own."""
PROBE = """
ip link set lo up && ip link add name to-0 type veth peer name of-0
ip rule add from 10.90.1.2 to 10.90.2.2 blackhole
tc qdisc add dev to-0 root handle 1: htb default 2
tc class add dev to-0 parent 1: classid 1:1 htb rate 64kbit
tc filter add dev to-0 parent 1: protocol ip u32 match ip src 10.90.1.2 flowid 1:1
mount -t tmpfs -o size=1m tmpfs /mnt
echo 1 > /proc/sys/net/ipv4/ip_forward
"""


def unshare() -> list[str] | None:
    """Return the command that gives a command namespaces of its own. None: it is not allowed."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--net", "--mount", "--"]
    try:
        tried = subprocess.run(
            [*command, "sh", "-e", "-c", PROBE],
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return command if tried.returncode == 0 else None


def is_inside() -> bool:
    """Return whether this process has entered namespaces of its own."""
    return MARK in os.environ


def enter_own(command: Sequence[str], arguments: Sequence[str]) -> NoReturn:
    """Start this module's program again in namespaces of its own."""
    os.environ[MARK] = "1"
    os.execvp(command[0], [*command, sys.executable, *arguments])


class Namespaces(Network):
    """Hosts in network namespaces. This process is the router."""

    kind = "network namespaces"

    def __init__(self, brokers: int) -> None:
        assert is_inside(), "the router is a namespace of this run"
        self._faults = LinkFaults()
        self._hosts = [*map(broker_name, range(1, brokers + 1)), STORE, CLIENTS]
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        _run("ip link set lo up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n", encoding="ascii")
        try:
            for host in self._hosts:
                self._add(host)
        except BaseException:
            self.close()
            raise

    def _add(self, host: str) -> None:
        """Create the namespace of a host, which a process holds, and its link to the router."""
        holder = subprocess.Popen(["unshare", "--net", "--", "cat"], stdin=subprocess.PIPE)
        self._holders[host] = holder
        own, deadline = Path("/proc/self/ns/net").readlink(), time.monotonic() + UNSHARE_S
        while Path(f"/proc/{holder.pid}/ns/net").readlink() == own:
            assert time.monotonic() < deadline, f"{host} has got no namespace"
            time.sleep(0.002)
        number = self._number(host)
        device, enter = self._device(host), " ".join(self.prefix(host))
        _run(f"ip link add name {device} type veth peer name eth0 netns {holder.pid}")
        _run(f"ip addr add 10.90.{number}.1/30 dev {device}")
        _run(f"ip link set {device} up")
        _run(f"{enter} ip link set lo up")
        _run(f"{enter} ip addr add {self._address(host)}/30 dev eth0")
        _run(f"{enter} ip link set eth0 up")
        _run(f"{enter} ip route add default via 10.90.{number}.1")

    def broker(self, number: int) -> tuple[str, int]:
        return self._address(broker_name(number)), BROKER_PORT

    def advertised(self, number: int) -> str:
        return f"{self._address(broker_name(number))}:{BROKER_PORT}"

    def zookeeper(self) -> tuple[str, int]:
        return self._address(STORE), ZOOKEEPER_PORT

    def zookeeper_of(self, number: int) -> str:
        return f"{self._address(STORE)}:{ZOOKEEPER_PORT}"

    def prefix(self, host: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._holders[host].pid}/ns/net", "--"]

    def apply(self, faults: LinkFaults) -> None:
        for direction in sorted(self._faults.cut - faults.cut):
            self._rule("del", direction)
        for direction in sorted(faults.cut - self._faults.cut):
            self._rule("add", direction)
        for host in self._hosts:
            before, after = _to(host, self._faults.slow), _to(host, faults.slow)
            if before != after:
                self._limit(host, after)
        self._faults = faults

    def _rule(self, verb: str, direction: Direction) -> None:
        source, target = map(self._address, direction)
        _run(f"ip rule {verb} from {source} to {target} priority {RULE_PRIORITY} blackhole")

    def _limit(self, host: str, sources: Sequence[str]) -> None:
        """Limit the rate of the bytes from these hosts to `host`."""
        device = self._device(host)
        with contextlib.suppress(subprocess.CalledProcessError):  # it has none
            _run(f"tc qdisc del dev {device} root")
        if not sources:
            return
        _run(f"tc qdisc add dev {device} root handle 1: htb default 1")
        _run(f"tc class add dev {device} parent 1: classid 1:1 htb rate {FULL_RATE}")
        for number, source in enumerate(sources, 2):
            rate = f"{SLOW_BYTES_PER_S * 8}bit"
            _run(f"tc class add dev {device} parent 1: classid 1:{number} htb rate {rate}")
            match = f"match ip src {self._address(source)} flowid 1:{number}"
            _run(f"tc filter add dev {device} parent 1: protocol ip u32 {match}")

    def close(self) -> None:
        for holder in self._holders.values():
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait()

    def _number(self, host: str) -> int:
        return self._hosts.index(host) + 1

    def _address(self, host: str) -> str:
        return f"10.90.{self._number(host)}.2"

    def _device(self, host: str) -> str:
        return f"to-{self._number(host)}"


def _to(host: str, directions: frozenset[Direction]) -> list[str]:
    """Return the sources of the directions to a host."""
    return sorted(source for source, target in directions if target == host)


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, timeout=COMMAND_S)
