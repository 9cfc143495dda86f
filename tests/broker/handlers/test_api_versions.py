"""ApiVersions over the wire: advertised APIs, versions and features, compared with Kafka 4.1."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.broker import BrokerServer
from odradek.broker.requests.apis import APIS
from odradek.broker.requests.context import CLIENT_SOFTWARE_CHARACTERS_MAX
from odradek.errors import ErrorCode
from odradek.metadata.features import FEATURES, default_levels
from odradek.metadata.image import MetadataImage
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.testing import Broker
from testkit.wire import WireClient

DEVIATIONS = Path(__file__).parents[3] / "docs" / "deviations.md"
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


def test_apis_of_kafka_that_are_not_served_are_documented() -> None:
    """Every API of Kafka 4.1 is served, or ``docs/deviations.md`` names it with the reason."""
    kafka = ranges(decode(ApiVersionsResponse, 4, GOLDEN.read_bytes(), 4))
    section = DEVIATIONS.read_text("utf-8").partition("## APIs that are not implemented")[2]
    section = section.partition("\n## ")[0]
    named = re.findall(r"`(\w+)` \((\d+)\)", section)
    absent = kafka.keys() - {int(api.key) for api in APIS}
    listed = {int(key) for _, key in named}
    assert listed == absent, (
        f"docs/deviations.md: remove {sorted(listed - absent)}, add {sorted(absent - listed)}"
    )
    for name, key in named:
        assert name.upper() == ApiKey(int(key)).name.replace("_", ""), name


def test_ranges_are_those_of_kafka(client: WireClient) -> None:
    kafka = ranges(decode(ApiVersionsResponse, 4, GOLDEN.read_bytes(), 4))
    ours = ranges(client.call(ApiVersionsRequest("me", "1.0"), 4))
    later = ours.keys() - kafka.keys()
    assert not later, (
        f"Kafka 4.1 does not list {later} (ARCHITECTURE.md, a message of a later Kafka)"
    )
    assert ours == {key: kafka[key] for key in ours}


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_returned(broker: Broker, client: WireClient, version: int) -> None:
    def finalized(response: ApiVersionsResponse) -> dict[str, tuple[int, int]]:
        return {
            each.name: (each.min_version_level, each.max_version_level)
            for each in response.finalized_features
        }

    first = client.call(ApiVersionsRequest("me", "1.0"), version)
    kafka = decode(ApiVersionsResponse, 4, GOLDEN.read_bytes(), 4)
    ranges = {each.name: (each.min_version, each.max_version) for each in kafka.supported_features}
    supported = {
        each.name: (each.min_version, each.max_version) for each in first.supported_features
    }
    assert supported == {
        name: ranges[name] for name in FEATURES if version >= 4 or ranges[name][0] > 0
    }
    assert finalized(first) == {name: (level, level) for name, level in default_levels().items()}

    async def turn_off(server: BrokerServer) -> None:
        changes = {name: feature.min_level for name, feature in FEATURES.items()}
        assert await server.services.controller.update_features(changes) is None

    broker.call(turn_off)
    second = client.call(ApiVersionsRequest("me", "1.0"), version)
    # metadata.version has no level 0, because a cluster always has a level of it.
    least = FEATURES["metadata.version"].min_level
    assert finalized(second) == {"metadata.version": (least, least)}
    assert second.finalized_features_epoch > first.finalized_features_epoch


def test_features_are_unknown_until_the_broker_has_metadata(
    broker: Broker, client: WireClient
) -> None:
    """A client must not take the start of a broker for a cluster without transaction.version."""

    async def start_to_join(server: BrokerServer) -> None:
        server.services.image = MetadataImage

    broker.call(start_to_join)
    response = client.call(ApiVersionsRequest("me", "1.0"), 4)
    assert (response.finalized_features, response.finalized_features_epoch) == ([], -1)
    assert {each.name for each in response.supported_features} == set(FEATURES)


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
    client.call(ApiVersionsRequest("m" * 30_000, "1.0"), 3)
    assert broker.call(look) == ["m" * CLIENT_SOFTWARE_CHARACTERS_MAX]
