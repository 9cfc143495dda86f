"""The kinds of resources with configs, and the nodes of their configs."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from odradek.metadata import znodes


class ResourceType(IntEnum):
    """The kinds of resources with configs. The numbers are those of ``ConfigResource.Type``."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


CONFIG_PATHS: dict[ResourceType, Callable[[str], str]] = {
    ResourceType.TOPIC: znodes.topic_config_path,
    ResourceType.BROKER: znodes.broker_config_path,
    ResourceType.GROUP: znodes.group_config_path,
    ResourceType.CLIENT_METRICS: znodes.client_metrics_path,
}
"""The path of a resource's configs in the metadata store, for each kind that has configs."""
