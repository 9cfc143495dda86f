"""One run: machines, clients and faults on one seed, for two simulated minutes, then a healing.

After the faults have ended, all brokers must serve, every request must be answered, and final
readers read all records, each within bounded virtual time. The history of the clients is then
checked as that of real clients (`conformance.histories`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.histories.history import FINAL_PROCESS, parse

from odradek.metadata.store.interface import StoreFailure
from odradek.metadata.topics import CONSUMER_OFFSETS
from tests.simulation.admin import SimulatedAdmin
from tests.simulation.client import Client, Key, history_line
from tests.simulation.cluster_model import ClusterModel
from tests.simulation.consumers import SimulatedConsumer
from tests.simulation.coordinator_model import CoordinatorModel
from tests.simulation.ensemble import SimulatedEnsemble
from tests.simulation.event_loop import SimulatedClock, SimulatedLoop
from tests.simulation.exempt_keys import divide
from tests.simulation.graveyard import Graveyard
from tests.simulation.group_members import CLASSIC, CONSUMER, GroupMember, GroupProcessor
from tests.simulation.injected_errors import InjectedError, InjectedErrors
from tests.simulation.invariants import NO_STEP, PartitionModel
from tests.simulation.machine import PORT, Machine
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import SimulatedNetwork
from tests.simulation.observer import Observer
from tests.simulation.planting import Patches
from tests.simulation.probes import probe
from tests.simulation.producers import SimulatedProducer
from tests.simulation.progress import Progress
from tests.simulation.scheduler import SECOND, Scheduler
from tests.simulation.transactors import PROTOCOL_1, PROTOCOL_2, SimulatedTransactor
from tests.simulation.tuning import tune
from tests.simulation.world_settings import (
    BROKER_CONFIG,
    CLUSTER_TOPICS,
    FLUSHES,
    REPLICAS_MAX,
    SINGLE_TOPICS,
    PlannedTopic,
    cluster_config,
)

RUN_S = 120
STABLE_S = 60
"""Virtual time in which the coordinator ends the transactions that clients have left open."""
RECOVERY_S = 10
"""Virtual time after the healing in which all partitions have a leader and a full ISR."""
PROBE_S = 10
"""Virtual time in which each broker then creates a topic, appends to it and deletes it."""
CHECK_US = SECOND // 10
HEAL_S = 60
"""Virtual time in which everything works again after the last fault."""
GRACE_US = 30 * SECOND
"""Requests that begin this long after the healing must be answered. A start that began before it
may have waited for a slow disk at each of its calls.
"""
RESTART_S_MAX = 3.0
TEMPOS = (1.0, 2.0, 5.0)
"""At 1.0 all clients together make about two operations a second."""
FAULT_INTERVALS_S = (10.0, 5.0, 2.5)
VIOLATION_MAX = 400
"""Length of a violation in a record."""

KNOWN_DEFECTS: dict[str, re.Pattern[str]] = {}
"""Defects of the broker that are not mended yet, by the text of their violations.

