"""ConsumerGroupHeartbeat, versions 0-1: joins, stays in and leaves a consumer group (KIP-848).

Version 1 brings regular expressions, in RE2's syntax, and member ids that clients make themselves.
The assignment is told when it changed, and in answer to a full heartbeat. Answered when what the
heartbeat changed is in the log. Differs from Kafka in that expressions are resolved at once, not
some time later, that a new topic is seen at the next heartbeat, and that costly expressions are
refused (`odradek.coordinator.group.consumer.topic_patterns`).
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
    """Answer when the changes of the heartbeat are committed."""
    consumers = services.groups.consumers
    return consumers.heartbeat(request, client_of(context), context.api_version)
