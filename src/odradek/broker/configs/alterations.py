"""Alteration of configs for AlterConfigs and IncrementalAlterConfigs.

The two APIs differ only in their messages. This module refuses a change if the request alone is
sufficient to decide that (``kafka.server.ConfigAdminManager``), and alters broker loggers. The
controller checks and stores all other changes. If it is another broker, the rest of the request is
forwarded to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from odradek.broker.configs.loggers import alter_loggers
from odradek.broker.requests.cluster import forwards
from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.config_changes import (
    ConfigChange,
    ConfigOp,
    OpType,
    check_own_broker_name,
    plan_config_change,
)
from odradek.metadata.resources import ResourceType
from odradek.metadata.topics import check_change_count
from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    IncrementalAlterConfigsRequest,
)
from odradek.result_tasks import wait

if TYPE_CHECKING:
    from odradek.broker.requests.cluster import ClusterRequests

AlterRequest = AlterConfigsRequest | IncrementalAlterConfigsRequest
AlterResult = tuple[int, str | None]
"""Error code and message."""
_NO_ERROR: AlterResult = (ErrorCode.NONE, None)
# Resources whose configs the controller stores.
_STORED_BY_CONTROLLER = frozenset(
    {
        ResourceType.TOPIC,
        ResourceType.BROKER,
        ResourceType.GROUP,
        ResourceType.CLIENT_METRICS,
    }
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """The changes of one resource.

    `ops` has one (config, operation, value) for each config, with the numbers of the protocol.
    `replace` removes all other configs of the resource.
    """

    resource_type: int
    name: str
    ops: Sequence[tuple[str, int, str | None]]
    replace: bool = False


async def alter(
    services: Services,
    context: RequestContext,
    request: AlterRequest,
    alterations: Sequence[Alteration],
) -> list[AlterResult]:
    """Apply the alterations. Return an error code and a message for each, in their order.

    Args:
        services: The services of the broker.
        context: The context of the request.
        request: The request.
        alterations: Its changes, one for each of `request.resources`.
    """
    counts = Counter((it.resource_type, it.name) for it in alterations)
    alter_results = [_NO_ERROR] * len(alterations)
    changes: dict[int, ConfigChange] = {}

    def check(indexed: tuple[int, Alteration]) -> int:
        index, alteration = indexed
        try:
            if counts[alteration.resource_type, alteration.name] > 1:
                raise _invalid("Each resource must appear at most once.")
            _check_ops(alteration.ops)
            change = _change(services, context, alteration, request.validate_only)
        except KafkaError as error:
            alter_results[index] = (error.code, error.message)
        else:
            if change is not None:
                changes[index] = change
        return len(alteration.ops)

    await wait(each(check, enumerate(alterations), int))
    results = await _stored(services, context, request, changes) if changes else []
    for index, result in zip(changes, results, strict=True):
        alter_results[index] = result
    return alter_results


async def _stored(
    services: Services,
    context: RequestContext,
    request: AlterRequest,
    changes: Mapping[int, ConfigChange],
) -> list[AlterResult]:
    """Store the changes here or at the controller. Return their results.

    Args:
        services: The services of the broker.
        context: The context of the request.
        request: The request.
        changes: The changes by index of the resource in the request.
    """
    cluster = forwards(services.cluster, context.session)
    if cluster is None:
        try:
            errors = await services.controller.alter_configs(
                list(changes.values()), validate_only=request.validate_only
            )
            return [_NO_ERROR if e is None else (e.code, e.message) for e in errors]
        except KafkaError as error:
            cluster = services.cluster
            is_final = error.code is not ErrorCode.NOT_CONTROLLER or context.session.is_forwarded
            if cluster is None or is_final:
                return [(error.code, error.message)] * len(changes)
            # The controller of this broker has been deposed.
    part: Any = request  # the two classes have different classes of resources
    part = replace(part, resources=[request.resources[index] for index in changes])
    return await _forwarded(cluster, context, part)


async def _forwarded(
    cluster: ClusterRequests, context: RequestContext, part: AlterRequest
) -> list[AlterResult]:
    """Return the controller's results for the rest of a request."""
    from odradek.broker.requests.forwarding import forward

    response = await wait(forward(cluster, context, part))
    results = [(each.error_code, each.error_message) for each in response.responses]
    if len(results) != len(part.resources):
        text = "The controller's response does not have the resources of the request."
        return [(ErrorCode.UNKNOWN_SERVER_ERROR, text)] * len(part.resources)
    return results


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check_ops(ops: Sequence[tuple[str, int, str | None]]) -> None:
    check_change_count(len(ops))
    if len({name for name, _, _ in ops}) < len(ops):
        raise _invalid("Error due to duplicate config keys")
    unknown = [op for _, op, _ in ops if op not in OpType.__members__.values()]
    if unknown:
        raise _invalid(f"Unknown operations type {unknown[0]}")
    missing = [name for name, op, value in ops if op != OpType.DELETE and value is None]
    if missing:
        raise _invalid(f"Null value not supported for : {', '.join(missing)}")


def _change(
    services: Services, context: RequestContext, alteration: Alteration, validate_only: bool
) -> ConfigChange | None:
    """Return the change for the controller, or None if the alteration is already done.

    A broker checks changes of its own configs before it forwards them. The controller could check
    them only against its own.
    """
    ops = [ConfigOp(name, OpType(op), value) for name, op, value in alteration.ops]
    kind = alteration.resource_type
    is_forwarded = context.session.is_forwarded
    if kind == ResourceType.BROKER_LOGGER and not alteration.replace and not is_forwarded:
        check_own_broker_name(services.node_id, alteration.name)
        alter_loggers(ops, validate_only)
        return None
    if kind not in _STORED_BY_CONTROLLER:
        raise _invalid(f"Unknown resource type {kind}")
    change = ConfigChange(ResourceType(kind), alteration.name, ops, alteration.replace)
    if kind == ResourceType.BROKER and not is_forwarded:
        if alteration.name:
            check_own_broker_name(services.node_id, alteration.name)
        if forwards(services.cluster, context.session) is not None:
            plan_config_change(services.image(), services.config, change)
    return change
