"""Tests of the resolution of references, with missing, cyclic and too many ones."""

from __future__ import annotations

import pytest

from odradek.registry.decisions import resolution
from odradek.registry.decisions.resolution import Resolved, resolve, with_numbers
from odradek.registry.errors import RegistryErrorCode
from odradek.registry.records import SchemaRecord
from odradek.registry.schemas.parsed import (
    TEXT_BYTES_MAX,
    InvalidSchema,
    Reference,
    ResolvedReference,
)
from tests.registry.decisions.fakes import Log, refused, subject

A = subject("a")


def to(name: str, version: int = 1) -> Reference:
    """Return a reference to a subject with the subject's name."""
    return Reference(name, name, version)


def schema(name: str, schema_id: int, *references: Reference, version: int = 1) -> SchemaRecord:
    return SchemaRecord(name, version, schema_id, f"text of {name}", references=references)


def resolved_names(log: Log, *references: Reference) -> list[str]:
    return [each.name for each in resolve(log.state, A, references).texts]


def test_schema_without_references_has_no_texts() -> None:
    assert resolve(Log().state, A, ()) == Resolved((), ())


def test_texts_come_after_the_texts_that_they_need() -> None:
    log = Log()
    log.write(schema("c", 1), schema("b", 2, to("c")), schema("d", 3, to("c"), to("b")))

    assert resolved_names(log, to("d"), to("b")) == ["c", "b", "d"]
    assert resolve(log.state, A, [to("c")]).texts == (ResolvedReference("c", "text of c"),)


def test_latest_version_gets_its_number() -> None:
    log = Log()
    log.write(
        schema("b", 1),
        SchemaRecord("b", 2, 2, "second"),
        SchemaRecord("b", 3, 3, "third", deleted=True),
    )

    found = resolve(log.state, A, [to("b", -1)], deleted=True)

    assert found == Resolved((to("b", 2),), (ResolvedReference("b", "second"),))
    assert with_numbers(log.state, A, [to("b", -1), to("c", -1)]) == (to("b", 2), to("c", -1))


def test_name_has_the_text_of_its_first_occurrence() -> None:
    log = Log()
    log.write(schema("b", 1), SchemaRecord("b", 2, 2, "second"))

    found = resolve(log.state, A, [to("b", 2), to("b", 1)])

    assert found.references == (to("b", 2), to("b", 1))
    assert found.texts == (ResolvedReference("b", "second"),)


def test_references_of_a_schema_belong_to_its_own_context() -> None:
    log = Log()
    log.write(
        schema(":.ctx:c", 1),
        SchemaRecord(":.ctx:b", 1, 2, "b", references=(to("c"),)),
        SchemaRecord("c", 1, 1, "other"),
    )

    found = resolve(log.state, A, [Reference("b", ":.ctx:b", 1)])

    assert found.texts[0] == ResolvedReference("c", "text of :.ctx:c")


def test_missing_reference_is_an_error() -> None:
    log = Log()
    log.write(schema("b", 1, to("c", 7)))

    with pytest.raises(
        InvalidSchema, match='No schema reference found for subject "c" and version 7'
    ):
        resolve(log.state, A, [to("b")])


def test_deleted_version_is_found_on_request() -> None:
    log = Log()
    log.write(SchemaRecord("b", 1, 1, "x", deleted=True))

    assert resolve(log.state, A, [to("b")], deleted=True).texts
    with pytest.raises(InvalidSchema):
        resolve(log.state, A, [to("b")])


def test_cycle_is_an_error() -> None:
    log = Log()
    log.write(
        SchemaRecord("b", 1, 1, "b", references=(Reference("name c", "c", 1),)),
        SchemaRecord("c", 1, 2, "c", references=(Reference("name b", "b", 1),)),
    )

    with pytest.raises(InvalidSchema, match='Cyclic reference to subject "b" version 1'):
        resolve(log.state, A, [to("b")])


def test_schema_that_references_itself_is_an_error() -> None:
    log = Log()
    log.write(schema("b", 1, to("b")))

    with pytest.raises(InvalidSchema, match="Cyclic reference"):
        resolve(log.state, A, [to("b")])


def test_long_chain_is_an_error() -> None:
    log = Log()
    length = resolution.REFERENCE_DEPTH_MAX + 1
    log.write(schema("s0", 1))
    log.write(*(schema(f"s{n}", n + 1, to(f"s{n - 1}")) for n in range(1, length)))

    assert len(resolve(log.state, A, [to(f"s{length - 2}")]).texts) == length - 1
    with pytest.raises(InvalidSchema, match="follow each other"):
        resolve(log.state, A, [to(f"s{length - 1}")])


def test_many_references_are_an_error() -> None:
    log = Log()
    log.write(schema("b", 1))
    references = [Reference(f"n{n}", "b", 1) for n in range(resolution.REFERENCES_TOTAL_MAX + 1)]

    assert len(resolve(log.state, A, references[:-1]).texts) == resolution.REFERENCES_TOTAL_MAX
    with pytest.raises(InvalidSchema, match="More than 1000 references"):
        resolve(log.state, A, references)


def test_large_texts_are_an_error() -> None:
    log = Log()
    log.write(SchemaRecord("b", 1, 1, "x" * TEXT_BYTES_MAX), SchemaRecord("c", 1, 2, "y"))

    assert resolve(log.state, A, [to("b")]).texts
    with refused(RegistryErrorCode.SCHEMA_TOO_LARGE):
        resolve(log.state, A, [to("b"), to("c")])
