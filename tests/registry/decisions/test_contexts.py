"""Tests of the deletion of contexts."""

from __future__ import annotations

import pytest

from odradek.registry.decisions.contexts import delete_context
from odradek.registry.errors import RegistryErrorCode
from odradek.registry.records import ContextRecord, SchemaRecord, SchemaTombstone
from tests.registry.decisions.fakes import Log, refused


@pytest.mark.parametrize("name", [".ctx", "ctx", ":.ctx:"])
def test_empty_context_is_deleted(name: str) -> None:
    log = Log()
    log.write(
        ContextRecord(".ctx"), SchemaRecord(":.ctx:a", 1, 1, "x"), SchemaTombstone(":.ctx:a", 1)
    )

    decision = delete_context(log.state, name)

    assert decision.records == (ContextRecord(".ctx", present=False),)
    assert log.execute(decision) is None
    assert log.state.contexts() == ["."]


def test_context_with_a_deleted_schema_is_kept() -> None:
    log = Log()
    log.write(ContextRecord(".ctx"), SchemaRecord(":.ctx:a", 1, 1, "x", deleted=True))

    with refused(
        RegistryErrorCode.CONTEXT_NOT_EMPTY, "The specified context ':.ctx:' is not empty."
    ):
        delete_context(log.state, ".ctx")


@pytest.mark.parametrize("name", [".", ".unknown"])
def test_deletion_of_a_context_that_is_not_listed_writes_nothing(name: str) -> None:
    assert delete_context(Log().state, name).records == ()


def test_context_with_a_colon_is_refused() -> None:
    with refused(RegistryErrorCode.BAD_REQUEST):
        delete_context(Log().state, ".a:b")
