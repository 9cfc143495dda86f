"""The budget of one request: all comparisons together, and the time for them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from odradek.environment.clock import ManualClock
from odradek.registry import request_budget
from odradek.registry.compatibility.levels import (
    CompatibilityLevel,
    EarlierVersion,
    incompatibilities,
)
from odradek.registry.decisions.tools import LimitedParsers
from odradek.registry.request_budget import (
    STEPS_PER_CLOCK_READ,
    TIME_MS_MAX,
    BudgetExceeded,
    RequestBudget,
)
from odradek.registry.schemas.parsed import ParsedSchema, SchemaKind
from odradek.registry.schemas.parsers import Parsers


def avro_record(fields: int) -> ParsedSchema:
    names = [{"name": f"f{n}", "type": "int", "default": 0} for n in range(fields)]
    text = json.dumps({"type": "record", "name": "R", "fields": names})
    return Parsers().parse(SchemaKind.AVRO, text)


def json_object(fields: int) -> ParsedSchema:
    properties = {f"f{number}": {"type": "string"} for number in range(fields)}
    text = json.dumps({"type": "object", "properties": properties, "additionalProperties": False})
    return Parsers().parse(SchemaKind.JSON, text)


def compare(make: Callable[[int], ParsedSchema], versions: int, budget: RequestBudget) -> None:
    """Compare a schema with so many earlier versions."""
    earlier = [EarlierVersion(number + 1, make(30)) for number in range(versions)]
    incompatibilities(CompatibilityLevel.BACKWARD_TRANSITIVE, make(31), earlier, spend=budget.spend)


@pytest.mark.parametrize("make", [avro_record, json_object])
def test_the_comparisons_with_all_versions_have_one_limit(
    make: Callable[[int], ParsedSchema], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def count(spent: int) -> None:
        nonlocal steps
        steps += spent

    level = CompatibilityLevel.BACKWARD_TRANSITIVE
    assert incompatibilities(level, make(31), [EarlierVersion(1, make(30))], spend=count) == []
    assert steps > 0
    monkeypatch.setattr(request_budget, "STEPS_MAX", 5 * steps)
    compare(make, 5, RequestBudget(ManualClock().monotonic_ms))
    with pytest.raises(BudgetExceeded) as raised:
        compare(make, 6, RequestBudget(ManualClock().monotonic_ms))
    assert raised.value.status == 422


def test_the_time_begins_with_the_first_use_and_ends_comparisons() -> None:
    clock = ManualClock()
    budget = RequestBudget(clock.monotonic_ms)
    clock.advance(int(2 * TIME_MS_MAX))
    budget.spend(1)
    clock.advance(int(TIME_MS_MAX))
    budget.spend(STEPS_PER_CLOCK_READ - 1)
    with pytest.raises(BudgetExceeded) as raised:
        budget.spend(1)
    assert raised.value.status == 503


def test_no_schema_is_parsed_after_the_time() -> None:
    clock = ManualClock()
    parsers = LimitedParsers(Parsers(), RequestBudget(clock.monotonic_ms))
    assert parsers.parse(SchemaKind.AVRO, '"int"').canonical == '"int"'
    clock.advance(int(TIME_MS_MAX))
    with pytest.raises(BudgetExceeded):
        parsers.parse(SchemaKind.AVRO, '"int"')
    with pytest.raises(BudgetExceeded):
        parsers.digest(SchemaKind.AVRO, '"int"')
