"""Real brokers for tests: `with Broker() as broker: broker.bootstrap_servers`.

`Broker` also sets faults, moves the time and waits for states. `Cluster` runs several brokers that
replicate, and kills, pauses and separates them (docs/testing.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.testing.barriers import WaitTimeoutError
from odradek.testing.broker import Broker
from odradek.testing.faults import Fault

if TYPE_CHECKING:
    from odradek.testing.cluster import Cluster

__all__ = ["Broker", "Cluster", "Fault", "WaitTimeoutError"]


def __getattr__(name: str) -> object:
    """Import `Cluster` with its first use, because a test with one broker starts faster then."""
    if name == "Cluster":
        from odradek.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