A run that meets one ends there. It is reported, and it is no failure of the run.
"""


@dataclass(slots=True)
class Outcome:
    """The result of one run. `known` is the known defect that has ended it, or empty."""

    seed: int
    violations: list[str]
    known: str
    digest: str
    steps: int
    simulated_s: float
    counts: Counter[str] = field(default_factory=Counter)
    tail: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    @property
    def violation(self) -> str:
        """The first violation for a record, or an empty string."""
        return self.violations[0][:VIOLATION_MAX] if self.violations else ""


class _Errors(logging.Handler):
    """Collects log lines that must not occur.

    An error with a traceback was handled by nothing. A checkpoint is replaced as a whole, so a
    start never finds a torn one.
    """

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not _is_known(error):
            self.lines.append(f"the broker logged {record.name}: {record.getMessage()}: {error!r}")
        elif "continues without this checkpoint" in record.msg:
            self.lines.append(f"the broker logged {record.getMessage()}")
        # Other handlers keep the record. It must not keep the objects of a dead process.
        record.msg, record.args = record.getMessage(), ()
        if record.exc_info:
            record.exc_text, record.exc_info = repr(error), None


def _is_known(error: BaseException) -> bool:
    """Return whether a broker may log this error: its disk fails, or the error was injected."""
    return isinstance(error, StoreFailure | InjectedError)


class Simulation:
    """The world of one seed. Use `run` once, and `close` at the end.

    Args:
        replicas_max: Limit of the replication factors.
        swarm: The seed also decides how often clients act and faults occur.

    Attributes:
        tempo: How many times as often as usual the clients act.
        fault_interval_s: Mean time between two faults.
        power_cuts: Whether the faults of the run include power cuts.
    """

    def __init__(
        self,
        seed: int,
        brokers: int = 1,
        run_s: float = RUN_S,
        *,
        replicas_max: int = REPLICAS_MAX,
        swarm: bool = True,
    ) -> None:
        self.scheduler = Scheduler(seed)
        self.network = SimulatedNetwork(self.scheduler)
        self.network.report = self.violation
        self.rng = self.scheduler.stream("simulation")
        self.counts: Counter[str] = Counter()
        self._patches = Patches()
        tune(self._patches, self.scheduler.stream("tuning"), self.count)
        self.injected = InjectedErrors(self._patches, self.count)
        self.run_s = run_s
        self.power_cuts = self.rng.random() < 0.7
        self.tempo = self.rng.choice(TEMPOS) if swarm else 1.0
        self.fault_interval_s = (
            self.rng.choice(FAULT_INTERVALS_S) if swarm else FAULT_INTERVALS_S[0]
        )
        self.violations: list[str] = []
        self.known = ""
        self.history: list[str] = []
        self.draining = False
        self.healed_us: int | None = None
        self.is_cluster = brokers > 1
        self.client_loop = SimulatedLoop(self.scheduler, "clients", SimulatedClock(self.scheduler))
        self._graveyard = Graveyard()
        self._process = 0
        self._final = 0
        self.ensemble = SimulatedEnsemble(self.scheduler)
        self.replicas_max = min(replicas_max, brokers)
        self.machines = self._machines(brokers)
        self.bootstrap = [(machine.host, PORT) for machine in self.machines]
        self.models: dict[tuple[bytes, int], PartitionModel] = {}
        self.cluster = ClusterModel(self.violation, self.count, self.models)
        self.observers = {
            machine.node_id: Observer(
                machine, self.violation, self.models, self.cluster if self.is_cluster else None
            )
            for machine in self.machines
        }
        self.cluster.observers = self.observers
        self.ensemble.on_commit = self.cluster.written
        self.topics: Sequence[PlannedTopic] = CLUSTER_TOPICS if self.is_cluster else SINGLE_TOPICS
        self.keys = self._keys()
        self.safe_keys = [
            key for key in self.keys if key.durable or not (self.power_cuts or self.is_cluster)
        ]
        self.admin = SimulatedAdmin(self, "admin")
        self.clients = self._clients()
        self.nemesis = Nemesis(self)
        self.progress = Progress(self)
        self._failures: list[str] = []  # errors of processes since the last step
        self._errors = _Errors(self._failures)
        self.client_loop.failures = self._failures
        for machine in self.machines:
            machine.loop_failures = self._failures

    def _machines(self, brokers: int) -> list[Machine]:
        return [
            Machine(
                self.scheduler,
                self.network,
                self._graveyard,
                number,
                cluster_config(self.replicas_max) if self.is_cluster else BROKER_CONFIG,
                self._stepped,
                self._ended,
                self.ensemble if self.is_cluster else None,
            )
            for number in range(1, brokers + 1)
        ]

    def _keys(self) -> list[Key]:
        """Return the partitions of the topics, with the numbers that the history has for them."""
        partitions = [
            (topic, number) for topic in self.topics for number in range(topic.partitions)
        ]
        return [
            Key(at, topic.name, number, topic.durable, min(topic.replicas, self.replicas_max))
            for at, (topic, number) in enumerate(partitions)
        ]

    def _clients(self) -> list[Client]:
        return [
            SimulatedProducer(self, "producer-1", idempotent=True),
            SimulatedProducer(self, "producer-2", idempotent=True),
            SimulatedProducer(self, "plain", idempotent=False),
            SimulatedTransactor(self, "transactor-1", protocol=PROTOCOL_1),
            SimulatedTransactor(self, "transactor-2", protocol=PROTOCOL_2),
            *(self._group_clients() if self.is_cluster else ()),
            SimulatedConsumer(self, "consumer-1"),
            SimulatedConsumer(self, "consumer-2", committed=False),
            self.admin,
        ]

    def _group_clients(self) -> list[Client]:
        """Return two clients of a group of each protocol. One of them commits in transactions."""
        return [
            GroupMember(self, "member-1", "classic-group", CLASSIC),
            GroupProcessor(self, "processor-1", "classic-group", CLASSIC, protocol=PROTOCOL_1),
            GroupMember(self, "member-2", "consumer-group", CONSUMER),
            GroupProcessor(self, "processor-2", "consumer-group", CONSUMER, protocol=PROTOCOL_2),
        ]

    # -- interface of clients ----------------------------------------------------------------------

    def next_process(self) -> int:
        self._process += 1
        if self.draining:
            self._final += 1
            return FINAL_PROCESS + self._final
        return self._process

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def violation(self, what: str) -> None:
        """Report a violation. The run ends."""
        if not self.violations:
            names = [name for name, text in KNOWN_DEFECTS.items() if text.search(what)]
            self.known = names[0] if names else ""
        self.scheduler.note(f"violation: {what}")
        self.violations.append(f"{self.scheduler.now_us / SECOND:.3f} s: {what}")

    def history_event(self, event: dict[str, Any]) -> None:
        self.history.append(history_line(event, self.scheduler.now_us))

    def acknowledged(self, key: Key, first: int, last: int, acks: int, step: int = NO_STEP) -> None:
        """A broker has acknowledged records, in a response that it sent in `step`."""
        self.count("batches acknowledged")
        if self.is_cluster:
            if acks == -1:
                self.count("batches acknowledged by all")
                self._check_committed(key, last + 1, "was acknowledged", step)
        elif key.durable:
            self._promised(key, last + 1)

    def was_read(self, key: Key, end: int, step: int = NO_STEP) -> None:
        """Records below `end` were read, in a response that the broker sent in `step`."""
        if self.is_cluster:
            self._check_committed(key, end, "was read", step)
        elif key.durable:
            self._promised(key, end)

    def _check_committed(self, key: Key, end: int, what: str, step: int) -> None:
        """Check that records were committed when the broker sent its response."""
        model = self.model_of(key)
        if model is None or model.unclean_elections:
            return
        committed = model.committed_at(step)
        if end > committed:
            self.violation(
                f"{model.name}: offset {end - 1} {what}, but only records below "
                f"{committed} were committed when the broker sent the response"
            )
        if self._flushes(key) and model.state is not None:
            for member in model.state.isr:
                self.observers[member].promised(self._model_key(key), end)

    def _flushes(self, key: Key) -> bool:
        return any(
            each.name == key.topic and FLUSHES.items() <= each.configs.items()
            for each in self.topics
        )

    def _model_key(self, key: Key) -> tuple[bytes, int]:
        topic = self.cluster.topics.get(key.topic)
        return (topic.topic_id if topic is not None else b"", key.partition)

    def model_of(self, key: Key) -> PartitionModel | None:
        """Return the rules of a partition of a cluster."""
        return self.models.get(self._model_key(key))

    def may_lose(self, key: Key) -> bool:
        """Return whether acknowledged records of a partition may be lost."""
        model = self.model_of(key) if self.is_cluster else None
        return not key.durable or (model is not None and model.unclean_elections > 0)

    def is_deposed(self, key: Key, address: tuple[str, int]) -> bool:
        """Return whether another broker was observed as leader in a later epoch."""
        model = self.model_of(key) if self.is_cluster else None
        if model is None or model.epoch < 0:
            return False
        newest = model.leaders[model.epoch]
        return all(m.node_id != newest for m in self.machines if m.host == address[0])

    def producer_id_given(self, producer_id: int, to: str) -> None:
        self.cluster.producer_id_given(producer_id, to)

    @property
    def coordinators(self) -> CoordinatorModel | None:
        """The rules about coordinators. None for a single broker."""
        return self.cluster.coordinators if self.is_cluster else None

    def _promised(self, key: Key, end: int) -> None:
        for name, view in self.admin.topics.items():
            if name == key.topic:
                for observer in self.observers.values():
                    observer.promised((bytes(view.topic_id), key.partition), end)

    def request_ended(self, began_us: int, failure: str) -> None:
        self.count("requests")
        if failure:
            self.count(f"requests failed: {failure}")
            if self.healed_us is not None and began_us > self.healed_us + GRACE_US:
                self.violation(f"a request after the healing failed: {failure}")

    # -- callbacks of machines ---------------------------------------------------------------------

    def _stepped(self, machine: Machine) -> None:
        self.observers[machine.node_id].step()

    def _ended(self, machine: Machine, how: str) -> None:
        self.count(f"broker ends: {how}")
        self.observers[machine.node_id].ended(how)
        if machine.dropped:
            self.count("ends that drop pages of failed fsyncs")
        if how == "failed" and self._must_start(machine):
            self.violation(f"{machine.host} cannot start: {self.scheduler.trace.tail()[-1]}")
        delay_us = int(self.rng.uniform(0, RESTART_S_MAX) * SECOND)
        self.scheduler.after(delay_us, self._start, machine)
        if how in ("stop", "kill") and self.nemesis.takes_power_of(machine):
            self.cut_power(machine)

    def _must_start(self, machine: Machine) -> bool:
        """Return whether nothing is at fault that a start needs."""
        if machine.disk.space_left is not None or machine.disk.faults_seen:
            return False
        # A start fails if the session with the store of the cluster breaks before the broker is
        # registered.
        return not self.is_cluster or self.healed_us is not None

    def cut_power(self, machine: Machine) -> None:
        """Cut the power of a machine, also if its broker has ended and is not started again yet."""
        if machine.process is not None:
            machine.kill(power_cut=True)
        else:
            machine.lose_power()
            self.observers[machine.node_id].ended("power")
            self.count("power cuts of stopped brokers")

    def start_soon(self, machine: Machine) -> None:
        """Start a broker that has just ended before its usual delay."""
        self.scheduler.after(int(self.rng.uniform(0, 0.2) * SECOND), self._start, machine)

    def _start(self, machine: Machine) -> None:
        if machine.process is None:
            self.count("broker starts")
            machine.disk.faults_seen = machine.disk.is_failing
            machine.start()

    # -- the run -----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run until the end, or the first violation."""
        loggers = [logging.getLogger(name) for name in ("odradek", "asyncio")]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.addHandler(self._errors)
            logger.setLevel(min(logger.level or logging.WARNING, logging.WARNING))
        collects = gc.isenabled()
        gc.disable()  # the moments of collections must not matter
        try:
            self._run()
        finally:
            if collects:
                gc.enable()
            for logger, level in zip(loggers, levels, strict=True):
                logger.removeHandler(self._errors)
                logger.setLevel(level)
        for observer in self.observers.values():
            self.counts["invariants checked"] += observer.checks
            self.counts["replays checked"] += observer.replays
            self.counts["replays of compacted logs"] += observer.compacted_replays
            self.counts["logs truncated"] += observer.truncations
            self.counts["logs cut by a power cut"] += observer.cuts
        self.counts["ISR shrinks by lag"] = self.cluster.shrinks_by_lag
        self.counts["session expiries"] = self.ensemble.expirations
        self.counts["unclean stops"] = (
            self.counts["broker ends: kill"] + self.counts["broker ends: power"]
        )
        return Outcome(
            self.scheduler.seed,
            [] if self.known else self.violations,
            self.known,
            self.scheduler.trace.digest(),
            self.scheduler.steps,
            self.scheduler.now_us / SECOND,
            self.counts,
            self.scheduler.trace.tail(),
            self.history,
        )

    def _run(self) -> None:
        test = {"type": "test", "seed": self.scheduler.seed, "time": 0}
        self.history.append(history_line(test, 0))
        for machine in self.machines:
            self._start(machine)
        if not self._until_done([self.client_loop.create_task(self.admin.create_topics())], 30):
            self.violation("the topics cannot be created")
            return
        tasks = [self.client_loop.create_task(client.run()) for client in self.clients]
        self.nemesis.start()
        if self.is_cluster:
            self.progress.start()
        self._until_us(int(self.run_s * SECOND))
        self.nemesis.heal()
        self.healed_us = self.scheduler.now_us
        self.scheduler.note("healed")
        self.draining = True
        if not self._until_done(tasks, HEAL_S):
            self.violation("clients still wait for responses")
        if self.violations:
            return
        if self.is_cluster:
            self._await_recovery()
        if not self.violations:
            self._finish()

    def _await_recovery(self) -> None:
        """Wait until each partition has a leader, a full ISR, and equal logs."""
        deadline_us = self.scheduler.now_us + RECOVERY_S * SECOND
        problems = self.cluster.problems()
        while problems and self.scheduler.now_us < deadline_us and not self.violations:
            self._until_us(self.scheduler.now_us + CHECK_US)
            problems = self.cluster.problems()
        if problems:
            self.violation(f"the cluster has not recovered: {problems[0]}")
        if not self.violations:
            self._probe()

    def _probe(self) -> None:
        """Let each broker create a topic, append to it, and delete it (`probes`)."""
        deadline_us = self.scheduler.now_us + PROBE_S * SECOND
        tasks = [
            self.client_loop.create_task(probe(self, address, deadline_us))
            for address in self.bootstrap
        ]
        is_done = self._until_done(tasks, PROBE_S + 10)
        for problem in (task.result() for task in tasks if task.done()):
            if problem:
                self.violation(f"the cluster has not recovered: {problem}")
        if not is_done and not self.violations:
            self.violation("the cluster has not recovered: a probe has not ended")

    def _unended(self) -> list[str]:
        """Return the transactions that are open, in a coordinator or in a partition."""
        topics = {key.topic for key in self.keys} | {CONSUMER_OFFSETS}
        found = self.cluster.unended() if self.is_cluster else []
        return found or [
            what for observer in self.observers.values() for what in observer.undecided(topics)
        ]

    def _finish(self) -> None:
        """Wait for the end of all transactions, read everything, and check the history."""
        stable_us = self.scheduler.now_us + STABLE_S * SECOND
        while (unended := self._unended()) and self.scheduler.now_us < stable_us:
            self._until_us(self.scheduler.now_us + CHECK_US)
            if self.violations:
                return
        if unended:
            self.violation(f"a transaction is still open: {unended}")
        if self.violations:
            return
        readers = [
            SimulatedConsumer(self, f"final-{committed}", committed=committed)
            for committed in (True, False)
        ]
        deadline_us = self.scheduler.now_us + HEAL_S * SECOND
        tasks = [self.client_loop.create_task(each.read_to_end(deadline_us)) for each in readers]
        if not self._until_done(tasks, HEAL_S + 10) or not all(task.result() for task in tasks):
            self.violation("the final readers do not reach the end")
            return
        self.history_event({"type": "final"})
        for machine in self.machines:
            if machine.process is not None:
                for problem in machine.process.loop.failures_of_tasks():
                    self.violation(problem)
        for observer in self.observers.values():
            observer.replay()
        self._check_history()

    def _check_history(self) -> None:
        """Report the anomalies of keys that may lose nothing.

        A power cut may take acknowledged records from a topic without flush.messages, and their
        offsets are used again. The same holds for the end of a process after a failed fsync.
        """
        exempt = {key.number for key in self.keys} - {key.number for key in self.safe_keys}
        if self.is_cluster or self.counts["ends that drop pages of failed fsyncs"]:
            exempt |= {key.number for key in self.keys if self.may_lose(key)}
        self.counts["partitions that may lose records"] += len(exempt)
        history = parse(self.history)
        violations, excused = divide(history, exempt)
        self.count("anomalies of topics that may lose records", len(excused))
        for anomaly in violations:
            self.violation(f"history: {anomaly.kind} {anomaly.detail}")
        self.counts["operations"] = len(history.ops)

    def _until_done(self, tasks: list[asyncio.Task[Any]], seconds: float) -> bool:
        deadline_us = self.scheduler.now_us + int(seconds * SECOND)

        def ended() -> bool:
            return self._failed() or all(task.done() for task in tasks)

        self.scheduler.run_until(deadline_us, ended)
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.violation(f"a client failed: {task.exception()!r}")
                raise task.exception()  # type: ignore[misc]
        return all(task.done() for task in tasks)

    def _until_us(self, time_us: int) -> None:
        self.scheduler.run_until(time_us, self._failed)

    def _failed(self) -> bool:
        if self._failures:
            for failure in self._failures:
                self.violation(failure)
            self._failures.clear()
        return bool(self.violations)

    def close(self) -> None:
        """Drop all objects of the run."""
        self._end_all()
        graveyard, scheduler = self._graveyard, self.scheduler
        self.__dict__.clear()  # the graveyard's collection must find all objects of dead processes
        graveyard.close(scheduler)

    def _end_all(self) -> None:
        """Kill all processes. No local variable of `close` may refer to an object of them."""
        self._patches.undo()
        self.draining = True
        for machine in self.machines:
            machine.on_end = lambda *_: None
            machine.kill()
        self._graveyard.bury(self.client_loop)
