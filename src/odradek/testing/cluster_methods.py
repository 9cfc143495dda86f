"""The common part of clusters in a test's process and clusters of processes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Self

from odradek.launcher.plan import replication_configs
from odradek.testing.barriers import LOOK_AGAIN_S, WaitTimeoutError

SESSION_MS = 2_000
"""Time after which a broker that was killed, paused or cut off from the store is replaced."""
REPLICA_LAG_MS = 3_000
WAIT_S = 30.0


class ClusterMethods(ABC):
    """Start, end and waits of a cluster. The arguments are those of `Cluster`."""

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        *,
        processes: bool = False,
        zookeeper: str | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker: Cluster({brokers})")
        if zookeeper is not None and not processes:
            raise ValueError("zookeeper needs processes: Cluster(3, processes=True, zookeeper=...)")
        self._count = brokers
        self._given = dict(config or {})

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def start(self) -> Self:
        """Start all brokers. Return when each of them serves clients."""

    @abstractmethod
    def close(self) -> None:
        """End all brokers and remove their data. A second call does nothing."""

    @abstractmethod
    def _not_in_sync(self, topic: str | None) -> str:
        """Return what is missing, or nothing."""

    def wait_until_in_sync(self, topic: str | None = None, *, timeout_s: float = WAIT_S) -> None:
        """Wait until each partition has a leader, and its replicas on running brokers are in sync.

        A paused broker counts as running. All running brokers must know it.

        Args:
            topic: A topic. None: all topics.
            timeout_s: Time limit in seconds.

        Raises:
            WaitTimeoutError: A replica is still not in sync. The message names it.
        """
        deadline = time.monotonic() + timeout_s
        while missing := self._not_in_sync(topic):
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(f"waited {timeout_s:g} s for replicas in sync: {missing}")
            time.sleep(LOOK_AGAIN_S)


def cluster_configs(brokers: int) -> dict[str, object]:
    """Return the configs of a test cluster: those of replication, and short times."""
    return {
        **replication_configs(brokers),
        "broker.session.timeout.ms": SESSION_MS,
        "replica.lag.time.max.ms": REPLICA_LAG_MS,
    }


def unknown_broker(broker_id: int, known: Iterable[int]) -> ValueError:
    """Return the error for a broker that the cluster does not have."""
    ids = ", ".join(map(str, known))
    return ValueError(f"the cluster has no broker {broker_id}, but {ids}")
