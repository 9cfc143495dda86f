"""ApiVersions over the wire: what is advertised is what is there, and what Kafka 4.1 says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import APIS
from odradek.errors import ErrorCode
from odradek.protocol.codec import decode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.testing import Broker
from tests.helpers.wire import WireClient

GOLDEN = Path(__file__).parents[2] / "data" / "ApiVersionsResponse-v4-kafka-4.1.0.bin"


def ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_table_is_advertised_at_every_version(client: WireClient, version: int) -> None:
    response = client.call(ApiVersionsRequest("me", "1.0"), version)
    assert (response.error_code, response.throttle_time_ms) == (0, 0)
    assert ranges(response) == {
        int(api.key): (api.min_version if api.advertised_min is None else 0, api.max_version)
        for api in APIS
    }


def test_ranges_are_those_of_kafka(client: WireClient) -> None:
    kafka = ranges(decode(ApiVersionsResponse, 4, GOLDEN.read_bytes(), 4))
    ours = ranges(client.call(ApiVersionsRequest("me", "1.0"), 4))
    assert ours == {key: kafka[key] for key in ours}


def test_no_feature_is_finalized(client: WireClient) -> None:
    response = client.call(ApiVersionsRequest("me", "1.0"), 4)
    assert (response.finalized_features, response.finalized_features_epoch) == ([], -1)


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("me", "-1"), ("m e", "1"), ("é", "1")])
def test_client_software_must_be_well_formed(
    broker: Broker, client: WireClient, name: str, version: str
) -> None:
    response = client.call(ApiVersionsRequest(name, version), 3)
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


def test_client_software_is_remembered(broker: Broker, client: WireClient) -> None:
    client.call(ApiVersionsRequest("me", "1.0"), 3)

    async def look(server: Any) -> list[str | None]:
        return [each.client_software for each in server.connections]

    assert broker.call(look) == ["me 1.0"]
