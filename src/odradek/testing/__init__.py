"""A real broker for tests: `with Broker() as broker: broker.bootstrap_servers`.

`Broker` also sets faults, moves the time and waits for states (docs/testing.md).
"""

from odradek.testing.barriers import WaitTimeoutError
from odradek.testing.broker import Broker
from odradek.testing.faults import Fault

__all__ = ["Broker", "Fault", "WaitTimeoutError"]
