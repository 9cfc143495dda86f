"""One run: the cluster, its clients, the faults of a seed, and the analysis."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from conformance.faults import schedule
from conformance.faults.cluster import BROKERS, ODRADEK, FaultCluster
from conformance.faults.disks import Disk, LimitedFiles, SmallDisk
from conformance.faults.namespaces import Namespaces, is_inside
from conformance.faults.nemesis import IN_SYNC_S, FaultNemesis, Workload
from conformance.faults.network import CLIENTS, Network, Proxies
from conformance.faults.sessions import (
    Cause,
    Expiry,
    cause_of,
    expired_in_zookeeper,
    lost_by_broker,
    registered_in,
)
from conformance.faults.starvation import STARVED, Starvation
from conformance.harness import Skip
from conformance.histories.analysis import Report, achieved, analyse, figures, idle
from conformance.histories.clients import Fleet, HistoryFile, command_of
from conformance.histories.finals import finish
from conformance.histories.history import parse
from conformance.histories.managed_broker import BrokerEnded
from conformance.histories.managed_cluster import SESSION_MS, record_replicas
from conformance.histories.run import (
    CHECK_S,
    KINDS,
    Plan,
    base_settings,
    create_topics,
    crew,
    record_test,
)
from conformance.histories.settings import KCAT, TXN, TXN_V2

CREW = {TXN: 2, TXN_V2: 1, "producer": 1, "plain": 1, KCAT: 1, "consumer": 2}
REPORTED_LATE_S = 5.0
"""Most time by which a session expires, or a broker notices it, after the session timeout."""


@dataclass(slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        report: The anomalies of the history.
        values: The raw values of the run.
        failure: Why the run does not count: a state that the cluster did not reach, an error of a
            final request, sessions that expired without a cause, operations that never succeeded.
    """

    report: Report
    values: dict[str, Any]
    failure: str = ""


@contextlib.contextmanager
def running(directory: Path, program: Sequence[str] = ODRADEK) -> Iterator[FaultCluster]:
    """Start a cluster, on network namespaces if this process has entered its own."""
    network: Network = Namespaces(BROKERS) if is_inside() else Proxies(BROKERS)

    def new_disk(home: Path) -> Disk:
        return SmallDisk(home) if is_inside() else LimitedFiles(home)

    try:
        cluster = FaultCluster(directory, network, new_disk, program)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()
    finally:
        network.close()


def available_crew() -> dict[str, int]:
    """Return the clients of this machine: franz-go's need Go, and kcat must be installed."""
    crew = dict(CREW)
    if shutil.which("kcat") is None:
        del crew[KCAT]
    try:
        command_of(TXN_V2)
    except Skip:
        del crew[TXN_V2]
    return crew


def run(
    seed: int,
    steps: Sequence[schedule.Step],
    directory: Path,
    history_path: Path,
    *,
    keep: Path | None = None,
    program: Sequence[str] = ODRADEK,
) -> Outcome:
    """Play faults on a cluster while its clients work.

    Args:
        seed: Determines the details of the faults and the operations of the clients.
        steps: The faults.
        directory: The place of all files.
        history_path: The file of the history.
        keep: The place for the history and all logs of a run that has failed.
        program: The arguments of the Python interpreter that run `odradek`.

    Raises:
        BrokerEnded: The cluster could not be started.
    """
    plan = Plan(
        seed, 0.0, start="odradek", clients=available_crew(), brokers=BROKERS, on_zookeeper=True
    )
    failure, began, late = "", time.monotonic(), list[str]()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(running(directory, program))
        history = HistoryFile(history_path)
        stack.callback(history.close)
        errors = stack.enter_context((directory / "clients.err").open("w", encoding="utf-8"))
        record_test(plan, history)
        starvation = Starvation(cluster.pids)
        starvation.start()
        fleet = Fleet(history, errors, cluster.network.prefix(CLIENTS))
        stack.callback(fleet.kill)
        nemesis = FaultNemesis(cluster, history, steps, plan.seed)
        try:
            late = _play(plan, cluster, fleet, history, nemesis)
        except (BrokerEnded, KafkaException) as error:  # the latter: a request at the end
            failure = str(error)
        starved = starvation.stop()
        expired, unnamed = sessions(cluster, starved)
    with history_path.open(encoding="utf-8") as lines:
        report = analyse(parse(lines))
    values = {
        **figures(report),
        "network": cluster.network.kind,
        "disk": cluster.brokers[1].disk.kind,
        "seconds": round(time.monotonic() - began, 1),
        "sessions": expired,
        "unnamed_sessions": unnamed,
        "late_clients": late,
        "starved_s": round(sum(each.ended - each.began for each in starved), 1),
        **_numbers(nemesis, report),
    }
    failures = [failure] if failure else []
    failures += [f"no {what} succeeded" for what in idle(report.history)]
    if not (failure or report.history.complete):
        failures.append("the final reads did not end")
    failures += [f"the client {name} did not finish its last operation" for name in late]
    if unnamed:
        failures.append(f"sessions expired without a cause: {', '.join(unnamed)}")
    if keep is not None and (report.forbidden or failures):
        _keep(keep / str(seed), directory, history_path)
    return Outcome(report, values, "; ".join(failures))


