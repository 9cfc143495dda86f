"""Search for the version of a subject that has the schema of a request. Pure."""

from __future__ import annotations

from odradek.registry.decisions.equivalence import Equivalence
from odradek.registry.decisions.inheritance import with_inherited_contract
from odradek.registry.decisions.parsing import Candidate, canonical
from odradek.registry.decisions.requests import SchemaRequest
from odradek.registry.decisions.tools import SchemaParsers
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.state import Deleted, RegistryState
from odradek.registry.subjects import QualifiedSubject


def matching_version(
    state: RegistryState,
    parsers: SchemaParsers,
    subject: QualifiedSubject,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    deleted: bool = False,
    latest_only: bool = False,
) -> SchemaVersion | None:
    """Return the version of a subject that has the schema of a request, or None.

    Args:
        state: The state.
        parsers: The parsers.
        subject: The subject.
        request: The schema.
        normalize: Whether the text is normalized before the search.
        deleted: Whether to search soft-deleted versions, too.
        latest_only: Whether to compare the latest version only.

    Raises:
        RegistryError: 42201 or 42209, the schema is not valid or too large.
    """
    if request.is_empty:
        return None
    candidate = canonical(state, parsers, subject, request, normalize=normalize, stored=True)
    equivalence = Equivalence(state, parsers, candidate)
    if latest_only:
        latest = state.latest(subject)
        return latest if latest is not None and equivalence.matches(latest) else None
    same = version_with_content(state, candidate, deleted=deleted)
    if same is not None:
        return same
    included = Deleted.INCLUDE if deleted else Deleted.EXCLUDE
    for version in reversed(state.versions(subject, included)):
        if equivalence.matches(version):
            return version
    return None


def matching_or_inheriting_version(
    state: RegistryState,
    parsers: SchemaParsers,
    subject: QualifiedSubject,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    deleted: bool = False,
) -> SchemaVersion | None:
    """Return the version that a look-up of a schema finds, or None.

    If no version has exactly this schema, the search is repeated with the metadata and the rule set
    that a registration would add.

    Raises:
        RegistryError: 42201 or 42209, the schema is not valid or too large.
    """
    options = {"normalize": normalize, "deleted": deleted}
    found = matching_version(state, parsers, subject, request, **options)
    previous = state.latest(subject)
    if found is not None or previous is None:
        return found
    config = state.config_in_scope(subject)
    inheriting = with_inherited_contract(request, config, previous, None)
    if inheriting == request:
        return None
    return matching_version(state, parsers, subject, inheriting, **options)


def version_with_content(
    state: RegistryState, candidate: Candidate, *, deleted: bool = False
) -> SchemaVersion | None:
    """Return the newest version of the candidate's subject with the same content, or None."""
    same = state.with_content(candidate.subject.context, candidate.guid)
    versions = [
        each
        for each in same
        if each.subject == candidate.subject
        and each.kind == candidate.kind
        and (deleted or not each.deleted)
    ]
    return versions[-1] if versions else None
