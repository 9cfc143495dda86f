"""UnregisterBroker of a single broker. `tests/broker/test_cluster_admin.py` tests clusters."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.testing import Broker
from testkit.wire import WireClient


@pytest.mark.parametrize(
    ("other", "code"),
    [(False, ErrorCode.INVALID_REQUEST), (True, ErrorCode.BROKER_ID_NOT_REGISTERED)],
)
def test_a_single_broker_cannot_be_unregistered(
    broker: Broker, client: WireClient, other: bool, code: ErrorCode
) -> None:
    broker.create_topic("t")
    node_id = broker.call(_node_id)
    response = client.call(UnregisterBrokerRequest(node_id + other), 0)
    assert response.error_code == code
    assert str(node_id + other) in response.error_message


async def _node_id(server: object) -> int:
    return server.services.node_id  # type: ignore[attr-defined,no-any-return]
