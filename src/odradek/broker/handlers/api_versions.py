"""ApiVersions, versions 0-4: return the APIs and versions that this broker serves.

They are computed from the table in `odradek.broker.requests.apis`. The dispatcher responds to an
unsupported version of ApiVersions before the body is decoded (error 35 in the format of version 0).

From version 3 on the client sends the name and version of its software, which must be well-formed
(KIP-511). The response has the features: the supported levels, and the levels that the cluster has
finalized. Finalized levels change the behaviour of clients (`odradek.metadata.features`). A feature
whose lowest supported level is 0 is left out before version 4, because older clients cannot read it
(KAFKA-17492).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from odradek.broker.requests.apis import APIS
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
        api_keys=[
            ApiVersion(
                int(api.key),
                api.min_version if api.advertised_min is None else api.advertised_min,
                api.max_version,
            )
            for api in sorted(APIS, key=lambda api: api.key)
        ]
    )
    if context.api_version >= FEATURES_VERSION:
        _add_features(response, services.image(), context.api_version)
    return Result(response)


def _add_features(response: ApiVersionsResponse, image: MetadataImage, version: int) -> None:
    response.supported_features = [
        SupportedFeatureKey(name, feature.min_level, feature.max_level)
        for name, feature in FEATURES.items()
        if feature.min_level > 0 or version >= LEVEL_0_VERSION
    ]
    response.finalized_features = [
        FinalizedFeatureKey(name, level, level) for name, level in image.features.items()
    ]
    response.finalized_features_epoch = image.offset
