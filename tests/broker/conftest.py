"""Fixtures of the broker's tests. Each test has its own broker."""

from tests.helpers.broker_fixtures import broker, client, config, patient

__all__ = ["broker", "client", "config", "patient"]
