"""Reads the state of a registry into an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from odradek.registry.archive import Archive, ArchivedSubject, ArchivedVersion
from odradek.registry.client import RegistryClient, UnexpectedResponse

REQUESTS_IN_FLIGHT_MAX = 8
"""Largest number of requests that wait for their responses at the same time."""

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
    be missing.
    """
    subjects = in_parallel(lambda name: _read_subject(client, name), client.subjects(deleted=True))
    return Archive(config=client.config(), mode=client.mode(), subjects=tuple(subjects))


def _read_subject(client: RegistryClient, name: str) -> ArchivedSubject:
    live = set(client.existing_versions(name))
    return ArchivedSubject(
        name=name,
        config=client.config(name),
        mode=client.mode(name),
        versions=tuple(
            _read_version(client, name, number, is_deleted=number not in live)
            for number in client.versions(name, deleted=True)
        ),
    )


def _read_version(
    client: RegistryClient, subject: str, number: int, *, is_deleted: bool
) -> ArchivedVersion:
    schema = client.version(subject, number, deleted=True)
    if schema.id is None:
        raise UnexpectedResponse(f"The registry returned version {number} without its id.")
    return ArchivedVersion(subject, number, schema.id, schema, is_deleted)
