"""The endpoints of partition leaders in the responses to Produce and Fetch (KIP-951)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.broker.requests.leader_hints import leader_endpoints
from odradek.config.broker import BrokerConfig
from odradek.ids import BrokerId
from odradek.metadata.image import BrokerRegistration, Endpoint, MetadataImage
from odradek.metadata.persistent import PersistentMap

HERE = ("10.0.0.5", 9093)


def test_each_leader_has_the_endpoint_of_the_clients_listener_or_is_omitted() -> None:
    """This broker has the address that the client connected to, and not its registered address."""
    inside = (Endpoint("INSIDE", "10.0.0.7", 9092),)
    both = (*inside, Endpoint("OUTSIDE", "b7.example", 19092))
    brokers = {
        BrokerId(number): BrokerRegistration(BrokerId(number), "", 0, listeners=listeners)
        for number, listeners in ((1, both), (7, both), (8, inside))
    }
    services: Any = SimpleNamespace(
        config=BrokerConfig({"node.id": "1"}),
        image=lambda: MetadataImage(brokers=PersistentMap(brokers)),
    )

    def endpoints(listener: str) -> list[tuple[int, str, int]]:
        session = SimpleNamespace(local_address=HERE, listener_name=listener)
        context: Any = SimpleNamespace(session=session)
        found = leader_endpoints(services, context, [8, 7, 1, 9])
        return [(each.node_id, each.host, each.port) for each in found]

    assert endpoints("INSIDE") == [(1, *HERE), (7, "10.0.0.7", 9092), (8, "10.0.0.7", 9092)]
    assert endpoints("OUTSIDE") == [(1, *HERE), (7, "b7.example", 19092)]
    assert endpoints("ELSEWHERE") == [(1, *HERE)]
