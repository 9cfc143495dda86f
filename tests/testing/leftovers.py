"""A program that starts and ends clusters, and prints what is left afterwards.

It has a process of its own, because brokers of other tests open descriptors at any time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from odradek.errors import KafkaError
from odradek.testing import Cluster

LIMIT_S = 60.0


def threads() -> set[str]:
    return {f"{each.name} {each.ident}" for each in threading.enumerate()}


def descriptors() -> Counter[str]:
    """Return what the open descriptors are."""
    found: Counter[str] = Counter()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            found[str(each.readlink())] += 1
    return found


def killed_and_paused() -> None:
    """End a cluster of which one broker was killed and one is paused."""
    with Cluster(3) as cluster:
        cluster.create_topic("t", 3)
        servers = cluster.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
        producer.produce("t", "a", partition=0)
        assert producer.flush(LIMIT_S) == 0
        leader = cluster.leader_of("t")
        assert leader is not None
        cluster.kill(leader)
        cluster.pause(next(each for each in (1, 2, 3) if cluster.broker(each).is_running))


def not_started() -> None:
    """Start a cluster with a setting that its brokers refuse."""
    cluster = Cluster(3, {"advertised.listeners": "OTHER://host:1"})
    try:
        cluster.start()
    except KafkaError as error:
        assert "advertised" in str(error)
    else:
        raise AssertionError("the cluster has started")


SCENARIOS: dict[str, Callable[[], None]] = {
    "killed and paused": killed_and_paused,
    "not started": not_started,
}


def main() -> None:
    """Print the leftovers of the scenario that the first argument names, as JSON."""
    scenario = SCENARIOS[sys.argv[1]]
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        with Cluster(1):  # the first event loop of a process opens a pipe for good
            pass
        gc.collect()
        before = threads(), descriptors()
        scenario()
        gc.collect()
        left = {
            "threads": sorted(threads() - before[0]),
            "descriptors": descriptors() - before[1],
            "files": sorted(each.name for each in Path(directory).iterdir()),
        }
    print(json.dumps(left))


if __name__ == "__main__":
    main()
