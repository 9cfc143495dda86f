"""The comparison of JSON Schemas that are recursive, large or malicious."""

from __future__ import annotations

import json
import time
from typing import Any

from odradek.registry.compatibility.json_comparison import PAIRS_MAX
from odradek.registry.compatibility.json_differences import DIFFERENCES_MAX
from odradek.registry.compatibility.json_schema import differences
from odradek.registry.schemas.json_schema import parse
from tests.registry.json_shapes import INTEGER, NUMBER, STRING, closed, obj, props, reasons


def tree(value: Any) -> dict[str, Any]:
    return {
        "$ref": "#/definitions/node",
        "definitions": {
            "node": closed(
                **props(value=value, next={"$ref": "#/definitions/node"}, other={"$ref": "#"})
            )
        },
    }


def test_recursive_schemas_are_compared() -> None:
    assert reasons(tree(INTEGER), tree(NUMBER)) == []
    assert 'TYPE_NARROWED", ' in reasons(tree(NUMBER), tree(INTEGER))[0]


def test_wrong_assumption_about_a_cycle_is_found() -> None:
    """The pair (a, a) is compared inside (b, b) before its own difference is known."""

    def cycle(last: Any) -> dict[str, Any]:
        return {
            "definitions": {
                "a": closed(
                    **props(
                        b={"$ref": "#/definitions/b"},
                        c={"anyOf": [{"$ref": "#/definitions/b"}, {"type": "null"}]},
                        last=last,
                    )
                ),
                "b": closed(**props(a={"$ref": "#/definitions/a"})),
            },
            **closed(**props(x={"$ref": "#/definitions/a"}, y={"$ref": "#/definitions/b"})),
        }

    found = reasons(cycle(STRING), cycle(NUMBER))
    assert any("'#/properties/x/" in reason for reason in found)
    assert any("'#/properties/y/" in reason for reason in found)


def test_definitions_that_share_others_take_linear_time() -> None:
    """Each of 60 definitions refers twice to the next one: 2**60 paths."""

    def ladder(last: Any) -> dict[str, Any]:
        steps = {
            f"d{i}": obj(
                **props(
                    a={"$ref": f"#/definitions/d{i + 1}"}, b={"$ref": f"#/definitions/d{i + 1}"}
                )
            )
            for i in range(60)
        }
        return {"$ref": "#/definitions/d0", "definitions": {**steps, "d60": last}}

    started = time.monotonic()
    found = differences(parse(json.dumps(ladder(NUMBER))), parse(json.dumps(ladder(STRING))))
    assert time.monotonic() - started < 30
    assert len(found) == DIFFERENCES_MAX
    assert any(not each.is_compatible for each in found)


def test_deep_chain_of_definitions_needs_no_deep_stack() -> None:
    def chain(last: Any) -> dict[str, Any]:
        steps = {f"d{i}": obj(**props(a={"$ref": f"#/definitions/d{i + 1}"})) for i in range(1_500)}
        return {"$ref": "#/definitions/d0", "definitions": {**steps, "d1500": last}}

    assert reasons(chain(INTEGER), chain(NUMBER)) == []
    assert reasons(chain(NUMBER), chain(INTEGER))


def test_comparison_beyond_a_limit_is_incompatible() -> None:
    count = int(PAIRS_MAX**0.5) + 10

    def alternatives(offset: int) -> dict[str, Any]:
        return {"anyOf": [{"maxLength": offset + i, "minLength": i} for i in range(count)]}

    (reason,) = reasons(alternatives(1_000), alternatives(1_001))
    assert reason.startswith('{errorType:"COMPARISON_LIMIT"')
    assert reason.count("%s") == 2


def test_matches_of_names_with_patterns_count_towards_the_limit() -> None:
    names = {f"name{number}": STRING for number in range(2_500)}
    patterns = {f"{number}$": STRING for number in range(100)}
    schema = obj(patternProperties={**patterns}, **props(a=closed(**props(**names))))
    large = obj(patternProperties=patterns, **props(**names))
    assert reasons(schema, {**schema, "title": "changed"}) == []
    (reason,) = reasons({"anyOf": [large, STRING]}, {"anyOf": [STRING, {**large, "title": "x"}]})
    assert "COMPARISON_LIMIT" in reason


def test_expensive_expression_does_not_block() -> None:
    """Python's `re` needs exponential time for this expression and this name."""
    name = "a" * 60 + "b"
    pattern = "^(a+)+$"
    started = time.monotonic()
    reasons(closed(**props(**{name: STRING})), closed(patternProperties={pattern: STRING}))
    assert time.monotonic() - started < 5


def test_expression_of_another_dialect_may_match_any_name() -> None:
    pattern = r"^\p{IsGreek}(?!x)"
    writer = closed(**props(a=STRING))
    reader = obj(patternProperties={pattern: NUMBER}, **props(a=STRING))
    assert reasons(writer, reader)
    assert reasons(reader, {**reader, "title": "changed"}) == []
