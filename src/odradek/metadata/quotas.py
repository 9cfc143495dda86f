"""Client quotas: decisions on requests that alter or describe them. Pure.

An entity is a user, a client id, or a client id of a user. The name None is the default of its
type. The rules and their error messages are those of Kafka's ``ClientQuotaControlManager`` and
``ClientQuotasImage``. Only the byte rates are enforced (`odradek.broker.requests.quotas`), so other
quotas are refused.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.config.log_config import LONG_MAX
from odradek.errors import ErrorCode, KafkaError
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
BYTE_RATES = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)

# (type, name) in the order of the types.
Entity = tuple[tuple[str, str | None], ...]
Quotas = Mapping[Entity, Mapping[str, float]]
# The new quotas of each changed entity, None if it has none any longer.
QuotaChanges = Mapping[Entity, Mapping[str, float] | None]


class QuotaAlteration(NamedTuple):
    """New quotas of one entity: (quota, value) pairs, where None removes the quota."""

    entity: Entity
    ops: Sequence[tuple[str, float | None]]


class MatchType(IntEnum):
    """How a component of a filter matches. The numbers are those of DescribeClientQuotas."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class Component(NamedTuple):
    """One component of a filter."""

    type: str
    match_type: int
    match: str | None


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity of (type, name) pairs. The last name of a type counts, as in Kafka."""
    return tuple(sorted(dict(parts).items()))


def plan_alterations(
    quotas: Quotas, alterations: Sequence[QuotaAlteration]
) -> tuple[Quotas, dict[Entity, KafkaError | None]]:
    """Return the quotas after the accepted alterations, and the error or None for each entity.

    A second alteration of an entity is refused, but the effect of the first one remains.
    """
    changed, results = run_to_completion(planning_alterations(quotas, alterations))
    after = {**quotas, **changed}
    return {entity: values for entity, values in after.items() if values}, results


def planning_alterations(
    quotas: Quotas, alterations: Sequence[QuotaAlteration]
) -> Generator[None, None, tuple[Quotas, dict[Entity, KafkaError | None]]]:
    """Plan like `plan_alterations`, with a yield at the end of each time slice.

    Return only the changed entities. An entity without quotas has an empty mapping.
    """
    changed: dict[Entity, Mapping[str, float]] = {}
    results: dict[Entity, KafkaError | None] = {}
    left = ELEMENTS_PER_SLICE
    for entity, ops in alterations:
        left -= 1 + len(ops)
        if left <= 0:
            left = ELEMENTS_PER_SLICE
            yield
        try:
            if entity in results:
                raise _invalid(f"Ignoring duplicate entity {_shown(entity)}")
            changed[entity] = _altered(quotas.get(entity, {}), entity, ops)
        except KafkaError as error:
            results[entity] = error.with_traceback(None)
            continue
        results[entity] = None
    return changed, results


def _altered(
    current: Mapping[str, float], entity: Entity, ops: Sequence[tuple[str, float | None]]
) -> Mapping[str, float]:
    if len({key for key, _ in ops}) < len(ops):
        raise _invalid(f"Duplicate quota key for the entity {_shown(entity)}")
    _check_entity(entity)
    values = dict(current)
    for key, value in ops:
        if value is None:
            values.pop(key, None)
        else:
            _check_value(key, value)
            values[key] = value
    return values


def _check_entity(entity: Entity) -> None:
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if kind == IP:
            raise _invalid("Quotas of IP addresses do not apply here: only byte rates are limited")


def _check_value(key: str, value: float) -> None:
    if key in ("request_percentage", "controller_mutation_rate"):
        raise _invalid(f"{key} does not apply here: only byte rates are limited")
    if key not in BYTE_RATES:
        raise _invalid(f"Invalid configuration key {key}")
    if math.isnan(value) or value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if value > LONG_MAX:
        raise _invalid(f"Proposed value for {key} is too large for a LONG.")
    if value < 1.0 or value % 1.0 > 1e-6:  # stored as a whole number, and 0 would be no rate
        raise _invalid(f"{key} cannot be a fractional value.")


def matching(quotas: Quotas, components: Sequence[Component], strict: bool) -> Quotas:
    """Return the quotas whose entities match all components, and have no others if `strict`."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in components:
        _check_component(component, {*exact, *specified})
        if component.match_type == MatchType.SPECIFIED:
            specified.add(component.type)
        else:
            exact[component.type] = component.match
    kinds = {*exact, *specified}
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. "
            "IP filter component should not be used with user or clientId filter component."
        )
    found = {}
    for entity, values in quotas.items():
        names = dict(entity)
        if (
            kinds <= set(names)
            and not (strict and len(names) != len(kinds))
            and all(names[kind] == name for kind, name in exact.items())
        ):
            found[entity] = values
    return found


def _check_component(component: Component, seen: set[str]) -> None:
    kind, match_type, match = component
    if not kind:
        raise _invalid("Invalid empty entity type.")
    if kind in seen:
        raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in (USER, CLIENT_ID, IP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    if match_type not in MatchType.__members__.values():
        raise _invalid(f"Unknown match type {match_type}")
    name = f"MATCH_TYPE_{MatchType(match_type).name}"
    if match_type == MatchType.EXACT:
        if match is None:
            raise _invalid(f"Request specified {name}, but set match string to null.")
    elif match is not None:
        raise _invalid(f"Request specified {name}, but also specified a match string.")


def _shown(entity: Entity) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
