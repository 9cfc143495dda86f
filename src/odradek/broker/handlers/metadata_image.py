"""MetadataImage (20001), version 0: return one chunk of the whole metadata.

An API of Odradek (`protocol/definitions/README.md`), served on the inter-broker listener only. The
response to the first chunk names the position of the image, and the requests of the other chunks
repeat it.

Errors: NOT_CONTROLLER if this broker is not the active controller, and the controller's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.protocol.messages.metadata_image_response import MetadataImageResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.metadata_image_request import MetadataImageRequest


def handle(
    services: Services, context: RequestContext, request: MetadataImageRequest
) -> Result[MetadataImageResponse]:
    cluster = services.cluster
    assert cluster is not None, "a single broker does not serve MetadataImage"
    if not cluster.membership.is_controller:
        return Result(MetadataImageResponse(error_code=ErrorCode.NOT_CONTROLLER))
    return cluster.membership.controller_requests.image_chunk(request)
