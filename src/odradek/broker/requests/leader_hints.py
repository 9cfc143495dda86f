"""Leader endpoints in responses to requests that were sent to another broker (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.broker.requests.advertised import broker_address
from odradek.broker.requests.context import RequestContext, Services
from odradek.ids import BrokerId


class LeaderEndpoint(NamedTuple):
    """The address at which this client reaches a broker.

    The fields and their order are those of ``NodeEndpoint``.
    """

    node_id: int
    host: str
    port: int
    rack: str | None


def leader_endpoints(
    services: Services, context: RequestContext, leaders: Iterable[int]
) -> list[LeaderEndpoint]:
    """Return the endpoints of those `leaders` that are alive and have the client's listener."""
    brokers = services.image().brokers
    endpoints = []
    for leader in sorted(leaders):
        broker = brokers.get(BrokerId(leader))
        if broker is None or broker.fenced:
            continue
        address = broker_address(services.config, context.session, broker)
        if address is not None:
            endpoints.append(LeaderEndpoint(leader, *address, broker.rack))
    return endpoints
