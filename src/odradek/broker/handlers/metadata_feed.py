"""MetadataFeed (20000), version 0: return the changes of the metadata after a position.

An API of Odradek (`protocol/definitions/README.md`), served on the inter-broker listener only. A
poll at the newest position waits for the next change. The response says whether the broker has to
fetch the whole image instead. Each record is the frame of a metadata record of Kafka.

Errors: NOT_CONTROLLER if this broker is not the active controller, and the controller's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.protocol.messages.metadata_feed_response import MetadataFeedResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest


def handle(
    services: Services, context: RequestContext, request: MetadataFeedRequest
) -> Result[MetadataFeedResponse]:
    cluster = services.cluster
    assert cluster is not None, "a single broker does not serve MetadataFeed"
    if not cluster.membership.is_controller:
        return Result(MetadataFeedResponse(error_code=ErrorCode.NOT_CONTROLLER))
    return cluster.membership.controller_requests.poll(request)
