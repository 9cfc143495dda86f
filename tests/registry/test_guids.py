"""Tests of guids, which hash the content as Confluent's registry does."""

from __future__ import annotations

import hashlib
import uuid

from hypothesis import given

from odradek.registry.guids import guid_of, parse_guid
from odradek.registry.metadata import Metadata
from odradek.registry.rules import Rule, RuleKind, RuleMode, RuleSet
from odradek.registry.schemas.parsed import Reference
from tests.registry import record_strategies


def digest(*parts: bytes) -> str:
    return str(uuid.UUID(bytes=hashlib.md5(b"".join(parts), usedforsecurity=False).digest()))


def test_guid_hashes_the_text() -> None:
    assert guid_of("é", (), None, None) == digest("é".encode())


def test_guid_hashes_references_with_the_version_in_big_endian_order() -> None:
    references = (Reference("n", "s", 258), Reference("m", "t", -1))

    expected = digest(b"x", b"ns\x00\x00\x01\x02", b"mt\xff\xff\xff\xff")
    assert guid_of("x", references, None, None) == expected


def test_guid_hashes_metadata_and_rules_in_the_order_of_confluent() -> None:
    metadata = Metadata(tags=(("a.b", ("PII", "X")),), properties=(("k", "v"),), sensitive=("k",))
    rule = Rule(
        name="r",
        doc="d",
        kind=RuleKind.CONDITION,
        mode=RuleMode.READ,
        type="CEL",
        tags=("T",),
        params=(("p", "q"),),
        expr="e",
        on_success="NONE",
        on_failure="ERROR",
        disabled=True,
    )
    rule_set = RuleSet(domain=(rule,), enable_at="CLIENT")

    expected = digest(
        b"x",
        b"\x01a.bPIIXkvk",
        b"\x01rdCONDITIONREADCELTpqeNONEERROR\x01CLIENT",
    )
    assert guid_of("x", (), metadata, rule_set) == expected


def test_empty_metadata_differs_from_none() -> None:
    assert guid_of("x", (), Metadata(), None) == digest(b"x\x01")


@given(record_strategies.metadata, record_strategies.rule_sets)
def test_guid_is_a_uuid(metadata: Metadata, rule_set: RuleSet) -> None:
    guid = guid_of("x", (), metadata, rule_set)

    assert parse_guid(guid) == guid


def test_guid_of_a_request_is_a_uuid_or_hexadecimal() -> None:
    guid = guid_of("x", (), None, None)

    assert parse_guid(guid.replace("-", "").upper()) == guid
    assert parse_guid("17") is None
