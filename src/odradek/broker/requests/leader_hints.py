"""Where a partition's leader is, told with the error that sent the client away (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.broker.requests.advertised import advertised_address
from odradek.broker.requests.context import RequestContext, Services
from odradek.ids import BrokerId


class LeaderEndpoint(NamedTuple):
    """A broker as this client reaches it; the fields of ``NodeEndpoint`` in its order."""

    node_id: int
    host: str
    port: int
    rack: str | None


def leader_endpoints(
    services: Services, context: RequestContext, leaders: Iterable[int]
) -> list[LeaderEndpoint]:
    """The endpoints of those of `leaders` that are alive."""
    brokers = services.image().brokers
    host, port = advertised_address(services.config, context.connection)
    return [
        LeaderEndpoint(leader, host, port, brokers[BrokerId(leader)].rack)
        for leader in sorted(leaders)
        if leader in brokers
    ]
