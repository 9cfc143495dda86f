"""ApiVersions, versions 0-4: return the APIs and versions that this broker serves.

They are computed from the tables in `odradek.broker.requests.apis`. The inter-broker listener of a
cluster has the APIs and versions between brokers, too. An API whose requests this broker sends to
the controller has the versions that both know, as in Kafka. The dispatcher responds to an
unsupported version of ApiVersions before the body is decoded (error 35 in the format of version 0).

From version 3 on the client sends the name and version of its software, which must be well-formed
(KIP-511). The response has the features: the supported levels, and the levels that the cluster has
finalized. Finalized levels change the behaviour of clients (`odradek.metadata.features`). Their
epoch is -1 (unknown) while the broker has no metadata of its cluster yet. A feature whose lowest
supported level is 0 is left out before version 4, because older clients cannot read it
(KAFKA-17492).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from odradek.broker.requests.apis import API_BY_KEY, INTER_BROKER_API_BY_KEY, Forwarding
from odradek.broker.requests.cluster import forwards
from odradek.errors import ErrorCode
from odradek.metadata.features import FEATURES
from odradek.protocol.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.metadata.image import MetadataImage
    from odradek.protocol.messages.api_versions_request import ApiVersionsRequest

CLIENT_SOFTWARE_VERSION = 3
FEATURES_VERSION = 3
LEVEL_0_VERSION = 4
UNKNOWN_METADATA = 0
"""The metadata offset of a broker that has not caught up with its cluster yet."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    services: Services, context: RequestContext, request: ApiVersionsRequest
) -> Result[ApiVersionsResponse]:
    """Return the table. The error is INVALID_REQUEST if the client's software name is malformed."""
    if context.api_version >= CLIENT_SOFTWARE_VERSION:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return Result(ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST)))
        context.set_client_software(name, version)
    response = ApiVersionsResponse(
        api_keys=[ApiVersion(key, *served) for key, served in _served(services, context).items()]
    )
    if context.api_version >= FEATURES_VERSION:
        _add_features(response, services.image(), context.api_version)
    return Result(response)


def _served(services: Services, context: RequestContext) -> dict[int, tuple[int, int]]:
    """Return the versions of each API that this listener serves, in the order of the keys."""
    apis, cluster = API_BY_KEY, services.cluster
    if cluster is not None and context.session.listener_name == cluster.listener:
        apis = API_BY_KEY | INTER_BROKER_API_BY_KEY
    controller = forwards(services.cluster, context.session)
    served = {}
    for api in sorted(apis.values(), key=lambda api: api.key):
        lowest, highest = api.advertised
        if controller is not None and api.forwarding is not Forwarding.LOCAL:
            theirs = controller.channel.versions(api.key)
            if theirs is not None:
                lowest, highest = max(lowest, theirs[0]), min(highest, theirs[1])
        if lowest <= highest:
            served[int(api.key)] = (lowest, highest)
    return served


def _add_features(response: ApiVersionsResponse, image: MetadataImage, version: int) -> None:
    response.supported_features = [
        SupportedFeatureKey(name, feature.min_level, feature.max_level)
        for name, feature in FEATURES.items()
        if feature.min_level > 0 or version >= LEVEL_0_VERSION
    ]
    if image.offset == UNKNOWN_METADATA:
        return  # the epoch remains -1, and the client keeps what it knows from other brokers
    response.finalized_features = [
        FinalizedFeatureKey(name, level, level) for name, level in image.features.items()
    ]
    response.finalized_features_epoch = image.offset
