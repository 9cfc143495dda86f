"""A thread that kills the brokers of a cluster, one after the other, while a suite runs.

A seed determines the brokers, the pauses and the down times. The next broker is killed after all
replicas are in sync again, so that two brokers with `min.insync.replicas` are never missing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from testkit.peer.cluster import ClusterProcesses

PAUSE_S = (2.0, 12.0)
"""The shortest and the longest time from the last in-sync replica to the next kill."""
DOWN_S = (0.0, 10.0)
"""The shortest and the longest time from a kill to the start. Sessions of brokers have 6 s."""
IN_SYNC_S = 180.0
"""Time after which missing in-sync replicas are reported, and the kills end."""
METADATA_S = 10.0
CHECK_AGAIN_S = 0.3


@dataclass(frozen=True, slots=True)
class Kill:
    """A planned kill: the position of the broker, the pause before, and the time it is down."""

    position: int
    pause_s: float
    down_s: float


def planned(random: Random, brokers: int) -> Kill:
    """Return the next kill of a sequence."""
    return Kill(random.randrange(brokers), random.uniform(*PAUSE_S), random.uniform(*DOWN_S))


class BrokerKills:
    """Kills brokers from `with` to its end. Then all brokers run, and all replicas are in sync.

    Args:
        cluster: The brokers. The thread of this object kills and starts them.
        random: The source of the sequence.
    """

    def __init__(self, cluster: ClusterProcesses, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker-kills", daemon=True)
        self._admin: AdminClient | None = None
        self.count = 0
        self.failure = ""

    def __enter__(self) -> BrokerKills:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._kill_until_end()
            self._await_in_sync()
        except RuntimeError as error:
            self.failure = str(error)
        except BaseException as error:
            self.failure = repr(error)
            raise

    def _kill_until_end(self) -> None:
        ids = list(self._cluster.brokers)
        while True:
            kill = self._plan()
            if self._end.wait(kill.pause_s):
                return
            broker_id = ids[kill.position]
            began = time.monotonic()
            self._cluster.kill(broker_id)
            self.count += 1
            self._end.wait(kill.down_s)
            self._cluster.restart(broker_id)
            self._await_in_sync()
            took_s = time.monotonic() - began
            print(
                f"--- killed broker {broker_id}, down {kill.down_s:.1f} s, in sync {took_s:.1f} s"
            )

    def _plan(self) -> Kill:
        return planned(self._random, len(self._cluster.brokers))

    def _await_in_sync(self) -> None:
        await_in_sync(self._missing, IN_SYNC_S)

    def _missing(self) -> list[str]:
        """Return the partitions whose replicas are not all in sync."""
        if self._admin is None:
            settings = {"bootstrap.servers": self._cluster.bootstrap, "log_level": 0}
            self._admin = AdminClient(settings)
        topics = self._admin.list_topics(timeout=METADATA_S).topics
        return [
            f"{name}-{number}"
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < len(partition.replicas)
        ]


def await_in_sync(missing: Callable[[], list[str]], limit_s: float) -> None:
    """Wait until no partition lacks a replica.

    Raises:
        RuntimeError: Some do, or no broker responds, after `limit_s`.
    """
    deadline = time.monotonic() + limit_s
    found = ["no broker responds"]
    while True:
        with contextlib.suppress(KafkaException):
            found = missing()
        if not found:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"not in sync after {limit_s:g} s: {', '.join(found[:5])}")
        time.sleep(CHECK_AGAIN_S)
