"""Tests of the body of requests that contain a schema."""

from __future__ import annotations

import pytest

from odradek.registry.decisions.requests import SchemaRequest
from odradek.registry.errors import RegistryErrorCode
from odradek.registry.json_value import JsonValue
from odradek.registry.metadata import Metadata
from odradek.registry.rules import Rule, RuleMode, RuleSet
from odradek.registry.schemas.parsed import Reference
from tests.registry.decisions.fakes import refused


def test_all_fields_are_read_and_unknown_ones_ignored() -> None:
    body: JsonValue = {
        "schema": "x",
        "schemaType": "PROTOBUF",
        "references": [{"name": "n", "subject": "s", "version": 1, "future": 1}],
        "metadata": {"properties": {"k": "v", "n": 1, "b": True, "none": None}, "future": 1},
        "ruleSet": {"migrationRules": [{"name": "r", "type": "JSONATA", "mode": "UPGRADE"}]},
        "version": 2,
        "id": 7,
        "future": {},
    }

    assert SchemaRequest.from_json(body) == SchemaRequest(
        text="x",
        kind="PROTOBUF",
        references=(Reference("n", "s", 1),),
        metadata=Metadata(properties=(("b", "true"), ("k", "v"), ("n", "1"))),
        rule_set=RuleSet(migration=(Rule("r", type="JSONATA", mode=RuleMode.UPGRADE),)),
        version=2,
        id=7,
    )


@pytest.mark.parametrize("body", [{}, {"schema": None, "references": None, "id": None}])
def test_absent_fields_have_defaults(body: JsonValue) -> None:
    request = SchemaRequest.from_json(body)

    assert request == SchemaRequest(text="", kind="AVRO", version=0, id=-1)
    assert request.is_empty


@pytest.mark.parametrize(
    "body",
    [
        None,
        "schema",
        [],
        {"schema": {"type": "string"}},
        {"schema": "\ud800"},
        {"version": "one"},
        {"version": 2**31},
        {"id": 1.5},
        {"references": {}},
        {"references": "x"},
        {"references": [1]},
        {"metadata": {"tags": {"a": "b"}}},
        {"metadata": {"properties": ["a"]}},
        {"metadata": {"sensitive": [[]]}},
        {"ruleSet": {"domainRules": [{"name": "r", "type": "T", "kind": "OTHER"}]}},
    ],
)
def test_wrong_types_are_refused(body: JsonValue) -> None:
    with refused(RegistryErrorCode.BAD_REQUEST):
        SchemaRequest.from_json(body)


def test_incomplete_reference_is_an_invalid_schema() -> None:
    body: JsonValue = {"references": [{"name": "n", "subject": "s"}]}

    message = "Invalid reference: {name='n', subject='s', version=null}"
    with refused(RegistryErrorCode.INVALID_SCHEMA, message):
        SchemaRequest.from_json(body)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"type": "T"}, "Missing rule name"),
        ({"name": "", "type": "T"}, "Empty rule name"),
        ({"name": "r"}, "Missing rule type"),
        ({"name": "1r", "type": "T"}, "Illegal initial character in rule name: 1r"),
        ({"name": "r.r", "type": "T"}, "Illegal character in rule name: r.r"),
        ({"name": "r" * 257, "type": "T"}, "Rule name too long"),
        (
            {"name": "r", "type": "T", "mode": "UPGRADE"},
            "Domain rules can only be WRITE, READ, WRITEREAD",
        ),
        (
            {"name": "r", "type": "T", "mode": "READ", "onFailure": "NONE,ERROR"},
            "Multiple actions only valid with WRITEREAD and UPDOWN",
        ),
    ],
)
def test_invalid_rules_are_refused(rule: JsonValue, message: str) -> None:
    with refused(RegistryErrorCode.INVALID_RULE_SET, message):
        SchemaRequest.from_json({"ruleSet": {"domainRules": [rule]}})


def test_names_of_rules_are_unique_in_all_phases() -> None:
    first: JsonValue = {"name": "r", "type": "T"}

    with refused(RegistryErrorCode.INVALID_RULE_SET, "Found rule with duplicate name 'r'"):
        SchemaRequest.from_json({"ruleSet": {"domainRules": [first], "encodingRules": [first]}})