def _play(
    plan: Plan,
    cluster: FaultCluster,
    fleet: Fleet,
    history: HistoryFile,
    nemesis: FaultNemesis,
) -> list[str]:
    """Let the clients work while the faults happen. Then end both, and read everything.

    Return the clients that did not finish their last operation in time.
    """
    base = base_settings(plan, cluster.bootstrap)
    create_topics(base, BROKERS, cluster.check)
    settings = list(crew(plan, base))
    for each in settings:
        fleet.add(each)
    ids = sorted({each.transactional_id for each in settings if each.transactional_id})
    groups = sorted({each.group for each in settings if each.transacts or each.role == "consumer"})
    _await_work(plan, cluster, history)
    nemesis.start(Workload(base.topics, base.keys, groups, ids))
    try:
        while not nemesis.is_done:
            cluster.check()
            time.sleep(CHECK_S)
    finally:
        nemesis.stop()
    cluster.check()
    late = fleet.end()
    finish(base, ids, history, cluster.check, plan.stable_s)
    cluster.until(
        lambda: cluster.are_in_sync(base.topics, base.keys), "all replicas in sync", IN_SYNC_S
    )
    in_sync = {
        name: sorted(each.isr_nodes) for name, each in cluster.partitions(base.topics).items()
    }
    cluster.stop()
    keys = {key: TopicPartition(*base.partition_of(key)) for key in range(base.keys)}
    log_dirs = {number: each.plan.log_dir for number, each in cluster.brokers.items()}
    record_replicas(history, keys, in_sync, log_dirs)
    return late


def _await_work(plan: Plan, cluster: FaultCluster, history: HistoryFile) -> None:
    """Wait until an operation of each kind has succeeded, so that the faults meet clients."""
    required = {KINDS[role] for role in plan.clients}
    cluster.until(
        lambda: required <= achieved(parse(history.lines())),
        "an operation of each kind of client",
        IN_SYNC_S,
    )


def sessions(cluster: FaultCluster, starved: list[Cause]) -> tuple[dict[str, int], list[str]]:
    """Return the number of expired sessions by cause, and those without a cause."""
    ends = [end for broker in cluster.brokers.values() for end in broker.ends]
    causes = [*cluster.causes, *ends, *starved]
    owners: dict[int, tuple[int, int]] = {}
    expiries: list[Expiry] = []
    for number, broker in cluster.brokers.items():
        for process in range(1, broker.process + 1):
            log = broker.log_of(process).read_text("utf-8", errors="replace")
            for session in registered_in(log):
                owners.setdefault(session, (number, process))
            expiries += lost_by_broker(log, process)
    zookeeper_log = cluster.zookeeper.child.log_file.read_text("utf-8", errors="replace")
    expiries += expired_in_zookeeper(zookeeper_log, owners)
    found: Counter[str] = Counter()
    unnamed = []
    for each in expiries:
        cause = cause_of(each, causes, SESSION_MS / 1000, REPORTED_LATE_S)
        if cause and (each.source == "ZooKeeper" or cause == STARVED):
            found[cause] += 1
        elif not cause:
            at = time.strftime("%H:%M:%S", time.localtime(each.at))
            unnamed.append(f"broker {each.broker} at {at}, by the log of the {each.source}")
    return dict(found), unnamed


def _numbers(nemesis: FaultNemesis, report: Report) -> dict[str, int]:
    """Return the numbers of faults and kills."""
    played = Counter(each["f"] for each in report.history.faults)
    return {
        "faults_all": sum(played.values()),
        "sigkills": sum(number for name, number in played.items() if name in schedule.KILLS),
        "processes_killed": nemesis.processes_killed,
        "prepared_kills": nemesis.prepared_kills,
        "during": sum("during" in each for each in report.history.faults),
    }


def _keep(target: Path, directory: Path, history_path: Path) -> None:
    """Copy the history and all logs."""
    target.mkdir(parents=True, exist_ok=True)
    logs = [*directory.glob("*.log"), directory / "clients.err"]
    for path in (*logs, history_path):
        shutil.copyfile(path, target / path.name)
