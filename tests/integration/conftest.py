"""Tests with other projects' Kafka clients. Each test has its own broker."""

from tests.helpers.broker_fixtures import broker, client, config, patient

__all__ = ["broker", "client", "config", "patient"]
