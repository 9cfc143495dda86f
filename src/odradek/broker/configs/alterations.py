"""Alteration of configs for AlterConfigs and IncrementalAlterConfigs.

The two APIs differ only in their messages. This module refuses a change if the request alone is
sufficient to decide that (``kafka.server.ConfigAdminManager``), and alters broker loggers. The
controller checks and stores all other changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from odradek.broker.configs.loggers import alter_loggers
from odradek.broker.requests.context import Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.config_changes import (
    ConfigChange,
    ConfigOp,
    OpType,
    ResourceType,
    check_own_broker_name,
)
from odradek.metadata.topics import check_change_count
from odradek.result_tasks import wait

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
    services: Services, alterations: Sequence[Alteration], validate_only: bool
) -> list[AlterResult]:
    """Apply the alterations. Return an error code and a message for each, in their order.

    Args:
        services: The services of the broker.
        alterations: The changes, at most one for each resource.
        validate_only: Whether to check the changes without applying them.
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
            change = _change(services, alteration, validate_only)
        except KafkaError as error:
            alter_results[index] = (error.code, error.message)
        else:
            if change is not None:
                changes[index] = change
        return len(alteration.ops)

    await wait(each(check, enumerate(alterations), int))
    results = await services.controller.alter_configs(
        list(changes.values()), validate_only=validate_only
    )
    for index, result in zip(changes, results, strict=True):
        if result is not None:
            alter_results[index] = (result.code, result.message)
    return alter_results


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


def _change(services: Services, alteration: Alteration, validate_only: bool) -> ConfigChange | None:
    """Return the change for the controller, or None if the alteration is already done."""
    ops = [ConfigOp(name, OpType(op), value) for name, op, value in alteration.ops]
    kind = alteration.resource_type
    if kind == ResourceType.BROKER_LOGGER and not alteration.replace:
        check_own_broker_name(services.node_id, alteration.name)
        alter_loggers(ops, validate_only)
        return None
    if kind not in _STORED_BY_CONTROLLER:
        raise _invalid(f"Unknown resource type {kind}")
    return ConfigChange(ResourceType(kind), alteration.name, ops, alteration.replace)
