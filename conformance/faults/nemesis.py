"""The thread that plays the steps of a run on its cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

from conformance.faults.cluster import GROUP, TRANSACTION, FaultBroker, FaultCluster
from conformance.faults.network import STORE, Direction, LinkFaults, both_ways, broker_name
from conformance.faults.schedule import Step
from conformance.faults.sessions import Cause
from conformance.histories.clients import HistoryFile
from conformance.histories.managed_broker import BrokerEnded
from conformance.histories.managed_cluster import LAG_MS, SESSION_MS

SESSION_S = SESSION_MS / 1000
PREPARED_S = 15.0
PREPARED_AGAIN_S = 0.02
IN_SYNC_S = 120.0
CUT_LEADER_SHARE = 0.5
"""Part of replica.lag.time.max.ms for which a leader is cut off before it is killed."""
REPLACED_SHARE = 0.5
"""Part of the session timeout after which the controller may have replaced a broker."""
PAUSE_S_MAX = 2.5
"""Longest time between two faults."""
During = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Workload:
    """The names that the clients of a run use."""

    topics: Sequence[str]
    partitions: int
    groups: Sequence[str]
    transactional_ids: Sequence[str]


class FaultNemesis:
    """Plays all steps, one after another, with pauses. Ends each fault that it begins."""

    def __init__(
        self,
        cluster: FaultCluster,
        history: HistoryFile,
        steps: Sequence[Step],
        seed: int,
    ) -> None:
        self._cluster = cluster
        self._work = Workload((), 0, (), ())
        self._history = history
        self._steps = list(steps)
        self._random = Random(seed)
        self._stopping = threading.Event()
        self.prepared_kills = 0
        self.processes_killed = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def start(self, work: Workload) -> None:
        """Begin to play the steps on the cluster of these clients."""
        self._work = work
        self._thread.start()

    def stop(self) -> None:
        """Wait for the end of the fault in progress, and play no further one."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for step in self._steps:
                if self._stopping.wait(self._random.random() * PAUSE_S_MAX):
                    return
                self._play(step)
                self._cluster.await_members()
        except Exception as error:  # noqa: BLE001 - `check` raises it in the thread of the run
            what = str(error) if isinstance(error, BrokerEnded) else repr(error)
            self._cluster.failure = self._cluster.failure or what
        finally:
            self._cluster.links()

    def _play(self, step: Step) -> None:
        def during() -> None:
            if step.during:
                self._record(step.during, self._action(step.during)(_nothing), step.fault)

        self._record(step.fault, self._action(step.fault)(during))

    def _action(self, name: str) -> Callable[[During], str]:
        found: Callable[[During], str] = getattr(self, "_" + name.replace("-", "_"))
        return found

    def _record(self, fault: str, detail: str, during: str = "") -> None:
        where = {"during": during} if during else {}
        self._history.event("fault", f=fault, detail=detail, **where)

    @contextmanager
    def _cut(self, faults: LinkFaults) -> Iterator[None]:
        """Let links between brokers be faulty. A broker may be replaced and not notice it."""
        with self._unaware():
            self._cluster.links(faults)
            try:
                yield
            finally:
                self._cluster.links()

    @contextmanager
    def _unaware(self) -> Iterator[None]:
        """Note a time in which a broker may be replaced and not notice it, if it is long enough."""
        began = time.monotonic_ns()
        yield
        replaced_at = began + int(REPLACED_SHARE * SESSION_S * 1e9)
        if time.monotonic_ns() > replaced_at:
            self._history.event("unaware", began=replaced_at)

    # --- SIGKILL ---

    def _kill_leader(self, _: During) -> str:
        where, leader = self._some_leader()
        return f"{where}, {self._kill([leader])}"

    def _kill_two(self, _: During) -> str:
        return self._kill(self._random.sample(list(self._cluster.brokers.values()), 2))

    def _kill_all(self, _: During) -> str:
        return self._kill(list(self._cluster.brokers.values()))

    def _kill_controller(self, _: During) -> str:
        return self._kill([self._controller()])

    def _kill_group_coordinator(self, _: During) -> str:
        group = self._random.choice(self._work.groups)
        return f"coordinator of group {group}, {self._kill([self._coordinator(group, GROUP)])}"

    def _kill_starting(self, _: During) -> str:
        """Kill a broker, and again while it starts."""
        where, leader = self._some_leader()
        self._end(leader)
        leader.start()
        after_s = 1.5 * self._random.random()
        self._wait(after_s)
        return f"{where}, again {after_s:.2f} s after its start, {self._kill([leader])}"

    def _kill_cut_leader(self, _: During) -> str:
        """Kill a leader that the other brokers do not reach.

        Its clients reach it. It is cut off for less time than it takes to remove the followers from
        the ISR, so it must acknowledge nothing with acks=all.
        """
        where, leader = self._some_leader()
        own = broker_name(leader.number)
        others = [broker_name(each) for each in self._cluster.brokers if each != leader.number]
        links = [link for other in others for link in both_ways(own, other)]
        for_s = CUT_LEADER_SHARE * LAG_MS / 1000 * (1 + self._random.random()) / 2
        with self._cut(LinkFaults().between(*links)):
            self._wait(for_s)
            self._end(leader)
        return f"{where}, cut off from the other brokers for {for_s:.2f} s, {self._kill([leader])}"

    def _kill_prepared(self, _: During) -> str:
        """Kill a coordinator between the prepare of a transaction and its markers.

        The packets to the leader of a data partition are dropped, so the markers do not arrive.
        """
        name = self._random.choice(self._work.transactional_ids)
        coordinator = self._coordinator(name, TRANSACTION)
        leader = self._marked_leader(coordinator)
        link = broker_name(coordinator.number), broker_name(leader.number)
        with self._cut(LinkFaults().between(link)):
            deadline, found = time.monotonic() + PREPARED_S, list[str]()
            while not found and time.monotonic() < deadline:
                self._wait(PREPARED_AGAIN_S)
                found = self._cluster.prepared(coordinator)
            self.prepared_kills += bool(found)
            self._end(coordinator)
        killed = self._kill([coordinator])
        return f"{len(found)} prepared transactions, no packets {' -> '.join(link)}, {killed}"

    def _marked_leader(self, coordinator: FaultBroker) -> FaultBroker:
        """Return a leader that is neither this coordinator nor, if possible, the controller.

        The controller must be able to remove it from the ISR: Prepare is committed then.
        """
        controller = self._controller()
        leaders = [
            self._cluster.brokers[each.leader_id]
            for each in self._cluster.partitions(self._work.topics).values()
            if each.leader_id in self._cluster.brokers and each.leader_id != coordinator.number
        ]
        others = [each for each in self._cluster.brokers.values() if each is not coordinator]
        suited = [each for each in leaders or others if each is not controller]
        return self._random.choice(suited or leaders or others)

    def _kill(self, brokers: Sequence[FaultBroker]) -> str:
        """Kill brokers that run, and start them, sometimes after the end of their sessions."""
        random = self._random
        down_s = random.choice([0.0, random.random(), SESSION_S + 4 * random.random()])
        for broker in brokers:
            if broker.is_running:
                self._end(broker)
        self._wait(down_s)
        for broker in random.sample(list(brokers), len(brokers)):
            broker.start()
        return f"{_named(brokers)} down for {down_s:.2f} s and the start"

    def _end(self, broker: FaultBroker) -> None:
        broker.kill()
        self.processes_killed += 1

    # --- SIGSTOP ---

    def _pause_leader(self, during: During) -> str:
        where, leader = self._some_leader()
        return f"{where}, {self._pause(leader, during)}"

    def _pause_controller(self, during: During) -> str:
        return self._pause(self._controller(), during)

    def _pause(self, broker: FaultBroker, during: During) -> str:
        """Suspend a broker, sometimes for longer than its session."""
        for_s = self._random.choice([0.5, 3.0]) * SESSION_S * self._random.random()
        began = time.time()
        with self._unaware():
            broker.suspend()
            self._wait(for_s / 2)
            during()
            self._wait(for_s / 2)
            broker.resume()
        self._cause("SIGSTOP", broker, began)
        return f"{_named([broker])}, {time.time() - began:.2f} s"

    # --- links ---

    def _one_way(self, during: During) -> str:
        one, other = self._random.sample(list(self._cluster.brokers.values()), 2)
        link = broker_name(one.number), broker_name(other.number)
        return self._faulty(LinkFaults().between(link), during, f"no packets {' -> '.join(link)}")

    def _slow_link(self, during: During) -> str:
        one, other = self._random.sample(list(self._cluster.brokers.values()), 2)
        link = broker_name(one.number), broker_name(other.number)
        faults = LinkFaults(slow=frozenset({link}))
        return self._faulty(faults, during, f"slow {' -> '.join(link)}")

    def _cut_from_controller(self, during: During) -> str:
        controller = self._controller()
        others = [each for each in self._cluster.brokers.values() if each is not controller]
        broker = self._random.choice(others)
        links = both_ways(broker_name(broker.number), broker_name(controller.number))
        text = f"{_named([broker])} and controller {controller.number}"
        return self._faulty(LinkFaults().between(*links), during, text)

    def _faulty(self, faults: LinkFaults, during: During, text: str) -> str:
        for_s = 1 + 3 * SESSION_S * self._random.random()
        with self._cut(faults):
            self._wait(for_s / 2)
            during()
            self._wait(for_s / 2)
        return f"{text}, {for_s:.2f} s"

    # --- ZooKeeper ---

    def _cut_from_zookeeper(self, during: During) -> str:
        """Cut a broker from ZooKeeper for less than its session."""
        return self._without_zookeeper(0.4 * self._random.random(), during)

    def _expire_session(self, during: During) -> str:
        """Cut a broker from ZooKeeper until its session has expired."""
        return self._without_zookeeper(1.5 + self._random.random(), during)

    def _without_zookeeper(self, sessions: float, during: During) -> str:
        broker = self._random.choice(list(self._cluster.brokers.values()))
        links: tuple[Direction, ...] = both_ways(broker_name(broker.number), STORE)
        if self._random.random() < 0.3:  # one direction only
            links = (self._random.choice(links),)
        self._cluster.links(LinkFaults().between(*links))
        began = time.time()
        self._wait(sessions * SESSION_S / 2)
        during()
        self._wait(sessions * SESSION_S / 2)
        self._cluster.links()
        self._cause("cut from ZooKeeper", broker, began)
        return f"{_named([broker])}, {len(links)} directions, {time.time() - began:.2f} s"

    def _zookeeper_kill(self, during: During) -> str:
        """Kill ZooKeeper and start it again, sometimes after the time of a session."""
        random = self._random
        down_s = random.choice([0.0, random.random(), SESSION_S + 3 * random.random()])
        began = time.time()
        self._cluster.zookeeper.kill()
        self._wait(down_s / 2)
        during()
        self._wait(down_s / 2)
        self._cluster.zookeeper.restart()
        self._cause("ZooKeeper was down", None, began)
        return f"down for {time.time() - began:.2f} s"

    # --- disks and stops ---

    def _disk_full(self, _: During) -> str:
        where, leader = self._some_leader()
        for_s = 2 + 4 * self._random.random()
        pid = leader.child.pid
        leader.fill_disk()
        self._wait(for_s)
        has_ended = not leader.is_running
        leader.disk.free(pid)
        if not has_ended:
            leader.stop()
        leader.start()
        how = "ended by itself" if has_ended else "was stopped"
        return f"{where}, full for {for_s:.2f} s, the broker {how}"

    def _rolling_restart(self, _: During) -> str:
        began = time.monotonic()
        are_in_sync = partial(self._cluster.are_in_sync, self._work.topics, self._work.partitions)
        for broker in self._random.sample(list(self._cluster.brokers.values()), 3):
            broker.stop()
            broker.start()
            self._cluster.await_members()
            self._cluster.until(
                are_in_sync,
                f"replicas in sync after a restart of broker {broker.number}",
                IN_SYNC_S,
            )
        return f"{time.monotonic() - began:.2f} s"

    # --- targets ---

    def _some_leader(self) -> tuple[str, FaultBroker]:
        """Return the leader of a random partition that runs."""
        found: list[tuple[str, FaultBroker]] = []

        def is_led() -> bool:
            running = {each.number: each for each in self._cluster.responding()}
            found[:] = [
                (f"leader of {topic}-{number}", running[state.leader_id])
                for (topic, number), state in self._cluster.partitions(self._work.topics).items()
                if state.leader_id in running
            ]
            return bool(found)

        self._cluster.until(is_led, "a partition with a leader")
        return self._random.choice(found)

    def _controller(self) -> FaultBroker:
        return self._named_by(self._cluster.controller, "a controller")

    def _coordinator(self, key: str, kind: int) -> FaultBroker:
        return self._named_by(lambda: self._cluster.coordinator(key, kind), "a coordinator")

    def _named_by(self, ask: Callable[[], int | None], what: str) -> FaultBroker:
        """Return the broker of this number, as soon as it runs."""
        found: list[FaultBroker] = []

        def is_named() -> bool:
            number = ask()
            running = {each.number: each for each in self._cluster.responding()}
            found[:] = [running[number]] if number in running else []
            return bool(found)

        self._cluster.until(is_named, what)
        return found[0]

    def _cause(self, text: str, broker: FaultBroker | None, began: float) -> None:
        number = None if broker is None else broker.number
        self._cluster.causes.append(Cause(text, number, began, time.time()))

    @staticmethod
    def _wait(for_s: float) -> None:
        threading.Event().wait(for_s)


def _nothing() -> None:
    """No fault happens while the other one lasts."""


def _named(brokers: Sequence[FaultBroker]) -> str:
    return "brokers " + ", ".join(str(each.number) for each in brokers)
