"""Connections to a broker in the event loop of a test."""

from __future__ import annotations

from odradek.broker.broker import BrokerServer
from odradek.client.broker_channel import BrokerChannel
from odradek.environment.environment import Environment


def port_of(server: BrokerServer, listener: str) -> int:
    """Return the port of a listener."""
    endpoints = server._running_server.endpoints
    (port,) = [each.port for each in endpoints if each.name == listener]
    return port


def channel_to(server: BrokerServer, listener: str) -> BrokerChannel:
    """Return a new connection to a listener. The test closes it."""
    port = port_of(server, listener)
    return BrokerChannel("127.0.0.1", port, Environment(), client_id="client")
