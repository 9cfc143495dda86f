"""Avro libraries for Python read the texts that the registry stores."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from random import Random

import avro.schema
import fastavro

from odradek.registry.schemas.avro import parse
from odradek.registry.schemas.parsed import InvalidSchema
from tests.registry.avro_pairs import avro_pairs


def stored_texts(seed: int) -> Iterator[str]:
    """Canonical texts without namespaces.

    Apache's library reads an empty namespace as the enclosing one, so it does not find a name
    without a namespace inside of a type with one.
    """
    for pair in avro_pairs(Random(seed), 400):
        for text in (pair.reader, pair.writer):
            try:
                canonical = parse(text).canonical
            except InvalidSchema:
                continue
            if "namespace" not in canonical:
                yield canonical


def test_apaches_library_reads_stored_texts(seed: int) -> None:
    texts = list(stored_texts(seed))
    assert len(texts) > 100
    for text in texts:
        with warnings.catch_warnings():
            # It warns of logical types that it does not know.
            warnings.simplefilter("ignore")
            assert avro.schema.parse(text) is not None


def test_fastavro_reads_stored_texts(seed: int) -> None:
    for text in stored_texts(seed):
        assert fastavro.parse_schema(json.loads(text)) is not None
