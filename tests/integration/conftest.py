"""Tests with clients of other authors, each on a broker of its own."""

from tests.helpers.broker_fixtures import broker, client, config, patient

__all__ = ["broker", "client", "config", "patient"]
