"""Real brokers for tests: `with Broker() as broker: broker.bootstrap_servers`.

`Broker` also sets faults, moves the time and waits for states. `Cluster` runs several brokers that
replicate, and kills, pauses and separates them (docs/testing.md).
"""

from odradek.testing.barriers import WaitTimeoutError
from odradek.testing.broker import Broker
from odradek.testing.cluster import Cluster
from odradek.testing.faults import Fault

__all__ = ["Broker", "Cluster", "Fault", "WaitTimeoutError"]
