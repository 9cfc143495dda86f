"""ListConfigResources (74), versions 0-1: return the resources that have configs, by type.

Version 0 lists client metrics subscriptions. Version 1 lists the requested types, or all types if
none is requested. Groups are listed if they have configs of their own. An unknown type is
UNSUPPORTED_VERSION. KIP-714, KIP-1142.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.requests.context import RequestContext, Services
from odradek.errors import ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.metadata.resources import ResourceType
from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from odradek.protocol.messages.list_config_resources_response import (
    ConfigResource,
    ListConfigResourcesResponse,
)
from odradek.results import Result

# The types in Kafka's order.
LISTED = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


def handle(
    services: Services, context: RequestContext, request: ListConfigResourcesRequest
) -> Result[ListConfigResourcesResponse]:
    if context.api_version == 0:
        requested_types = {int(ResourceType.CLIENT_METRICS)}
    else:
        requested_types = set(request.resource_types) or set(map(int, LISTED))
    if not requested_types <= set(LISTED):
        return Result(ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    image = services.image()
    return Result(
        ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(name, kind)
                for kind in LISTED
                if kind in requested_types
                for name in _names(image, kind)
            ]
        )
    )


def _names(image: MetadataImage, kind: ResourceType) -> Iterable[str]:
    if kind is ResourceType.GROUP:
        return image.group_configs
    if kind is ResourceType.CLIENT_METRICS:
        return image.client_metrics
    if kind is ResourceType.TOPIC:
        return image.topics_by_name
    return map(str, image.brokers)
