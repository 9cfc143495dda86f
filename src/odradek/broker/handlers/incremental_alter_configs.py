"""IncrementalAlterConfigs (44), versions 0-1: sets, deletes, or edits single configs.

SET (0) and DELETE (1) for any config, APPEND (2) and SUBTRACT (3) for lists, beginning with the
value in force; of topics, groups, client metrics, of this broker or all brokers (dynamic ones
only), and of the broker's loggers. Refused for a resource as a whole, as in AlterConfigs; an
unknown operation is INVALID_REQUEST.

Deviations from Kafka: as in AlterConfigs; an unknown operation is UNKNOWN_SERVER_ERROR there.
KIP-339, KIP-412 (loggers).
"""

from __future__ import annotations

from odradek.broker.configs.alterations import Alteration, alter
from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.result_tasks import in_task, wait
from odradek.results import Result


@in_task
async def handle(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Result[IncrementalAlterConfigsResponse]:
    def altered(resource: AlterConfigsResource) -> Alteration:
        return Alteration(
            resource.resource_type,
            resource.resource_name,
            [(each.name, each.config_operation, each.value) for each in resource.configs],
        )

    alterations = await wait(
        each(altered, request.resources, lambda alteration: len(alteration.ops))
    )
    errors = await alter(services, alterations, request.validate_only)
    responses = each(
        lambda it: AlterConfigsResourceResponse(*it[1], it[0].resource_type, it[0].resource_name),
        list(zip(request.resources, errors, strict=True)),
    )
    return responses.then(lambda responses: IncrementalAlterConfigsResponse(responses=responses))
