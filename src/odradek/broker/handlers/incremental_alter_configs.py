"""IncrementalAlterConfigs (44), versions 0-1: sets, deletes, or edits single configs.

SET (0) and DELETE (1) for any config, APPEND (2) and SUBTRACT (3) for lists, beginning with the
value in force; of topics, groups, client metrics, of this broker or all brokers (dynamic ones
only), and of the broker's loggers. Refused for a resource as a whole, as in AlterConfigs; an
unknown operation is INVALID_REQUEST.

Deviations from Kafka: as in AlterConfigs; an unknown operation is UNKNOWN_SERVER_ERROR there.
KIP-339, KIP-412 (loggers).
"""

from __future__ import annotations

from odradek.broker.config_alterations import Alteration, alter
from odradek.broker.context import RequestContext, Services
from odradek.protocol.messages.incremental_alter_configs_request import (
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


async def handle(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [(each.name, each.config_operation, each.value) for each in resource.configs],
        )
        for resource in request.resources
    ]
    errors = await alter(services, alterations, request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(code, message, it.resource_type, it.resource_name)
            for it, (code, message) in zip(request.resources, errors, strict=True)
        ]
    )
