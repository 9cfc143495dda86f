"""The processes of a cluster on one host: start, watch, stop.

A broker or a ZooKeeper that ends is reported and not restarted. The processes hold a lock on the
directory of the cluster, so a second cluster cannot start on it while one of them still runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from odradek.launcher.child import Child, LaunchFailed, wait_for
from odradek.launcher.plan import HOST, BrokerPlan, ClusterPlan, shell_line, stop_order
from odradek.launcher.programs import ZooKeeperPrograms, find_programs
from odradek.launcher.readiness import accepts, controller_of, is_free, live_brokers
from odradek.launcher.zookeeper import START_TIMEOUT_S, ZooKeeperServer

LOCK = ".lock"
PROCESSES = "processes.json"


@dataclass(frozen=True, slots=True)
class ProcessLine:
    """One process of a cluster, as `odradek cluster up --json` prints it.

    Attributes:
        process: "broker" or "zookeeper".
        id: The broker id. None for ZooKeeper.
        command_line: The command line for a shell. It starts the process again.
    """

    process: str
    id: int | None
    pid: int
    port: int
    command_line: str
    log: str

    @property
    def name(self) -> str:
        return "ZooKeeper" if self.id is None else f"broker {self.id}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class ClusterProcesses:
    """The processes of one cluster. Owned by its creator.

    Args:
        plan: Ports, directories and configs.
        python: The path of the Python interpreter. Default: that of this process.
        programs: Java and the jars. Default: those of this machine.

    Raises:
        ZooKeeperUnavailable: The plan has a ZooKeeper, and Java or the jars are missing.
    """

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        python: str = sys.executable,
        programs: ZooKeeperPrograms | None = None,
    ) -> None:
        self.plan = plan
        self._python = python
        if plan.zookeeper is not None and programs is None:
            programs = find_programs()
        self._programs = programs
        self._lock: int | None = None
        self._reported: set[int] = set()
        self.zookeeper: ZooKeeperServer | None = None
        self.brokers: dict[int, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    # --- start ---

    def start(self, is_cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Start all processes. Return when each broker may lead.

        Args:
            is_cancelled: Whether the start must end. The processes of then still run.

        Returns:
            Whether the start is complete. False: it was cancelled.

        Raises:
            LaunchFailed: A port is in use, another cluster uses the directory, or a process did
                not start. No process runs then.
            OSError: The directory cannot be written.
        """
        self.plan.directory.mkdir(parents=True, exist_ok=True)
        lock = self._locked()
        try:
            self._check_ports()
            if self.plan.zookeeper is not None:
                zookeeper = ZooKeeperServer(self.plan.zookeeper, self._programs, keeps=[lock])
                self.zookeeper = zookeeper
                zookeeper.start(is_cancelled)
            for broker in self.plan.brokers:
                if is_cancelled():
                    return False
                self._start_broker(broker, lock)
            self._write_list()
            return self._await_brokers(is_cancelled)
        except BaseException:
            self.kill()
            raise

    def _locked(self) -> int:
        """Lock the directory. The processes inherit the lock and keep it until their end."""
        path = self.plan.directory / LOCK
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            raise LaunchFailed(
                f"{self.plan.directory} is in use by {self._former()}. Stop them, or name another"
                " directory."
            ) from None
        return self._lock

    def _former(self) -> str:
        """Return the processes that were started last and still run."""
        found = []
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            for each in json.loads((self.plan.directory / PROCESSES).read_text("utf-8")):
                line = ProcessLine(**each)
                if Path(f"/proc/{line.pid}").exists():
                    found.append(f"{line.name} (pid {line.pid})")
        return ", ".join(found) or "the processes of another cluster"

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _check_ports(self) -> None:
        for port in self.plan.ports:
            if not is_free(port):
                raise LaunchFailed(
                    f"port {port} of {HOST} is in use. Stop the program that listens on it, or"
                    " choose another base port."
                )

    def _start_broker(self, plan: BrokerPlan, lock: int) -> None:
        child = Child(
            f"broker {plan.broker_id}",
            plan.command(self._python),
            plan.log_dir.with_name(f"{plan.log_dir.name}.log"),
            keeps=[lock],
        )
        self.brokers[plan.broker_id] = child
        child.start()

    def _await_brokers(self, is_cancelled: Callable[[], bool]) -> bool:
        ids = set(self.brokers)
        port = self.plan.brokers[0].port
        return wait_for(
            lambda: live_brokers((HOST, port)) >= ids,
            self._children(),
            f"{len(ids)} brokers that may lead",
            START_TIMEOUT_S,
            is_cancelled,
        )

    def _children(self) -> list[Child]:
        children = [] if self.zookeeper is None else [self.zookeeper.child]
        return children + list(self.brokers.values())

    # --- state ---

    def lines(self) -> list[ProcessLine]:
        """Return all processes that were started, ZooKeeper first."""
        lines = []
        if self.zookeeper is not None:
            lines.append(_line("zookeeper", None, self.zookeeper.port, self.zookeeper.child))
        ports = {each.broker_id: each.port for each in self.plan.brokers}
        for broker_id, child in self.brokers.items():
            lines.append(_line("broker", broker_id, ports[broker_id], child))
        return lines

    def _write_list(self) -> None:
        text = json.dumps([each.as_dict() for each in self.lines()], indent=2)
        (self.plan.directory / PROCESSES).write_text(f"{text}\n", encoding="utf-8")

    def ended(self) -> list[tuple[ProcessLine, str]]:
        """Return the processes that have ended since the last call, and how, such as
        "signal SIGKILL".
        """
        found = []
        for line, child in zip(self.lines(), self._children(), strict=True):
            how = child.exit_text()
            if how is not None and line.pid not in self._reported:
                self._reported.add(line.pid)
                found.append((line, how))
        return found

    # --- end ---

    def stop(self) -> Iterator[str]:
        """Stop the brokers, the controller last, and then ZooKeeper. Yield a line for each step.

        A process that has ended already is left out. A process that was started by hand in its
        place is reported, because it does not belong to this cluster's owner.
        """
        ports = {each.broker_id: each.port for each in self.plan.brokers}
        running = [each for each, child in self.brokers.items() if child.is_running]
        controller = controller_of(ports[each] for each in running)
        for broker_id in stop_order(running, controller):
            yield self._stopped(self.brokers[broker_id])
        for broker_id in self.brokers:
            if broker_id not in running and accepts(ports[broker_id]):
                yield (
                    f"a process that was started by hand still listens on port {ports[broker_id]}"
                    f" of broker {broker_id}. Stop it, too"
                )
        if self.zookeeper is not None and self.zookeeper.child.is_running:
            yield self._stopped(self.zookeeper.child)
        self._unlock()

    @staticmethod
    def _stopped(child: Child) -> str:
        if child.stop():
            return f"{child.name} has stopped"
        return f"{child.name} did not stop in time and was killed. Read {child.log_file}"

    def kill(self) -> None:
        """Send SIGKILL to all processes, and wait for them. A second call does nothing."""
        for child in reversed(self._children()):
            child.kill()
        self._unlock()

    def send_kill(self) -> None:
        """Send SIGKILL to all processes. A signal handler may call this."""
        for child in reversed(self._children()):
            child.send_kill()


def _line(kind: str, number: int | None, port: int, child: Child) -> ProcessLine:
    return ProcessLine(
        kind, number, child.pid, port, shell_line(child.command), str(child.log_file)
    )
