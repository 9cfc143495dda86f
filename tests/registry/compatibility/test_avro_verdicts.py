"""The verdicts on generated pairs of Avro schemas equal those of Java's `SchemaCompatibility`."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from odradek.registry.compatibility.avro import (
    REASONS_MAX,
    IncomparableSchemas,
    ReasonKind,
    reasons,
)
from odradek.registry.schemas.avro import ParsedAvro, parse
from odradek.registry.schemas.parsed import InvalidSchema
from tests.registry.avro_pairs import avro_pairs
from tests.registry.java_verdicts import JavaVerdict, java_verdicts

VALID_PAIRS = 10_000
GENERATED_PAIRS = 13_000
"""So many pairs that at least `VALID_PAIRS` of them have two valid schemas."""

Verdict = tuple[tuple[str, str, str], ...] | str | None


@pytest.mark.timeout(600)
def test_verdicts_and_reasons_equal_those_of_java(seed: int) -> None:
    """Which schemas are valid, their texts, the verdict, and each reason with its location."""
    pairs = list(avro_pairs(Random(seed), GENERATED_PAIRS))
    valid = 0
    for pair, expected in zip(pairs, java_verdicts(pairs), strict=True):
        reader = _as_in_java(pair.reader, expected.reader, expected.reader_error)
        writer = _as_in_java(pair.writer, expected.writer, expected.writer_error)
        if reader is not None and writer is not None:
            valid += 1
            assert _verdict(reader, writer) == _expected(expected), pair
    assert valid >= VALID_PAIRS


def test_pairs_are_a_mix_of_all_verdicts(seed: int) -> None:
    kinds: Counter[str] = Counter()
    for pair in avro_pairs(Random(seed), 4_000):
        reader, writer = _parsed(pair.reader), _parsed(pair.writer)
        if reader is None or writer is None:
            kinds["invalid"] += 1
            continue
        verdict = _verdict(reader, writer)
        if isinstance(verdict, tuple):
            kinds.update({kind for kind, _, _ in verdict} or {"compatible"})
        else:
            kinds["incomparable"] += 1
    assert kinds["invalid"] < 800, kinds
    assert kinds["compatible"] > 600, kinds
    for kind in ReasonKind:
        assert kinds[kind.value] > 10, (kind, kinds)
    assert kinds["incomparable"] > 0, kinds


def _as_in_java(text: str, theirs: str | None, error: str | None) -> ParsedAvro | None:
    """Parse a text. Java must find it valid, too, and write the same text."""
    parsed = _parsed(text)
    assert (parsed is not None) == (theirs is not None), (text, error)
    assert parsed is None or parsed.canonical == theirs
    return parsed


def _parsed(text: str) -> ParsedAvro | None:
    try:
        return parse(text)
    except InvalidSchema:
        return None


def _verdict(reader: ParsedAvro, writer: ParsedAvro) -> Verdict:
    try:
        found = reasons(reader, writer)
    except IncomparableSchemas as error:
        return str(error)
    return tuple((each.kind.value, each.location, each.message) for each in found)


def _expected(verdict: JavaVerdict) -> Verdict:
    return verdict.error if verdict.reasons is None else verdict.reasons[:REASONS_MAX]
