"""One run: the cluster, its clients, the faults of a seed, and the analysis."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from conformance.faults import schedule
from conformance.faults.cluster import BROKERS, FaultCluster
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
from conformance.histories.analysis import Report, analyse, figures
from conformance.histories.clients import Fleet, HistoryFile
from conformance.histories.finals import finish
from conformance.histories.history import parse
from conformance.histories.managed_broker import BrokerEnded
from conformance.histories.managed_cluster import SESSION_MS, record_replicas
from conformance.histories.run import (
    CHECK_S,
    Plan,
    base_settings,
    create_topics,
    crew,
    record_test,
)

CREW = {"txn": 2, "producer": 1, "plain": 1, "consumer": 2}
REPORTED_LATE_S = 5.0
"""Most time by which a session expires, or a broker notices it, after the session timeout."""


@dataclass(slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        report: The anomalies of the history.
        values: The raw values of the run.
        failure: A state that the cluster did not reach, or sessions that expired without a cause.
    """

    report: Report
    values: dict[str, Any]
    failure: str = ""


@contextlib.contextmanager
def running(directory: Path) -> Iterator[FaultCluster]:
    """Start a cluster, on network namespaces if this process has entered its own."""
    network: Network = Namespaces(BROKERS) if is_inside() else Proxies(BROKERS)

    def new_disk(home: Path) -> Disk:
        return SmallDisk(home) if is_inside() else LimitedFiles(home)

    try:
        cluster = FaultCluster(directory, network, new_disk)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()
    finally:
        network.close()


def run(
    seed: int, faults: int, directory: Path, history_path: Path, keep: Path | None = None
) -> Outcome:
    """Play the faults of a seed.

    Args:
        seed: Determines the faults and the operations of the clients.
        faults: The number of faults.
        directory: The place of all files.
        history_path: The file of the history.
        keep: The place for the history and all logs of a run that has failed.

    Raises:
        BrokerEnded: The cluster could not be started.
    """
    plan = Plan(seed, 0.0, start="odradek", clients=CREW, brokers=BROKERS, on_zookeeper=True)
    failure, began = "", time.monotonic()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(running(directory))
        history = HistoryFile(history_path)
        stack.callback(history.close)
        errors = stack.enter_context((directory / "clients.err").open("w", encoding="utf-8"))
        record_test(plan, history)
        starvation = Starvation(cluster.pids)
        starvation.start()
        fleet = Fleet(history, errors, cluster.network.prefix(CLIENTS))
        stack.callback(fleet.kill)
        try:
            nemesis = _play(plan, cluster, fleet, history, schedule.steps(seed, faults))
        except BrokerEnded as error:
            failure, nemesis = str(error), None
        starved = starvation.stop()
        sessions = _sessions(cluster, starved)
    with history_path.open(encoding="utf-8") as lines:
        report = analyse(parse(lines))
    values = {
        **figures(report),
        "network": cluster.network.kind,
        "disk": cluster.brokers[1].disk.kind,
        "seconds": round(time.monotonic() - began, 1),
        "sessions": sessions[0],
        "unnamed_sessions": sessions[1],
        "starved_s": round(sum(each.ended - each.began for each in starved), 1),
        **_numbers(nemesis, report),
    }
    if sessions[1] and not failure:
        failure = f"sessions expired without a cause: {'; '.join(sessions[1])}"
    if keep is not None and (report.forbidden or failure):
        _keep(keep / str(seed), directory, history_path)
    return Outcome(report, values, failure)


def _play(
    plan: Plan,
    cluster: FaultCluster,
    fleet: Fleet,
    history: HistoryFile,
    steps: list[schedule.Step],
) -> FaultNemesis:
    """Let the clients work while the faults happen. Then end both, and read everything."""
    base = base_settings(plan, cluster.bootstrap)
    create_topics(base, BROKERS, cluster.check)
    settings = list(crew(plan, base))
    for each in settings:
        fleet.add(each)
    ids = sorted({each.transactional_id for each in settings if each.transactional_id})
    groups = sorted({each.group for each in settings if each.role in ("txn", "consumer")})
    work = Workload(base.topics, base.keys, groups, ids)
    nemesis = FaultNemesis(cluster, work, history, steps, plan.seed)
    nemesis.start()
    try:
        while not nemesis.is_done:
            cluster.check()
            time.sleep(CHECK_S)
    finally:
        nemesis.stop()
    cluster.check()
    fleet.end()
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
    return nemesis


def _sessions(cluster: FaultCluster, starved: list[Cause]) -> tuple[dict[str, int], list[str]]:
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


def _numbers(nemesis: FaultNemesis | None, report: Report) -> dict[str, int]:
    """Return the numbers of faults and kills."""
    played = Counter(each["f"] for each in report.history.faults)
    return {
        "faults_all": sum(played.values()),
        "sigkills": sum(number for name, number in played.items() if name in schedule.KILLS),
        "processes_killed": nemesis.processes_killed if nemesis else 0,
        "prepared_kills": nemesis.prepared_kills if nemesis else 0,
        "during": sum("during" in each for each in report.history.faults),
    }


def _keep(target: Path, directory: Path, history_path: Path) -> None:
    """Copy the history and all logs."""
    target.mkdir(parents=True, exist_ok=True)
    logs = [*directory.glob("*.log"), directory / "clients.err"]
    for path in (*logs, history_path):
        shutil.copyfile(path, target / path.name)
