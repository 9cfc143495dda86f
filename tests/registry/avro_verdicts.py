"""Verdicts on generated pairs of Avro schemas, compared with Java's `SchemaCompatibility`."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

from odradek.registry.compatibility.avro import REASONS_MAX, IncomparableSchemas, reasons
from odradek.registry.schemas.avro import ParsedAvro, parse
from odradek.registry.schemas.parsed import InvalidSchema
from tests.registry.avro_pairs import AvroPair, avro_pairs
from tests.registry.java_verdicts import JavaVerdict, java_verdicts

Verdict = tuple[tuple[str, str, str], ...] | str | None

GENERATED_FOR_VALID = 1.3
"""Generated pairs for each pair of two valid schemas."""
BATCH_PAIRS = 13_000
"""Pairs that Java gets at once."""


def assert_verdicts_are_those_of_java(seed: int, valid_pairs: int) -> Counter[str]:
    """Compare pairs until `valid_pairs` had two valid schemas. Return how many were of each kind.

    Compared are the schemas that are valid, their texts, the verdict, and each reason with its
    location and message.
    """
    counts: Counter[str] = Counter()
    pairs = iter(avro_pairs(Random(seed), int(valid_pairs * GENERATED_FOR_VALID)))
    while batch := list(islice(pairs, BATCH_PAIRS)):
        for pair, expected in zip(batch, java_verdicts(batch), strict=True):
            counts[_compare(pair, expected)] += 1
    valid = counts["compatible"] + counts["incompatible"]
    assert valid >= valid_pairs, counts
    return counts


def _compare(pair: AvroPair, expected: JavaVerdict) -> str:
    reader = _as_in_java(pair.reader, expected.reader, expected.reader_error)
    writer = _as_in_java(pair.writer, expected.writer, expected.writer_error)
    if reader is None or writer is None:
        return "invalid"
    assert verdict_of(reader, writer) == _expected(expected), pair
    return "compatible" if expected.reasons == () else "incompatible"


def _as_in_java(text: str, theirs: str | None, error: str | None) -> ParsedAvro | None:
    """Parse a text. Java must find it valid, too, and write the same text."""
    own = parsed(text)
    assert (own is not None) == (theirs is not None), (text, error)
    assert own is None or own.canonical == theirs
    return own


def parsed(text: str) -> ParsedAvro | None:
    """Return a schema, or None for an invalid text."""
    try:
        return parse(text)
    except InvalidSchema:
        return None


def verdict_of(reader: ParsedAvro, writer: ParsedAvro) -> Verdict:
    """Return the reasons, or the message of the error for schemas that cannot be compared."""
    try:
        found = reasons(reader, writer)
    except IncomparableSchemas as error:
        return str(error)
    return tuple((each.kind.value, each.location, each.message) for each in found)


def _expected(verdict: JavaVerdict) -> Verdict:
    return verdict.error if verdict.reasons is None else verdict.reasons[:REASONS_MAX]
