"""AlterConfigs (33), versions 0-2: replace the overrides of topics, groups and brokers.

Configs that the request does not name fall back to their defaults. The changes of a resource are
refused as a whole in these cases:

- The resource is named twice, or a config is named twice or has no value (INVALID_REQUEST).
- A config is unknown or has an invalid value (INVALID_CONFIG, for brokers INVALID_REQUEST,
  KAFKA-13609).
- A broker config is read-only.

Deviations from Kafka: a change is in force when a single broker sends the response. The other
brokers of a cluster apply it a little later, as in Kafka. Unknown broker configs are INVALID_CONFIG
(Kafka keeps them for plugins).

KIP-133. Deprecated in favour of IncrementalAlterConfigs.
"""

from __future__ import annotations

from odradek.broker.configs.alterations import Alteration, alter
from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.metadata.config_changes import OpType
from odradek.protocol.messages.alter_configs_request import (
    AlterConfigsRequest,
    AlterConfigsResource,
)
from odradek.protocol.messages.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from odradek.result_tasks import in_task, wait
from odradek.results import Result


@in_task
async def handle(
    services: Services, context: RequestContext, request: AlterConfigsRequest
) -> Result[AlterConfigsResponse]:
    def altered(resource: AlterConfigsResource) -> Alteration:
        return Alteration(
            resource.resource_type,
            resource.resource_name,
            [(each.name, OpType.SET, each.value) for each in resource.configs],
            replace=True,
        )

    alterations = await wait(
        each(altered, request.resources, lambda alteration: len(alteration.ops))
    )
    errors = await alter(services, context, request, alterations)
    responses = each(
        lambda it: AlterConfigsResourceResponse(*it[1], it[0].resource_type, it[0].resource_name),
        list(zip(request.resources, errors, strict=True)),
    )
    return responses.then(lambda responses: AlterConfigsResponse(responses=responses))
