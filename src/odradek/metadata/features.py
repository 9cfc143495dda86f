"""The cluster's features (KIP-584): the supported levels, and the levels of a new cluster.

A *finalized* level is kept in the metadata store and changes how clients behave. With
``transaction.version`` 2, producers use the protocol of KIP-890. ``group.version`` 1 is the
consumer protocol (KIP-848), which is served at level 1 only. Level 0 means "off", and is not listed
among the finalized levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError

GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
METADATA_VERSION = "metadata.version"
# The levels of Kafka's metadata.version at which its records changed (``MetadataVersion``).
_METADATA_CHANGES = (8, 11, 13, 14, 15, 17, 23)


class Feature(NamedTuple):
    """The supported levels, and the level that a new cluster finalizes."""

    min_level: int
    max_level: int
    default_level: int


FEATURES: dict[str, Feature] = {
    GROUP_VERSION: Feature(0, 1, 1),
    TRANSACTION_VERSION: Feature(0, 2, 2),
    METADATA_VERSION: Feature(7, 27, 27),
}


def default_levels() -> dict[str, int]:
    """Return the levels that a new cluster has finalized."""
    return {name: each.default_level for name, each in FEATURES.items() if each.default_level}


class UpgradeType(IntEnum):
    """The direction that a request allows. The numbers are those of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A level to finalize. `upgrade_type` is the protocol's number, even if it is unknown."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def check_update(node_id: int, finalized: Mapping[str, int], update: FeatureUpdate) -> None:
    """Raise INVALID_UPDATE_VERSION, with Kafka's message, unless the level may be finalized."""
    reason = _refusal(node_id, finalized.get(update.name, 0), update)
    if reason is not None:
        message = f"Invalid update version {update.level} for feature {update.name}. {reason}"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    _check_metadata_version(finalized.get(METADATA_VERSION, 0), update)


def _refusal(node_id: int, current: int, update: FeatureUpdate) -> str | None:
    """Apply the rules of ``FeatureControlManager``, in its order."""
    if update.upgrade_type not in UpgradeType.__members__.values():
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    feature = FEATURES.get(update.name)
    if feature is None:
        if update.level == 0:
            return f"Feature {update.name} not found."
        return f"Local controller {node_id} does not support this feature."
    if not feature.min_level <= update.level <= feature.max_level:
        supported = f"{feature.min_level}-{feature.max_level}"
        return f"Local controller {node_id} only supports versions {supported}"
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _check_metadata_version(current: int, update: FeatureUpdate) -> None:
    """Refuse a downgrade of the metadata's format, unless the format has not changed."""
    if update.name != METADATA_VERSION or update.level >= current:
        return
    if not any(update.level < level <= current for level in _METADATA_CHANGES):
        return
    if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    else:
        reason = (
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
        )
    message = f"Unsupported metadata.version downgrade from {current} to {update.level}. {reason}"
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def with_levels(finalized: Mapping[str, int], changes: Mapping[str, int]) -> dict[str, int]:
    """Return `finalized` with some levels replaced.

    Raises:
        KafkaError: INVALID_UPDATE_VERSION for a feature or a level that is not supported.
    """
    for name, level in changes.items():
        feature = FEATURES.get(name)
        if feature is None:
            message = f"The feature {name} is not supported by this broker."
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
        if not feature.min_level <= level <= feature.max_level:
            supported = f"{feature.min_level} to {feature.max_level}"
            message = f"{name} has the levels {supported}, not {level}."
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    return {name: level for name, level in {**finalized, **changes}.items() if level}
