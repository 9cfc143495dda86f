"""IncrementalAlterConfigs (44), versions 0-1: set, delete or edit single configs.

SET (0) and DELETE (1) apply to any config. APPEND (2) and SUBTRACT (3) apply to lists and edit the
effective value. Resources are topics, groups, client metrics, this broker, all brokers (dynamic
configs only), and the broker's loggers. The changes of a resource are refused as a whole, as in
AlterConfigs. An unknown operation is INVALID_REQUEST. KIP-339, KIP-412 (loggers).

Deviations from Kafka: those of AlterConfigs. Kafka's error for an unknown operation is
UNKNOWN_SERVER_ERROR.
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
    errors = await alter(services, context, request, alterations)
    responses = each(
        lambda it: AlterConfigsResourceResponse(*it[1], it[0].resource_type, it[0].resource_name),
        list(zip(request.resources, errors, strict=True)),
    )
    return responses.then(lambda responses: IncrementalAlterConfigsResponse(responses=responses))
