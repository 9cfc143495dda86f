"""Real brokers for tests: `with Broker() as broker: broker.bootstrap_servers`.

`Broker` also sets faults, moves the time and waits for states. `Cluster` runs several brokers that
replicate, and kills, pauses and separates them (docs/testing.md). `Registry` is a schema registry
on a broker or a cluster (docs/registry.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.testing.barriers import WaitTimeoutError
from odradek.testing.broker import Broker
from odradek.testing.faults import Fault

if TYPE_CHECKING:
    from odradek.testing.cluster import Cluster
    from odradek.testing.registry import Registry

__all__ = ["Broker", "Cluster", "Fault", "Registry", "WaitTimeoutError"]


def __getattr__(name: str) -> object:
    """Import `Cluster` and `Registry` with their first use. A test with one broker starts faster.

    `Registry` needs the extra `registry` when it starts.
    """
    if name == "Cluster":
        from odradek.testing.cluster import Cluster

        return Cluster
    if name == "Registry":
        from odradek.testing.registry import Registry

        return Registry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
