"""Errors of the registry's REST interface: codes and messages of Confluent's schema registry.

A code of five digits begins with the HTTP status (40401: 404). A code of three digits is the status
itself. The message texts equal Confluent's, because some clients and tests compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

FIVE_DIGITS_MIN = 10_000
"""Smallest code that begins with the HTTP status. Smaller codes are the status."""


class RegistryErrorCode(IntEnum):
    """The codes of ``io.confluent.kafka.schemaregistry.rest.exceptions.Errors``.

    `INCOMPATIBLE_SCHEMA` is 409 in all releases that clients were written for. Confluent's newest
    sources use 40901 with the same HTTP status.
    """

    BAD_REQUEST = 400
    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    NOT_ACCEPTABLE = 406
    INCOMPATIBLE_SCHEMA = 409
    UNSUPPORTED_MEDIA_TYPE = 415
    UNPROCESSABLE = 422
    INTERNAL_ERROR = 500

    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    COMPATIBILITY_NOT_CONFIGURED = 40408
    MODE_NOT_CONFIGURED = 40409

    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY_LEVEL = 42203
    INVALID_MODE = 42204
    OPERATION_NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    INVALID_RULE_SET = 42210
    CONTEXT_NOT_EMPTY = 42211

    STORE_ERROR = 50001
    OPERATION_TIMEOUT = 50002
    FORWARDING_FAILED = 50003
    UNKNOWN_LEADER = 50004


class RegistryError(Exception):
    """An error that becomes the response ``{"error_code": code, "message": message}``."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status of the response."""
        return self.code // 100 if self.code >= FIVE_DIGITS_MIN else self.code

    def __reduce__(self) -> tuple[type[RegistryError], tuple[int, str]]:
        return type(self), (self.code, self.message)


def bad_request(message: str) -> RegistryError:
    """Return the error of a body that is not JSON, or whose fields have a wrong type."""
    return RegistryError(RegistryErrorCode.BAD_REQUEST, message)


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(RegistryErrorCode.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(RegistryErrorCode.VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(name: int | str | None = None) -> RegistryError:
    """Return the error of an unknown schema.

    Args:
        name: The id or the guid of the request, or None if the request had a text.
    """
    message = "Schema not found" if name is None else f"Schema {name} not found"
    return RegistryError(RegistryErrorCode.SCHEMA_NOT_FOUND, message)


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.SUBJECT_SOFT_DELETED,
        f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently",
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.SUBJECT_NOT_SOFT_DELETED,
        f"Subject '{subject}' was not deleted first before being permanently deleted",
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.VERSION_SOFT_DELETED,
        f"Subject '{subject}' Version {version} was soft deleted."
        "Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.VERSION_NOT_SOFT_DELETED,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently"
        " deleted",
    )


def compatibility_not_configured(subject: str) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.COMPATIBILITY_NOT_CONFIGURED,
        f"Subject '{subject}' does not have subject-level compatibility configured",
    )


def mode_not_configured(subject: str) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.MODE_NOT_CONFIGURED,
        f"Subject '{subject}' does not have subject-level mode configured",
    )


def incompatible_schema(subject: str, reasons: Sequence[str]) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.INCOMPATIBLE_SCHEMA,
        "Schema being registered is incompatible with an earlier schema for subject"
        f' "{subject}", details: [{", ".join(reasons)}]',
    )


def invalid_schema(message: str) -> RegistryError:
    return RegistryError(RegistryErrorCode.INVALID_SCHEMA, message)


def invalid_version(version: int | str) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.INVALID_VERSION,
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_compatibility_level() -> RegistryError:
    return RegistryError(
        RegistryErrorCode.INVALID_COMPATIBILITY_LEVEL,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode(message: str | None = None) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.INVALID_MODE,
        message or "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD.",
    )


def operation_not_permitted(message: str) -> RegistryError:
    return RegistryError(RegistryErrorCode.OPERATION_NOT_PERMITTED, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    """Return the error of a deletion of a version that another schema references."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(
        RegistryErrorCode.REFERENCE_EXISTS, f"One or more references exist to the schema {key}."
    )


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid."
    )


def schema_too_large(message: str | None = None) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.SCHEMA_TOO_LARGE,
        message or "Register operation failed because schema is too large",
    )


def invalid_rule_set(message: str) -> RegistryError:
    return RegistryError(RegistryErrorCode.INVALID_RULE_SET, message)


def context_not_empty(context: str) -> RegistryError:
    return RegistryError(
        RegistryErrorCode.CONTEXT_NOT_EMPTY, f"The specified context '{context}' is not empty."
    )


def store_error(message: str) -> RegistryError:
    return RegistryError(RegistryErrorCode.STORE_ERROR, message)


def operation_timeout(message: str) -> RegistryError:
    return RegistryError(RegistryErrorCode.OPERATION_TIMEOUT, message)


def forwarding_failed(message: str) -> RegistryError:
    return RegistryError(RegistryErrorCode.FORWARDING_FAILED, message)


def unknown_leader(message: str = "Leader not known.") -> RegistryError:
    return RegistryError(RegistryErrorCode.UNKNOWN_LEADER, message)
