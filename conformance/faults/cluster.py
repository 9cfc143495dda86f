"""The processes of a run: brokers and ZooKeeper on the hosts of a network.

The thread of the nemesis kills, suspends and starts them. Other threads only call `check`.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from conformance.faults.disks import Disk
from conformance.faults.network import STORE, LinkFaults, Network, broker_name
from conformance.faults.sessions import Cause
from conformance.histories.managed_broker import BrokerEnded
from conformance.histories.managed_cluster import LAG_MS, SESSION_MS
from odradek.broker.page_cache_mark import note_name
from odradek.client.blocking import BlockingClient
from odradek.environment.files import RealFiles
from odradek.launcher.child import Child
from odradek.launcher.plan import BrokerPlan, ZooKeeperPlan, replication_configs
from odradek.launcher.readiness import describe_cluster
from odradek.launcher.zookeeper import ZooKeeperServer
from odradek.protocol.codec import Message
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
)
from testkit.peer.artifacts import ROOT
from testkit.peer.server import python_path

BROKERS = 3
ASK_S = 3.0
AGAIN_S = 0.1
STATE_S = 90.0
"""The cluster must reach a state that it was expected to reach within this time."""
STOP_S = 60.0
CONNECTION_MS = 120_000
GROUP, TRANSACTION = 0, 1
ODRADEK = ("-m", "odradek")
PREPARED = ["PrepareCommit", "PrepareAbort"]
R = TypeVar("R", bound=Message)


class FaultBroker:
    """The processes of one broker, one after another. Each has a log file of its own."""

    def __init__(
        self, plan: BrokerPlan, prefix: Sequence[str], disk: Disk, program: Sequence[str]
    ) -> None:
        self.plan = plan
        self.disk = disk
        self.process = 0
        self.is_paused = False
        self.ends: list[Cause] = []
        self._command = [*prefix, *_with_program(plan.command(sys.executable), program)]
        self._child: Child | None = None
        self._to_end = False

    @property
    def number(self) -> int:
        return self.plan.broker_id

    @property
    def address(self) -> tuple[str, int]:
        return self.plan.host, self.plan.port

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.is_running

    @property
    def child(self) -> Child:
        assert self._child is not None, "it was started"
        return self._child

    def log_of(self, process: int) -> Path:
        """Return the log of a process, which is not on the disk of the broker."""
        return self.plan.log_dir.parent.with_name(f"broker-{self.number}.{process}.log")

    def start(self) -> None:
        """Start the next process. It does not serve yet."""
        name, path = f"broker {self.number}", python_path(ROOT)
        log_file = self.log_of(self.process + 1)
        child = Child(name, self._command, log_file, environment={"PYTHONPATH": path})
        child.start()
        self._child, self._to_end = child, False
        self.process += 1

    def kill(self) -> None:
        self._end("SIGKILL")
        self.child.kill()
        self.is_paused = False

    def stop(self) -> None:
        """Send SIGTERM and wait for the end.

        Raises:
            BrokerEnded: It does not end in time.
        """
        self._end("SIGTERM")
        if not self.child.stop(STOP_S):
            raise BrokerEnded(f"broker {self.number} did not end within {STOP_S:.0f} s of SIGTERM")
        self.is_paused = False

    def suspend(self) -> None:
        self.is_paused = True
        self.child.send(signal.SIGSTOP)

    def resume(self) -> None:
        if self.is_paused:
            self.child.send(signal.SIGCONT)
            self.is_paused = False

    def fill_disk(self) -> None:
        """Let it find no space. It may end by itself from now on."""
        self._end("full disk")
        self.disk.fill(self.child.pid)

    def check(self) -> None:
        """Raise BrokerEnded if it has ended by itself."""
        child = self._child
        if child is not None and not child.is_running and not self._to_end:
            raise BrokerEnded(
                f"broker {self.number} ended by itself, {child.exit_text()}: {child.last_words()}"
            )

    def _end(self, text: str) -> None:
        self._to_end = True
        self.ends.append(Cause(text, self.number, time.time(), math.inf, self.process))


class FaultCluster:
    """Three brokers and a ZooKeeper. Owned by the run.

    Args:
        directory: The place of all files.
        network: The hosts and their links.
        new_disk: Makes the disk of a broker at a path.
        program: The arguments of the Python interpreter that run `odradek`.
    """

    def __init__(
        self,
        directory: Path,
        network: Network,
        new_disk: Callable[[Path], Disk],
        program: Sequence[str] = ODRADEK,
    ) -> None:
        self.network = network
        self.causes: list[Cause] = []
        self.failure = ""
        host, port = network.zookeeper()
        plan = ZooKeeperPlan(
            port, directory / "zookeeper", syncs=False, host=host, logs_sessions=True
        )
        self.zookeeper = ZooKeeperServer(plan, prefix=network.prefix(STORE))
        self.brokers: dict[int, FaultBroker] = {}
        for number in range(1, BROKERS + 1):
            home = directory / f"disk-{number}"
            disk = new_disk(home)
            self.brokers[number] = FaultBroker(
                _broker_plan(number, home / f"broker-{number}", network),
                network.prefix(broker_name(number)),
                disk,
                program,
            )

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.network.advertised, self.brokers))

    # --- start and end ---

    def start(self) -> None:
        self.zookeeper.start()
        for broker in self.brokers.values():
            broker.start()
        self.await_members()

    def close(self) -> None:
        """End all processes by SIGKILL. Their logs stay."""
        for broker in self.brokers.values():
            if broker.process:
                broker.kill()
            RealFiles().remove_boot_note(note_name([str(broker.plan.log_dir)]))
            broker.disk.close()
        self.zookeeper.kill()

    def stop(self) -> None:
        """Stop the brokers, so that their logs can be compared."""
        for broker in self.brokers.values():
            broker.stop()

    def check(self) -> None:
        if self.failure:
            raise BrokerEnded(self.failure)
        for broker in self.brokers.values():
            broker.check()

    # --- links ---

    def links(self, faults: LinkFaults | None = None) -> None:
        """Replace the faults of the network. None: all links work."""
        self.network.apply(faults or LinkFaults())

    # --- states ---

    def until(self, condition: Callable[[], bool], what: str, limit_s: float = STATE_S) -> None:
        """Wait for a state.

        Raises:
            BrokerEnded: The cluster does not reach it in time.
        """
        deadline = time.monotonic() + limit_s
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise BrokerEnded(f"waited {limit_s:.0f} s for {what}")
            threading.Event().wait(AGAIN_S)

    def await_members(self) -> None:
        """Wait until each broker runs and knows all of them as members that are not fenced."""
        ids = set(self.brokers)

        def all_know_all() -> bool:
            found = [describe_cluster(each.address, ASK_S) for each in self.brokers.values()]
            return all(each is not None and {b.broker_id for b in each.brokers} >= ids
                       for each in found)  # fmt: skip

        self.until(all_know_all, "all brokers to be members of the cluster")

    def controller(self) -> int | None:
        """Return the controller that a responding broker names."""
        for broker in self.responding():
            found = describe_cluster(broker.address, ASK_S)
            if found is not None and found.controller_id in self.brokers:
                return found.controller_id
        return None

    def pids(self) -> dict[int, int]:
        """Return the pids of the brokers that run."""
        running = [each for each in self.brokers.values() if each.is_running]
        return {each.number: each.child.pid for each in running}

    def responding(self) -> list[FaultBroker]:
        return [each for each in self.brokers.values() if each.is_running and not each.is_paused]

    def partitions(self, topics: Sequence[str]) -> dict[tuple[str, int], MetadataResponsePartition]:
        """Return the newest state of each partition that responding brokers know."""
        request = MetadataRequest(
            [MetadataRequestTopic(name=each) for each in topics], allow_auto_topic_creation=False
        )
        newest: dict[tuple[str, int], MetadataResponsePartition] = {}
        for broker in self.responding():
            response = self.ask(broker, request, MetadataResponse, 12)
            for topic in response.topics if response is not None else ():
                for each in topic.partitions if not topic.error_code else ():
                    key = topic.name or "", each.partition_index
                    if key not in newest or newest[key].leader_epoch <= each.leader_epoch:
                        newest[key] = each
        return newest

    def are_in_sync(self, topics: Sequence[str], partitions: int) -> bool:
        """Return whether all replicas of so many partitions are in sync."""
        found = self.partitions(topics)
        return len(found) == partitions and all(
            set(each.isr_nodes) == set(each.replica_nodes) for each in found.values()
        )

    def coordinator(self, key: str, kind: int) -> int | None:
        """Return the coordinator of a group or a transactional id."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        for broker in self.responding():
            response = self.ask(broker, request, FindCoordinatorResponse, 4)
            for each in response.coordinators if response is not None else ():
                if not each.error_code and each.node_id in self.brokers:
                    return each.node_id
        return None

    def prepared(self, broker: FaultBroker) -> list[str]:
        """Return the transactions of a coordinator whose markers are not all written."""
        request = ListTransactionsRequest(state_filters=PREPARED)
        response = self.ask(broker, request, ListTransactionsResponse, 0)
        states = response.transaction_states if response is not None else ()
        return sorted(each.transactional_id for each in states)

    @staticmethod
    def ask(broker: FaultBroker, request: Message, response: type[R], version: int) -> R | None:
        """Return a broker's response, or None if it does not respond."""
        with (
            contextlib.suppress(OSError, TypeError),
            BlockingClient.connect(broker.address, ASK_S, "faults") as client,
        ):
            return client.call(request, response, version)
        return None


def _with_program(command: Sequence[str], program: Sequence[str]) -> list[str]:
    """Replace `-m odradek` in the command line of a broker."""
    assert tuple(command[1:3]) == ODRADEK, command
    return [command[0], *program, *command[3:]]


def _broker_plan(number: int, log_dir: Path, network: Network) -> BrokerPlan:
    host, port = network.broker(number)
    return BrokerPlan(
        number,
        port,
        log_dir,
        f"{network.zookeeper_of(number)}/faults",
        {
            **replication_configs(BROKERS),
            "advertised.listeners": f"PLAINTEXT://{network.advertised(number)}",
            "group.initial.rebalance.delay.ms": "0",
            "replica.lag.time.max.ms": str(LAG_MS),
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            # A broker may start while ZooKeeper is down. By default it ends, as Kafka does.
            "zookeeper.connection.timeout.ms": str(CONNECTION_MS),
            "broker.session.timeout.ms": str(SESSION_MS),
        },
        host,
    )
