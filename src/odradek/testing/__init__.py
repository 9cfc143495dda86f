"""A real broker inside a test: `with Broker() as broker: broker.bootstrap_servers`."""

from odradek.testing.broker import Broker

__all__ = ["Broker"]
