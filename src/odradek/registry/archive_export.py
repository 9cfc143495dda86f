"""Reads the state of a registry into an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar

from odradek.registry.archive import Archive, ArchivedSubject, ArchivedVersion
from odradek.registry.client import (
    JsonObject,
    RegistryClient,
    RegistryRefusal,
    StoredSchema,
    UnexpectedResponse,
)

REQUESTS_IN_FLIGHT_MAX = 8
"""Largest number of requests that wait for their responses at the same time."""

ALL_CONTEXTS = ":*:"
"""The prefix of the subjects of all contexts."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return the results of `function` in the order of `items`. The first exception is raised."""
    with ThreadPoolExecutor(REQUESTS_IN_FLIGHT_MAX) as executor:
        futures = [executor.submit(function, each) for each in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


def read_registry(client: RegistryClient) -> Archive:
    """Return all subjects of all contexts with all versions, also those deleted softly.

    Each version is read by a request of its own. A version that is registered during the export may
    be missing. A name without versions has a config or mode in the archive if it is an alias. The
    interface does not list other names without versions.

    Raises:
        UnexpectedResponse: The registry returned a version of another subject.
    """
    names = client.subjects(deleted=True)
    aliases = _aliases(client) - set(names)
    subjects = in_parallel(lambda name: _read_subject(client, name), names)
    subjects += in_parallel(lambda name: _read_alias(client, name), sorted(aliases))
    subjects.sort(key=lambda each: each.name)
    return Archive(config=client.config(), mode=client.mode(), subjects=tuple(subjects))


def alias_of(config: JsonObject | None) -> str | None:
    """Return the subject that a config names as the alias of its subject."""
    alias = None if config is None else config.get("alias")
    return alias if isinstance(alias, str) and alias else None


def own_versions(client: RegistryClient, name: str) -> tuple[ArchivedVersion, ...]:
    """Return the versions of a subject whose config has an alias, in ascending order."""
    live = {each.version for each, _ in client.schemas(name) if each.subject == name}
    found = [
        _archived(name, each, is_deleted=each.version not in live)
        for each, _ in client.schemas(name, deleted=True)
        if each.subject == name
    ]
    return tuple(sorted(found, key=lambda each: each.version))


def _aliases(client: RegistryClient) -> set[str]:
    """Return the names that are aliases of subjects."""
    try:
        found = client.schemas(ALL_CONTEXTS, deleted=True, latest_only=True, aliases=True)
        return {name for _, names in found for name in names}
    except RegistryRefusal as refusal:
        if refusal.status == HTTPStatus.NOT_FOUND:  # a registry without this endpoint
            return set()
        raise


def _read_alias(client: RegistryClient, name: str) -> ArchivedSubject:
    return ArchivedSubject(name, client.config(name), client.mode(name), versions=())


def _read_subject(client: RegistryClient, name: str) -> ArchivedSubject:
    config = client.config(name)
    if alias_of(config) is not None:
        versions = own_versions(client, name)
    else:
        live = set(client.existing_versions(name))
        versions = tuple(
            _read_version(client, name, number, is_deleted=number not in live)
            for number in client.versions(name, deleted=True)
        )
    return ArchivedSubject(name, config, client.mode(name), versions)


def _read_version(
    client: RegistryClient, subject: str, number: int, *, is_deleted: bool
) -> ArchivedVersion:
    schema = client.version(subject, number, deleted=True)
    if schema.subject is not None and schema.subject != subject:
        raise UnexpectedResponse(
            f"The registry returned a version of '{schema.subject}' for '{subject}'. Export again."
        )
    return _archived(subject, schema, is_deleted=is_deleted)


def _archived(subject: str, schema: StoredSchema, *, is_deleted: bool) -> ArchivedVersion:
    if schema.id is None or schema.version is None:
        raise UnexpectedResponse(f"The registry returned a version of '{subject}' without its id.")
    return ArchivedVersion(subject, schema.version, schema.id, schema, is_deleted)
