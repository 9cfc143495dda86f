"""The cache of encoded responses to schemas by id."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.routes.encoded_schemas import BYTES_PER_ENTRY, EncodedSchemas
from odradek.registry.schema_version import SchemaVersion, schema_string_json
from odradek.registry.subjects import QualifiedSubject


def version(number: int, text: str = '"int"') -> SchemaVersion:
    subject = QualifiedSubject(".", "orders")
    return SchemaVersion(subject, number, number, "AVRO", text, (), None, None, "guid")


def test_body_is_that_of_the_version() -> None:
    schemas = EncodedSchemas()
    for with_subject in (False, True):
        body = schemas.encoded(version(1), with_subject=with_subject)
        expected = schema_string_json(version(1), with_subject=with_subject)
        assert json.loads(body.body) == expected


def test_second_request_for_a_version_gets_the_same_object() -> None:
    schemas, stored = EncodedSchemas(), version(1)
    first = schemas.encoded(stored, with_subject=False)
    assert schemas.encoded(stored, with_subject=False) is first
    assert schemas.encoded(stored, with_subject=True) is not first


def test_changed_version_is_encoded_again() -> None:
    schemas, stored = EncodedSchemas(), version(1)
    first = schemas.encoded(stored, with_subject=False)
    deleted = replace(stored, deleted=True)
    assert json.loads(schemas.encoded(deleted, with_subject=False).body)["deleted"] is True
    assert schemas.encoded(stored, with_subject=False) is not first


def test_oldest_entry_is_removed_first() -> None:
    versions = [version(number) for number in (1, 2, 3)]
    size = len(EncodedSchemas().encoded(versions[0], with_subject=False).body) + BYTES_PER_ENTRY
    schemas = EncodedSchemas(2 * size)
    first, second = (schemas.encoded(each, with_subject=False) for each in versions[:2])
    assert schemas.encoded(versions[0], with_subject=False) is first
    schemas.encoded(versions[2], with_subject=False)
    assert schemas.encoded(versions[0], with_subject=False) is first
    assert schemas.encoded(versions[1], with_subject=False) is not second


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 400), st.booleans()), max_size=60),
    st.integers(0, 3_000),
)
def test_size_of_the_cache_is_bounded(
    requests: list[tuple[int, int, bool]], bytes_max: int
) -> None:
    schemas = EncodedSchemas(bytes_max)
    for number, length, with_subject in requests:
        stored = version(number, "x" * length)
        body = schemas.encoded(stored, with_subject=with_subject)
        assert json.loads(body.body)["schema"] == stored.text
        assert 0 <= schemas._cached_bytes <= bytes_max
        entries = schemas._cached.values()
        assert schemas._cached_bytes == sum(len(e.body) + BYTES_PER_ENTRY for _, e in entries)
