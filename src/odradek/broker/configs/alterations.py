"""Alters configs for AlterConfigs and IncrementalAlterConfigs, which differ only in their messages.

What can be refused from the request alone is refused here (``kafka.server.ConfigAdminManager``);
broker loggers are altered here too; the controller decides and keeps the rest.
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

Answer = tuple[int, str | None]
_NO_ERROR: Answer = (ErrorCode.NONE, None)
# The configs of these the controller keeps.
_KEPT = frozenset(
    {
        ResourceType.TOPIC,
        ResourceType.BROKER,
        ResourceType.GROUP,
        ResourceType.CLIENT_METRICS,
    }
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """The alterations of one resource: (config, operation, value), with the protocol's numbers."""

    resource_type: int
    name: str
    ops: Sequence[tuple[str, int, str | None]]
    replace: bool = False


async def alter(
    services: Services, alterations: Sequence[Alteration], validate_only: bool
) -> list[Answer]:
    """Error code and message for each alteration, in order."""
    counts = Counter((it.resource_type, it.name) for it in alterations)
    answers = [_NO_ERROR] * len(alterations)
    changes: dict[int, ConfigChange] = {}

    def check(indexed: tuple[int, Alteration]) -> int:
        index, alteration = indexed
        try:
            if counts[alteration.resource_type, alteration.name] > 1:
                raise _invalid("Each resource must appear at most once.")
            _check_ops(alteration.ops)
            change = _change(services, alteration, validate_only)
        except KafkaError as error:
            answers[index] = (error.code, error.message)
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
            answers[index] = (result.code, result.message)
    return answers


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
    """What the controller is asked for; None when nothing is left to do."""
    ops = [ConfigOp(name, OpType(op), value) for name, op, value in alteration.ops]
    kind = alteration.resource_type
    if kind == ResourceType.BROKER_LOGGER and not alteration.replace:
        check_own_broker_name(services.node_id, alteration.name)
        alter_loggers(ops, validate_only)
        return None
    if kind not in _KEPT:
        raise _invalid(f"Unknown resource type {kind}")
    return ConfigChange(ResourceType(kind), alteration.name, ops, alteration.replace)
