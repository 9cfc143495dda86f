"""DescribeClientQuotas (48), versions 0-1: return the quotas of the entities that match a filter.

A component of the filter matches a name, the default of an entity type, or all entities of a type.
With `strict`, entities that have a further type do not match. Without components all entities
match. KIP-546.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.quotas import Component, matching
from odradek.protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from odradek.protocol.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest
) -> Result[DescribeClientQuotasResponse]:
    components = each(
        lambda each: Component(each.entity_type, each.match_type, each.match), request.components
    )
    return components.then(lambda components: _described(services, components, request.strict))


def _described(
    services: Services, components: list[Component], strict: bool
) -> DescribeClientQuotasResponse:
    try:
        found = matching(services.image().client_quotas, components, strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(0, error.code, error.message, None)
    return DescribeClientQuotasResponse(
        0,
        ErrorCode.NONE,
        "",
        [
            EntryData(
                [EntityData(kind, name) for kind, name in entity],
                [ValueData(key, value) for key, value in values.items()],
            )
            for entity, values in found.items()
        ],
    )
