"""Pairs of JSON Schemas: readers accept each value of a writer that they are compatible with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from jsonschema.validators import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)

from odradek.registry.compatibility.json_schema import check
from odradek.registry.schemas.json_schema import ParsedJsonSchema, parse
from odradek.registry.schemas.parsed import InvalidSchema
from tests.registry.json_documents import Schema, SchemaMaker, ValueMaker, mutated

VALIDATORS: dict[int, Any] = {
    4: Draft4Validator,
    6: Draft6Validator,
    7: Draft7Validator,
    2019: Draft201909Validator,
    2020: Draft202012Validator,
}
VALUES = 40
"""Values that are made for each compatible pair. The writer accepts a part of them."""


def parsed(document: Schema) -> ParsedJsonSchema | None:
    try:
        return parse(json.dumps(document))
    except InvalidSchema:
        return None


def values_of(random: Random, writer: Schema, reader: Schema, draft: int) -> Iterator[Any]:
    """Yield values that the writer accepts, made from both schemas."""
    validator = VALIDATORS[draft](writer)
    makers = ValueMaker(random, writer), ValueMaker(random, reader)
    for number in range(VALUES):
        value = makers[number % 4 == 3].value()
        if validator.is_valid(value):
            yield value


def assert_compatible_pairs_are_sound(
    random: Random, pairs: Iterator[tuple[Schema, Schema]], drafts: tuple[int, int]
) -> Counter[str]:
    """Compare pairs of a writer and a reader. Return how many were of each verdict."""
    counts: Counter[str] = Counter()
    for writer, reader in pairs:
        parsed_writer, parsed_reader = parsed(writer), parsed(reader)
        if parsed_writer is None or parsed_reader is None:
            counts["invalid"] += 1
            continue
        if check(parsed_reader, parsed_writer):
            counts["incompatible"] += 1
            continue
        counts["compatible"] += 1
        validator = VALIDATORS[drafts[1]](reader)
        for value in values_of(random, writer, reader, drafts[0]):
            counts["values"] += 1
            assert validator.is_valid(value), (
                f"value {json.dumps(value)}\nwriter {json.dumps(writer)}\n"
                f"reader {json.dumps(reader)}"
            )
    return counts


def changed_pairs(random: Random, draft: int, pairs: int) -> Iterator[tuple[Schema, Schema]]:
    """Yield pairs of a schema and a changed copy, in both directions."""
    for number in range(pairs):
        document = SchemaMaker(random, draft).document()
        changed = mutated(random, document, draft)
        yield (document, changed) if number % 2 else (changed, document)
