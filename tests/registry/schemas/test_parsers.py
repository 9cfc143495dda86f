"""The cache of parsed schemas."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.registry.schemas import avro
from odradek.registry.schemas import parsers as parsers_module
from odradek.registry.schemas.parsed import (
    InvalidSchema,
    ParsedSchema,
    ResolvedReference,
    SchemaKind,
    text_digest,
)
from odradek.registry.schemas.parsers import BYTES_PER_CHARACTER, BYTES_PER_SCHEMA, Parsers

KINDS = {
    SchemaKind.AVRO: '"string"',
    SchemaKind.JSON: '{"type":"string"}',
    SchemaKind.PROTOBUF: 'syntax = "proto3"; message Order {}',
}


@pytest.mark.parametrize("kind", list(SchemaKind))
def test_every_kind_has_a_parser(kind: SchemaKind) -> None:
    assert Parsers().parse(kind, KINDS[kind]).kind is kind


def test_the_same_schema_is_parsed_once() -> None:
    parsers = Parsers()
    first = parsers.parse(SchemaKind.AVRO, '"string"')
    assert parsers.parse(SchemaKind.AVRO, '"string"') is first
    assert parsers.parse(SchemaKind.AVRO, ' "string"') is not first


def test_references_are_part_of_the_key() -> None:
    parsers = Parsers()
    text = '{"type":"array","items":"Item"}'
    texts = [f'{{"type":"fixed","name":"Item","size":{size}}}' for size in (4, 8)]
    first, second = (
        parsers.parse(SchemaKind.AVRO, text, (ResolvedReference("item", each),)) for each in texts
    )
    assert first.formatted("resolved") != second.formatted("resolved")


def test_stored_schemas_are_validated_less() -> None:
    text = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int","default":"none"}]}'
    parsers = Parsers()
    assert parsers.parse(SchemaKind.AVRO, text, stored=True).canonical == text
    with pytest.raises(InvalidSchema):
        parsers.parse(SchemaKind.AVRO, text)


def test_an_invalid_schema_is_not_cached() -> None:
    parsers = Parsers()
    for _ in range(2):
        with pytest.raises(InvalidSchema):
            parsers.parse(SchemaKind.AVRO, "{}")
    assert parsers._cached_bytes == 0


def test_the_cache_is_limited_in_bytes_and_drops_the_least_used() -> None:
    weight = BYTES_PER_SCHEMA + BYTES_PER_CHARACTER * len('"int"')
    parsers = Parsers(cache_bytes_max=3 * weight)
    first = parsers.parse(SchemaKind.AVRO, '"int"')
    for spaces in range(1, 50):
        parsers.parse(SchemaKind.AVRO, '"int"' + " " * (spaces % 5))
        assert parsers.parse(SchemaKind.AVRO, '"int"') is first
        assert parsers._cached_bytes <= 3 * weight


def test_a_schema_above_the_limit_is_parsed_and_not_cached() -> None:
    parsers = Parsers(cache_bytes_max=BYTES_PER_SCHEMA)
    assert parsers.parse(SchemaKind.AVRO, '"int"').canonical == '"int"'
    assert parsers._cached_bytes == 0


def test_threads_share_a_cache() -> None:
    parsers = Parsers(cache_bytes_max=20 * BYTES_PER_SCHEMA)
    texts = [f'{{"type":"fixed","name":"Hash{number}","size":8}}' for number in range(40)]

    def parse(number: int) -> str:
        return parsers.parse(SchemaKind.AVRO, texts[number % len(texts)]).canonical

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(parse, range(2_000)))
    assert found == [texts[number % len(texts)] for number in range(2_000)]
    assert 0 < parsers._cached_bytes <= 20 * BYTES_PER_SCHEMA


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the parser of stored Avro schemas has got."""
    parse = avro.parse_stored
    texts: list[str] = []

    def parse_and_count(text: str, references: tuple[ResolvedReference, ...]) -> ParsedSchema:
        texts.append(text)
        return parse(text, references)

    monkeypatch.setattr(avro, "parse_stored", parse_and_count)
    return texts


def test_digests_are_those_of_the_canonical_text_and_are_computed_once(parsed: list[str]) -> None:
    parsers = Parsers(cache_bytes_max=0)
    texts = [f' {{"type":"fixed","name":"F","size":{size}}}' for size in range(1, 50)]
    for _ in range(3):
        digests = [parsers.digest(SchemaKind.AVRO, text) for text in texts]
    assert digests == [text_digest(text.strip()) for text in texts]
    assert parsed == texts


def test_an_invalid_schema_has_no_digest_and_is_parsed_once(parsed: list[str]) -> None:
    parsers = Parsers()
    assert [parsers.digest(SchemaKind.AVRO, "{") for _ in range(2)] == [None, None]
    assert parsed == ["{"]


def test_digests_of_resolved_texts_depend_on_the_references() -> None:
    parsers = Parsers()
    text = '{"type":"array","items":"Item"}'
    references = [
        (ResolvedReference("item", f'{{"type":"fixed","name":"Item","size":{size}}}'),)
        for size in (4, 8)
    ]
    canonical = {parsers.digest(SchemaKind.AVRO, text, each) for each in references}
    resolved = {parsers.digest(SchemaKind.AVRO, text, each, resolved=True) for each in references}
    assert (len(canonical), len(resolved)) == (1, 2)
    assert not canonical & resolved


def test_the_number_of_digests_is_limited(
    parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsers_module, "DIGESTS_MAX", 2)
    parsers = Parsers(cache_bytes_max=0)
    for text in ('"int"', '"long"', '"int"', '"string"', '"int"', '"long"'):
        parsers.digest(SchemaKind.AVRO, text)
    assert parsed == ['"int"', '"long"', '"string"', '"long"']
