"""The verdicts on generated pairs of Avro schemas equal those of Java's `SchemaCompatibility`."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from odradek.registry.compatibility.avro import ReasonKind
from tests.registry.avro_pairs import avro_pairs
from tests.registry.avro_verdicts import assert_verdicts_are_those_of_java, parsed, verdict_of

VALID_PAIRS = 2_000
"""`make evidence-registry-verdicts` compares 10,000 pairs."""


@pytest.mark.timeout(600)
def test_verdicts_and_reasons_equal_those_of_java(seed: int) -> None:
    assert_verdicts_are_those_of_java(seed, VALID_PAIRS)


def test_pairs_are_a_mix_of_all_verdicts(seed: int) -> None:
    kinds: Counter[str] = Counter()
    for pair in avro_pairs(Random(seed), 4_000):
        reader, writer = parsed(pair.reader), parsed(pair.writer)
        if reader is None or writer is None:
            kinds["invalid"] += 1
            continue
        verdict = verdict_of(reader, writer)
        if isinstance(verdict, tuple):
            kinds.update({kind for kind, _, _ in verdict} or {"compatible"})
        else:
            kinds["incomparable"] += 1
    assert kinds["invalid"] < 800, kinds
    assert kinds["compatible"] > 600, kinds
    for kind in ReasonKind:
        assert kinds[kind.value] > 10, (kind, kinds)
    assert kinds["incomparable"] > 0, kinds
