"""Run the workload and check its history.

Start a broker by its name in testkit.peer, or by a command.

    python -m conformance.histories.run --start odradek --seconds 60
    python -m conformance.histories.run --start kafka --seed 7 --mode subscribe
    python -m conformance.histories.run --start "COMMAND with {address}, {data} and {advertised}"

Use a running broker.

    python -m conformance.histories.run --bootstrap-server HOST:PORT

Start a cluster on a ZooKeeper of its own, and kill leaders.

    python -m conformance.histories.run --start odradek --brokers 3 --zookeeper --kills 10

With `--start` the broker runs behind a proxy. It is killed, stopped and paused, and the network has
faults. With `--bootstrap-server` only the clients have faults. The seed is printed. It determines
each client's operations and the times of the faults, but not the interleaving of the processes.
The exit code is 1 if there is an anomaly that Kafka does not allow. With `--json` the last line has
the figures and the anomalies, and the exit code is 0 if the run was completed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TypeVar

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.histories.analysis import Report, achieved, analyse, figures, idle, render
from conformance.histories.clients import Fleet, HistoryFile, command_of
from conformance.histories.finals import STABLE_S, finish
from conformance.histories.history import parse
from conformance.histories.managed_broker import OTHER_FAULTS, BrokerEnded, ManagedBroker
from conformance.histories.managed_cluster import (
    CLUSTER_FAULTS,
    ManagedCluster,
    replication,
    running_cluster,
)
from conformance.histories.nemesis import FAULTS, Nemesis, kill_times
from conformance.histories.proxy import Proxy
from conformance.histories.settings import (
    CONSOLE,
    KCAT,
    TOOLS,
    TXN,
    TXN_V2,
    VERIFIABLE,
    Settings,
)
from testkit.peer.server import STARTERS, free_ports, start_command

TOPICS = 2
PARTITIONS = 2
CLIENTS = {TXN: 3, "producer": 1, "plain": 1, "consumer": 2}
# Clients with both transaction protocols: librdkafka's and franz-go's. The latter need Go.
MIXED = {TXN: 2, TXN_V2: 2, "producer": 1, "plain": 1, "consumer": 1}
# The kind of operation that each role must perform.
KINDS = {
    TXN: "txn",
    TXN_V2: "txn-v2",
    "producer": "send",
    "plain": "send",
    "consumer": "poll",
    **dict.fromkeys(TOOLS, "send"),
}
# Clients of a cluster, with producers of other authors. `conformance.faults` adds transactions.
CLUSTER_CLIENTS = {"producer": 2, "plain": 1, KCAT: 1, CONSOLE: 1, VERIFIABLE: 1, "consumer": 2}
MODES = ("assign", "subscribe", "both")
GO_ON_S = 300.0
CHECK_S = 0.5

T = TypeVar("T")


@dataclass(slots=True)
class Plan:
    """The settings of a run.

    `start` is a name of testkit.peer, or a command. None: use the broker at `bootstrap`.
    """

    seed: int
    seconds: float
    start: str | None = None
    bootstrap: str = ""
    mode: str = "both"
    faults: tuple[str, ...] = FAULTS
    clients: dict[str, int] = field(default_factory=lambda: dict(CLIENTS))
    group_protocol: str = "classic"
    assignor: str = "range"
    abort_share: float = 0.2
    stable_s: float = STABLE_S
    kills: int = 0  # of the broker, scheduled in addition to the random faults
    brokers: int = 0  # of a cluster without a proxy; 0: one broker behind the proxy
    on_zookeeper: bool = False
    acks: str = "all"  # of producers without idempotence
    keep: Path | None = None  # directory for the history of a run with anomalies

    @property
    def kept_as(self) -> Path:
        """The file of the history if the run has anomalies."""
        assert self.keep is not None
        return self.keep / f"history-{self.seed}.jsonl"


def run(plan: Plan, directory: Path, history_path: Path) -> Report:
    """Run the workload in its own directory and analyse the history."""
    for role in plan.clients:
        command_of(role)  # raises Skip before any process is started
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(_broker(plan, directory)) if plan.start else None
        bootstrap = broker.bootstrap if broker else plan.bootstrap
        history = HistoryFile(history_path)
        stack.callback(history.close)
        errors = stack.enter_context((directory / "clients.err").open("w", encoding="utf-8"))
        base = base_settings(plan, bootstrap)
        record_test(plan, history)
        check = broker.check if broker else _nothing_to_check
        create_topics(base, plan.brokers, check)
        fleet = Fleet(history, errors)
        for settings in crew(plan, base):
            fleet.add(settings)
        kills_at_s = kill_times(plan.kills, plan.seconds, plan.seed) if broker else ()
        nemesis = Nemesis(fleet, broker, plan.faults, plan.seed, kills_at_s)
        nemesis.start()
        try:
            _let_run(plan, history, check)
        except BrokerEnded:
            fleet.kill()
            raise
        finally:
            nemesis.stop()
        fleet.end()
        ids = sorted(
            {c.settings.transactional_id for c in fleet.clients if c.settings.transactional_id}
        )
        finish(base, ids, history, check, plan.stable_s)
        if isinstance(broker, ManagedCluster):
            keys = {key: TopicPartition(*base.partition_of(key)) for key in range(base.keys)}
            broker.finish(keys, history)
    with history_path.open(encoding="utf-8") as lines:
        report = analyse(parse(lines))
    if plan.keep and report.forbidden:
        plan.keep.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(history_path, plan.kept_as)
    return report


def _let_run(plan: Plan, history: HistoryFile, check: Callable[[], None]) -> None:
    """Wait for the end of the run, and on a slow machine until every kind has succeeded."""
    end = time.monotonic() + plan.seconds
    while time.monotonic() < end:
        check()
        time.sleep(CHECK_S)
    required = {KINDS[role] for role in plan.clients}
    deadline = time.monotonic() + GO_ON_S
    while not required <= achieved(parse(history.lines())) and time.monotonic() < deadline:
        check()
        time.sleep(CHECK_S)


def _nothing_to_check() -> None:
    """Check nothing: the run does not own a broker at a `bootstrap` address."""


@contextlib.contextmanager
def _broker(plan: Plan, directory: Path) -> Iterator[ManagedBroker | ManagedCluster]:
    assert plan.start is not None
    if plan.brokers:
        assert plan.start == "odradek", "only Odradek is started as a cluster"
        with running_cluster(directory, plan.brokers, on_zookeeper=plan.on_zookeeper) as cluster:
            yield cluster
        return
    (port,) = free_ports(1)
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    if plan.start in STARTERS:
        process = STARTERS[plan.start](directory / "broker", advertised)
    else:
        process = start_command(shlex.split(plan.start), directory / "broker", advertised)
    proxy = Proxy(port, int(process.bootstrap.rpartition(":")[2]))
    managed = ManagedBroker(process, proxy)
    try:
        yield managed
    finally:
        managed.close()


def record_test(plan: Plan, history: HistoryFile) -> None:
    """Write the first line of a history."""
    shown = {
        # A record must not depend on the place of the virtual environment.
        "broker": (plan.start or "at an address").replace(sys.executable, "python"),
        "seed": plan.seed,
        "seconds": plan.seconds,
        "mode": plan.mode,
        **({"brokers": plan.brokers, "zookeeper": plan.on_zookeeper} if plan.brokers else {}),
        "group_protocol": plan.group_protocol,
        "assignor": plan.assignor,
        "clients": ",".join(f"{role}={number}" for role, number in plan.clients.items()),
    }
    history.event("test", **shown)


def base_settings(plan: Plan, bootstrap: str) -> Settings:
    """Return the settings that all clients have in common, with names of this run."""
    run_id = f"h{plan.seed}-{time.time_ns() // 1_000_000:x}"
    return Settings(
        bootstrap=bootstrap,
        process=0,
        slot=0,
        role="",
        mode="assign",
        seed=plan.seed,
        topics=[f"{run_id}-{number}" for number in range(TOPICS)],
        partitions=PARTITIONS,
        group=run_id,
        transactional_id="",
        group_protocol=plan.group_protocol,
        assignor=plan.assignor,
        abort_share=plan.abort_share,
        acks=plan.acks,
    )


def crew(plan: Plan, base: Settings) -> Iterator[Settings]:
    """Yield the settings of each client.

    With mode `both`, every second client of a role assigns keys itself, except franz-go's clients.
    All transactional clients that subscribe are one group, independent of their protocol.
    """
    slot = 0
    for role, number in plan.clients.items():
        for index in range(number):
            slot += 1
            mode = plan.mode if plan.mode != "both" else ("subscribe", "assign")[index % 2]
            mode = "subscribe" if role == TXN_V2 else mode
            alone = f"-{slot}" if mode == "assign" else ""
            settings = replace(base, slot=slot, role=role, mode=mode)
            shared = TXN if settings.transacts else role
            settings.group = f"{base.group}-{shared}{alone}"
            if settings.transacts:
                settings.transactional_id = f"{base.group}-{slot}"
            yield settings


def create_topics(settings: Settings, brokers: int, check: Callable[[], None]) -> None:
    """Create the topics of a run."""
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    factor, min_isr = replication(max(1, brokers))
    config = {"min.insync.replicas": str(min_isr)}
    topics = [
        NewTopic(name, settings.partitions, factor, config=config) for name in settings.topics
    ]
    for future in admin.create_topics(topics, operation_timeout=20).values():
        while not future.done():
            check()
            wait([future], CHECK_S)
        future.result()


def parse_clients(text: str) -> dict[str, int]:
    """Parse the number of clients of each role, for example `txn=3,consumer=2`."""
    pairs = (pair.split("=") for pair in text.split(","))
    found = {role: int(number) for role, number in pairs}
    assert set(found) <= set(KINDS), f"roles are {', '.join(KINDS)}"
    return found


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m conformance.histories.run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--start", metavar="kafka|odradek|COMMAND")
    where.add_argument("--bootstrap-server", default="", metavar="HOST:PORT")
    parser.add_argument("--seed", type=int, default=Random().randrange(1 << 31))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--mode", choices=MODES, default="both")
    parser.add_argument("--clients", type=parse_clients, metavar="txn=2,txn-v2=2")
    parser.add_argument(
        "--faults",
        type=lambda text: tuple(text.split(",")) if text else (),
        help=f"of {', '.join(FAULTS + OTHER_FAULTS)}; of a cluster {', '.join(CLUSTER_FAULTS)}",
    )
    parser.add_argument("--brokers", type=int, default=0, help="start a cluster of so many")
    parser.add_argument("--zookeeper", action="store_true", help="start the cluster on ZooKeeper")
    parser.add_argument("--group-protocol", choices=["classic", "consumer"], default="classic")
    parser.add_argument("--assignor", default="range", help="range, roundrobin, cooperative-sticky")
    parser.add_argument("--abort-share", type=float, default=0.2)
    parser.add_argument(
        "--acks", default="all", help="of producers without idempotence. 1 loses records by design"
    )
    parser.add_argument("--kills", type=int, default=0, help="of the broker, at scheduled times")
    parser.add_argument(
        "--stable-s",
        type=float,
        default=STABLE_S,
        help="how long the last stable offset may stay behind at the end",
    )
    parser.add_argument("--json", action="store_true", help="the figures as one line of JSON")
    parser.add_argument("--history", type=Path, help="keep the history here")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the history in this directory on an anomaly"
    )
    return parser.parse_args(argv)


def _default(given: T | None, default: T) -> T:
    return default if given is None else given


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    print(f"seed {options.seed}", flush=True)
    plan = Plan(
        seed=options.seed,
        seconds=options.seconds,
        start=options.start,
        bootstrap=options.bootstrap_server,
        mode=options.mode,
        faults=_default(options.faults, () if options.brokers else FAULTS),
        clients=_default(options.clients, CLUSTER_CLIENTS if options.brokers else CLIENTS),
        brokers=options.brokers,
        on_zookeeper=options.zookeeper,
        group_protocol=options.group_protocol,
        assignor=options.assignor,
        abort_share=options.abort_share,
        kills=options.kills,
        stable_s=options.stable_s,
        acks=options.acks,
        keep=options.keep,
    )
    with tempfile.TemporaryDirectory(prefix="histories-") as work:
        history = options.history or Path(work) / "history.jsonl"
        report = run(plan, Path(work), history)
        print(render(report))
    if options.json:
        print(json.dumps(figures(report)))
        return 0
    for what in idle(report.history):
        print(f"no {what} succeeded: this shows nothing")
    return 1 if report.forbidden or idle(report.history) else 0


if __name__ == "__main__":
    sys.exit(main())
