"""Loads on coordinators, as rows of paired runs: OffsetCommit, transactions, members of a group.

`benchmarks.evidence.compared` runs them and renders their tables.
"""

from __future__ import annotations

import json
import sys
from functools import partial

from benchmarks.evidence.paired import Row
from benchmarks.loads import Driven, drop_topic, fresh_topic, measured
from testkit.peer.server import BrokerProcess

COMMITS = 100_000
TRANSACTIONS = 500
MEMBERS = 50


def client(broker: Driven, module: str, topic: str, **options: str | int) -> dict[str, float]:
    """Run a load with a client program. Return its output and the broker's CPU seconds."""
    command = [sys.executable, "-m", f"benchmarks.{module}", broker.bootstrap, topic]
    for key, value in options.items():
        command += [f"--{key.replace('_', '-')}", str(value)]
    output, cpu = measured(broker, command)
    return {**json.loads(output), "cpu_s": cpu}


def commits(
    broker: BrokerProcess, topic: str, scale: float, connections: int = 4, in_flight: int = 50
) -> dict[str, float]:
    count = max(int(COMMITS * scale), connections)
    seen = client(
        broker, "commits", topic, commits=count, connections=connections, in_flight=in_flight
    )
    return rate_of(seen, "commits", 1000)


def transactions(
    broker: BrokerProcess, topic: str, scale: float, producers: int = 1
) -> dict[str, float]:
    count = max(int(TRANSACTIONS * scale), 2) * producers
    two = fresh_topic(broker, 2)
    seen = client(broker, "transactions", two, transactions=count, producers=producers)
    drop_topic(broker, two)
    return rate_of(seen, "transactions", 1)


def rate_of(seen: dict[str, float], unit: str, per: int) -> dict[str, float]:
    """Return units per second, CPU milliseconds for `per` units, and the client's CPU."""
    return {
        "rate": seen[unit] / seen["seconds"],
        "cpu_ms": seen["cpu_s"] * 1000 * per / seen[unit],
        "client_cpu_ms": seen["client_cpu_s"] * 1000 * per / seen[unit],
    }


def group(broker: BrokerProcess, topic: str, _: float) -> dict[str, float]:
    seen = client(broker, "group_join", topic, members=MEMBERS)
    return {"seconds": seen["seconds"], "cpu_ms": seen["cpu_s"] * 1000}


COMMIT_METRICS = {
    "rate": "commits/s",
    "cpu_ms": "CPU-ms per 1,000 commits",
    "client_cpu_ms": "CPU-ms of the client per 1,000 commits",
}
TRANSACTION_METRICS = {
    "rate": "transactions/s",
    "cpu_ms": "CPU-ms per transaction",
    "client_cpu_ms": "CPU-ms of the client per transaction",
}
GROUP_METRICS = {"seconds": "s", "cpu_ms": "CPU-ms"}

COMMIT_ROWS = (
    Row("commits_1", "OffsetCommit, one connection, 50 in flight", COMMIT_METRICS,
         partial(commits, connections=1)),
    Row("commits_4", "OffsetCommit, four connections, 50 in flight each", COMMIT_METRICS,
         partial(commits, connections=4)),
)  # fmt: skip
TRANSACTION_ROWS = (
    Row("transactions_1", "transactions, one producer", TRANSACTION_METRICS,
         partial(transactions, producers=1)),
    Row("transactions_10", "transactions, ten producers at once", TRANSACTION_METRICS,
         partial(transactions, producers=10)),
)  # fmt: skip
GROUP_ROWS = (
    Row("group_0", "50 members to a stable group, no initial delay", GROUP_METRICS, group),
)
DELAYED_ROWS = (
    Row("group_3000", "50 members to a stable group, initial delay 3 s", GROUP_METRICS, group),
)
