"""ConsumerGroupHeartbeat, versions 0-1: join, stay in or leave a consumer group (KIP-848).

Version 1 adds regular expressions, in RE2's syntax, and member ids that clients generate. The
response has the assignment if it has changed or if the heartbeat was a full one. The broker
responds when the changes of the heartbeat are in the log.

Deviations from Kafka: regular expressions are resolved immediately and not some time later. A new
topic is noticed at the next heartbeat. Expensive expressions are refused
(`odradek.coordinator.regular_expressions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.handlers.join_group import client_of
from odradek.protocol.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.consumer_group_heartbeat_request import (
        ConsumerGroupHeartbeatRequest,
    )


def handle(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Result[ConsumerGroupHeartbeatResponse]:
    """Return the response, which is done when the changes of the heartbeat are committed."""
    consumers = services.groups.consumers
    return consumers.heartbeat(request, client_of(context), context.api_version)
