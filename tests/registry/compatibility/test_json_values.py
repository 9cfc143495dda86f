"""A reader that is called compatible accepts every generated value of the writer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pytest

from odradek.registry.compatibility.json_schema import check
from tests.registry.json_documents import URIS, Schema, SchemaMaker
from tests.registry.json_verdicts import (
    assert_compatible_pairs_are_sound,
    changed_pairs,
    parsed,
)

PAIRS = 120
"""Pairs of schemas for each draft. `make evidence-registry-verdicts` compares 10,000 pairs."""


@pytest.mark.parametrize("draft", sorted(URIS))
def test_reader_accepts_every_value_of_a_compatible_writer(seed: int, draft: int) -> None:
    random = Random(f"{seed} {draft}")
    pairs = changed_pairs(random, draft, PAIRS)
    counts = assert_compatible_pairs_are_sound(random, pairs, (draft, draft))
    assert counts["compatible"] > PAIRS // 10, counts
    assert counts["incompatible"] > PAIRS // 10, counts
    assert counts["values"] > PAIRS, counts


@pytest.mark.parametrize("draft", sorted(URIS))
def test_reader_of_another_draft_accepts_every_value(seed: int, draft: int) -> None:
    random = Random(f"{seed} to {draft}")
    for other in sorted(set(URIS) - {draft}):

        def pairs(other: int = other) -> Iterator[tuple[Schema, Schema]]:
            for _ in range(PAIRS // 5):
                document = SchemaMaker(random, draft).document()
                yield document, {**document, "$schema": URIS[other]}

        assert_compatible_pairs_are_sound(random, pairs(), (draft, other))


@pytest.mark.parametrize("draft", sorted(URIS))
def test_schema_reads_its_own_values(seed: int, draft: int) -> None:
    """A changed title avoids the short cut for equal texts."""
    random = Random(f"{seed} same {draft}")
    compared = 0
    for _ in range(PAIRS):
        document = SchemaMaker(random, draft).document()
        same, schema = parsed({**document, "title": "other"}), parsed(document)
        if schema is None or same is None or "unevaluated" in schema.canonical:
            continue
        compared += 1
        assert check(same, schema) == [], json.dumps(document)
    assert compared > PAIRS // 5
