"""Tests of the registry's error codes, statuses and messages."""

from __future__ import annotations

import pickle

import pytest

from odradek.registry import errors
from odradek.registry.errors import RegistryError, RegistryErrorCode


@pytest.mark.parametrize("code", list(RegistryErrorCode))
def test_status_is_the_beginning_of_the_code(code: RegistryErrorCode) -> None:
    assert str(code.value).startswith(str(RegistryError(code, "").status))


@pytest.mark.parametrize(
    ("error", "code", "status", "message"),
    [
        (errors.subject_not_found("orders"), 40401, 404, "Subject 'orders' not found."),
        (errors.version_not_found(7), 40402, 404, "Version 7 not found."),
        (errors.schema_not_found(), 40403, 404, "Schema not found"),
        (errors.schema_not_found(12), 40403, 404, "Schema 12 not found"),
        (
            errors.subject_soft_deleted("orders"),
            40404,
            404,
            "Subject 'orders' was soft deleted.Set permanent=true to delete permanently",
        ),
        (
            errors.subject_not_soft_deleted("orders"),
            40405,
            404,
            "Subject 'orders' was not deleted first before being permanently deleted",
        ),
        (
            errors.version_soft_deleted("orders", 2),
            40406,
            404,
            "Subject 'orders' Version 2 was soft deleted.Set permanent=true to delete permanently",
        ),
        (
            errors.version_not_soft_deleted("orders", 2),
            40407,
            404,
            "Subject 'orders' Version 2 was not deleted first before being permanently deleted",
        ),
        (
            errors.incompatible_schema("orders", ["first", "second"]),
            409,
            409,
            "Schema being registered is incompatible with an earlier schema for subject"
            ' "orders", details: [first, second]',
        ),
        (
            errors.invalid_version("0"),
            42202,
            422,
            "The specified version '0' is not a valid version id. Allowed values are between"
            ' [1, 2^31-1] and the string "latest"',
        ),
        (
            errors.reference_exists("orders", 1),
            42206,
            422,
            "One or more references exist to the schema"
            " {magic=1,keytype=SCHEMA,subject=orders,version=1}.",
        ),
        (
            errors.invalid_subject("__EMPTY"),
            42208,
            422,
            "The specified subject '__EMPTY' is not a valid.",
        ),
        (errors.unknown_leader(), 50004, 500, "Leader not known."),
        (errors.bad_request("no"), 400, 400, "no"),
    ],
)
def test_codes_and_messages_are_those_of_confluent(
    error: RegistryError, code: int, status: int, message: str
) -> None:
    assert (error.code, error.status, error.message, str(error)) == (code, status, message, message)


def test_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(errors.version_not_found(7)))

    assert (error.code, error.message) == (40402, "Version 7 not found.")
