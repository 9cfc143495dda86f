"""Reads that parse schemas, and reads of a version with their errors. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.registry.decisions.comparison import compared_versions, messages_of
from odradek.registry.decisions.matching import matching_or_inheriting_version
from odradek.registry.decisions.parsing import task_of_request, text_in_format
from odradek.registry.decisions.requests import SchemaRequest
from odradek.registry.decisions.tools import SchemaParsers, SchemaTools
from odradek.registry.errors import (
    RegistryError,
    RegistryErrorCode,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from odradek.registry.json_value import JsonObject
from odradek.registry.request_budget import BudgetExceeded
from odradek.registry.schema_version import SchemaVersion, schema_json
from odradek.registry.state import LATEST_VERSION, Deleted, RegistryState
from odradek.registry.subjects import QualifiedSubject


def find_version(
    state: RegistryState, subject: QualifiedSubject, version: int, *, deleted: bool = False
) -> SchemaVersion:
    """Return a version. A subject without a context is searched in all contexts.

    Args:
        state: The state.
        subject: The subject.
        version: The number, or -1 for the latest version.
        deleted: Whether a soft-deleted version is found.

    Raises:
        RegistryError: 40401, the subject does not exist. 40402, the version does not exist.
    """
    found = state.version_in_contexts(subject, version, deleted=deleted)
    if found is not None:
        return found
    if not state.has_subject(subject, deleted=deleted):
        raise subject_not_found(str(subject))
    raise version_not_found(version)


def get_version(
    state: RegistryState,
    parsers: SchemaParsers,
    subject: QualifiedSubject,
    version: int,
    *,
    deleted: bool = False,
    format_name: str = "",
    qualified_references: bool = False,
) -> JsonObject:
    """Return the response to ``GET /subjects/{subject}/versions/{version}``.

    Raises:
        RegistryError: 40401, the subject does not exist. 40402, the version does not exist. 42201,
            the version cannot be parsed for its format.
    """
    found = find_version(state, subject, version, deleted=deleted)
    text = text_in_format(state, parsers, found, format_name)
    return schema_json(found, text=text, qualified_references=qualified_references)


def look_up(
    state: RegistryState,
    parsers: SchemaParsers,
    subject: QualifiedSubject,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    deleted: bool = False,
    format_name: str = "",
) -> JsonObject:
    """Return the version of a subject that has a schema: ``POST /subjects/{subject}``.

    A subject without a context is searched in all contexts.

    Raises:
        RegistryError: 40401, the subject does not exist. 40403, it does not have the schema. 42201
            or 42209, the schema is not valid or too large.
    """
    normalize = normalize or bool(state.config_in_scope(subject).normalize)
    for candidate in state.in_contexts(subject):
        try:
            found = matching_or_inheriting_version(
                state, parsers, candidate, request, normalize=normalize, deleted=deleted
            )
        except BudgetExceeded:
            raise
        except RegistryError:
            if candidate == subject:
                raise
            continue
        if found is not None:
            return schema_json(found, text=text_in_format(state, parsers, found, format_name))
    if not state.has_subject(subject, deleted=deleted):
        raise subject_not_found(str(subject))
    raise schema_not_found()


def latest_with_metadata(
    state: RegistryState,
    parsers: SchemaParsers,
    subject: QualifiedSubject,
    properties: Mapping[str, str],
    *,
    deleted: bool = False,
    format_name: str = "",
) -> JsonObject:
    """Return the newest version with metadata that contain properties: ``GET .../metadata``.

    Raises:
        RegistryError: 40401, the subject does not exist. 40403, no version has the properties.
            42201, the version cannot be parsed for its format.
    """
    included = Deleted.INCLUDE if deleted else Deleted.EXCLUDE
    for version in reversed(state.versions(subject, included)):
        metadata = version.metadata
        if metadata is not None and properties.items() <= dict(metadata.properties).items():
            return schema_json(version, text=text_in_format(state, parsers, version, format_name))
    if not state.has_subject(subject, deleted=deleted):
        raise subject_not_found(str(subject))
    raise schema_not_found()


def check_compatibility(
    state: RegistryState,
    tools: SchemaTools,
    subject: QualifiedSubject,
    request: SchemaRequest,
    version: int | None = None,
    *,
    verbose: bool = False,
) -> JsonObject:
    """Return the response to ``POST /compatibility/subjects/{subject}/versions``.

    Args:
        state: The state.
        tools: The parsers and the rules of the compatibility levels.
        subject: The subject.
        request: The schema.
        version: The version to compare with, -1 for the latest version, which may not exist, or
            None for the versions that the level of the subject demands.
        verbose: Whether the response contains the messages. An invalid schema is one of them then.

    Raises:
        RegistryError: 40402, the version does not exist. 42201 or 42209, the schema is not valid or
            too large. 422 or 503, the comparison exceeds the budget of the request.
    """
    versions = _requested_versions(state, subject, version)
    config = state.config_in_scope(subject)
    stored = config.validate_new_schemas is False
    task = task_of_request(state, subject, request, stored=stored)
    earlier = compared_versions(state, config, request.metadata, versions)
    try:
        messages = messages_of(tools, config, task.run(tools.parsers), earlier)
    except RegistryError as error:
        if not verbose or error.code != RegistryErrorCode.INVALID_SCHEMA:
            raise
        messages = [error.message]
    response: JsonObject = {"is_compatible": not messages}
    return {**response, "messages": messages} if verbose else response


def _requested_versions(
    state: RegistryState, subject: QualifiedSubject, version: int | None
) -> list[SchemaVersion]:
    if version is None:
        return state.versions(subject)
    found = state.version(subject, version)
    if found is None and version != LATEST_VERSION:
        raise version_not_found(version)
    return [] if found is None else [found]
