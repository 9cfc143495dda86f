"""The reader accepts every record of the writer, if the comparison calls the two compatible."""

from __future__ import annotations

from collections import Counter
from random import Random

from odradek.registry.compatibility.proto_differences import ProtoDifferenceKind
from odradek.registry.compatibility.protobuf import differences
from tests.registry.proto_models import parsed
from tests.registry.proto_pairs import proto_pairs
from tests.registry.proto_verdicts import assert_compatible_readers_read_all

PAIRS = 500
"""Pairs of each run. `make evidence-registry-verdicts` compares 10,000 pairs."""


def test_the_reader_of_a_compatible_pair_accepts_every_record(seed: int) -> None:
    counts = assert_compatible_readers_read_all(seed, PAIRS)
    assert counts["compatible"] > PAIRS // 10, counts
    assert counts["incompatible"] > PAIRS // 10, counts
    assert counts["records"] > counts["compatible"], counts


def test_the_pairs_have_every_kind_of_difference() -> None:
    random = Random(0)
    found: Counter[ProtoDifferenceKind] = Counter()
    for pair in proto_pairs(random, 2_000):
        kinds = {each.kind for each in differences(parsed(pair.reader), parsed(pair.writer))}
        found.update(kinds)
    assert set(ProtoDifferenceKind) - found.keys() == {ProtoDifferenceKind.ENUM_CONST_CHANGED}


def test_a_schema_is_compatible_with_itself(seed: int) -> None:
    for pair in proto_pairs(Random(seed), 200):
        assert differences(parsed(pair.writer), parsed(pair.writer)) == []
