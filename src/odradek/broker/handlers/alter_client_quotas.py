"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users and client ids.

A change is in force when the broker sends the response, and applies to bytes counted from then on.
The other brokers of a cluster apply it a little later. Each broker counts the bytes of its own
connections, as in Kafka. With `validate_only` the changes are checked and not applied. Each entity
has its own error. If an entity is requested twice, the first change is applied and the result is
INVALID_REQUEST, as in Kafka.

Deviation from Kafka: only `producer_byte_rate` and `consumer_byte_rate` of users and client ids are
enforced, so request, mutation and connection rates are INVALID_REQUEST. KIP-546.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.quotas import Entity, QuotaAlteration, entity_of
from odradek.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest
from odradek.protocol.messages.alter_client_quotas_request import EntryData as AlteredEntry
from odradek.protocol.messages.alter_client_quotas_response import (
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
)
from odradek.result_tasks import in_task, wait
from odradek.results import Result


@in_task
async def handle(
    services: Services, context: RequestContext, request: AlterClientQuotasRequest
) -> Result[AlterClientQuotasResponse]:
    def altered(entry: AlteredEntry) -> QuotaAlteration:
        return QuotaAlteration(
            entity_of((part.entity_type, part.entity_name) for part in entry.entity),
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )

    alterations = await wait(
        each(altered, request.entries, lambda one: len(one.entity) + len(one.ops))
    )
    results = await services.controller.alter_client_quotas(
        alterations, validate_only=request.validate_only
    )

    def response_entry(result: tuple[Entity, KafkaError | None]) -> EntryData:
        entity, error = result
        return EntryData(
            ErrorCode.NONE if error is None else error.code,
            None if error is None else error.message,
            [EntityData(kind, name) for kind, name in entity],
        )

    entries = each(response_entry, results.items(), lambda entry: len(entry.entity))
    return entries.then(lambda entries: AlterClientQuotasResponse(entries=entries))
