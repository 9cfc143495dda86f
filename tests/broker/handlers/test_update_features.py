"""UpdateFeatures over the wire: upgrades and downgrades, Kafka's errors, all or none."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.metadata.features import UpgradeType
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from testkit.wire import WireClient

NAME = "transaction.version"
UP, SAFE, UNSAFE = UpgradeType
Update = tuple[str, int, int]


def update(
    client: WireClient, *updates: Update, version: int = 2, validate_only: bool = False
) -> Any:
    keys = [FeatureUpdateKey(name, level, False, kind) for name, level, kind in updates]
    return client.call(UpdateFeaturesRequest(1000, keys, validate_only), version)


def finalized(client: WireClient) -> dict[str, int]:
    response = client.call(ApiVersionsRequest("wire", "1"), 4)
    return {each.name: each.max_version_level for each in response.finalized_features}


@pytest.mark.parametrize("version", range(3))
def test_every_version_finalizes_and_clients_see_the_level(
    client: WireClient, version: int
) -> None:
    before = finalized(client)
    down = update(client, (NAME, 0, SAFE), version=max(version, 1))
    assert (down.error_code, down.error_message) == (ErrorCode.NONE, None)
    assert finalized(client) == {name: before[name] for name in before if name != NAME}
    up = update(client, (NAME, 2, UP), version=version)
    assert (up.error_code, up.error_message) == (ErrorCode.NONE, None)
    results = [(each.feature, each.error_code, each.error_message) for each in up.results]
    assert results == ([(NAME, ErrorCode.NONE, "NONE")] if version <= 1 else [])
    assert finalized(client) == {**before, NAME: 2}


def test_validate_only_changes_nothing(client: WireClient) -> None:
    before = finalized(client)
    assert update(client, (NAME, 0, SAFE), validate_only=True).error_code == ErrorCode.NONE
    assert finalized(client) == before


REFUSED: list[tuple[Update, str]] = [
    ((NAME, 1, 0), "The controller does not support the given upgrade type."),
    ((NAME, 1, 7), "The controller does not support the given upgrade type."),
    ((NAME, -1, UP), "A feature version cannot be less than 0."),
    ((NAME, 3, UP), "Local controller 1 only supports versions 0-2"),
    ((NAME, 1, UP), "Can't downgrade the version of this feature without setting"),
    (("nonsense.version", 1, UP), "Local controller 1 does not support this feature."),
    (("nonsense.version", 0, SAFE), "Feature nonsense.version not found."),
    (("", 1, UP), "Invalid update version 1 for feature . Local controller 1 does not"),
    (("metadata.version", 6, SAFE), "Local controller 1 only supports versions 7-27"),
    (("metadata.version", 28, UP), "Local controller 1 only supports versions 7-27"),
    (("metadata.version", 25, UP), "Can't downgrade the version of this feature"),
    (("metadata.version", 22, SAFE), "downgrade from 27 to 22. Refusing to perform"),
    (("metadata.version", 7, UNSAFE), "downgrade from 27 to 7. Unsafe metadata downgrade"),
]


@pytest.mark.parametrize(("refused", "reason"), REFUSED)
def test_what_is_refused_says_why_and_changes_nothing(
    client: WireClient, refused: Update, reason: str
) -> None:
    update(client, (NAME, 2, UP))
    before = finalized(client)
    response = update(client, (NAME, 2, UP), refused, version=1)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message.startswith("The update failed for all features since")
    assert reason in response.error_message
    assert response.results == []
    assert finalized(client) == before


def test_a_downgrade_to_a_higher_level_is_refused(client: WireClient) -> None:
    update(client, (NAME, 0, SAFE))
    response = update(client, (NAME, 1, SAFE))
    assert "Can't downgrade to a newer version." in response.error_message


def test_metadata_version_may_be_downgraded_without_loss(client: WireClient) -> None:
    assert update(client, ("metadata.version", 23, SAFE)).error_code == ErrorCode.NONE
    assert finalized(client)["metadata.version"] == 23
    assert update(client, ("metadata.version", 27, UP)).error_code == ErrorCode.NONE
    assert finalized(client)["metadata.version"] == 27
