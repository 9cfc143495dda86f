"""Registration of a schema: ``POST /subjects/{subject}/versions``. Pure.

A schema that the subject has already is returned without a write, also from a read-only subject.
A new version gets the id of the same schema in another subject of its context, or the next id.
"""

from __future__ import annotations

from odradek.registry.decisions.comparison import incompatibilities
from odradek.registry.decisions.decision import Decision
from odradek.registry.decisions.equivalence import Equivalence
from odradek.registry.decisions.inheritance import with_inherited_contract, with_inherited_text
from odradek.registry.decisions.matching import matching_version, version_with_content
from odradek.registry.decisions.parsing import Candidate, canonical, text_in_format
from odradek.registry.decisions.permissions import require_registrable, require_valid
from odradek.registry.decisions.requests import NEXT_VERSION, NO_ID, SchemaRequest
from odradek.registry.decisions.retention import kept_ids, tombstones
from odradek.registry.decisions.tools import SchemaTools
from odradek.registry.errors import (
    incompatible_schema,
    invalid_schema,
    invalid_version,
    operation_not_permitted,
)
from odradek.registry.json_value import INTEGER_MAX
from odradek.registry.records import ContextRecord, Record
from odradek.registry.schema_version import SchemaVersion, registered_json
from odradek.registry.state import LATEST_VERSION, Deleted, RegistryState
from odradek.registry.subjects import DEFAULT_CONTEXT, QualifiedSubject


def register(
    state: RegistryState,
    tools: SchemaTools,
    subject: QualifiedSubject,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    force: bool = False,
    format_name: str = "",
) -> Decision:
    """Register a schema.

    Args:
        state: The state.
        tools: The parsers and the rules of the compatibility levels.
        subject: The subject.
        request: The schema.
        normalize: Whether to normalize the text. The config of the subject may also demand it.
        force: Whether to skip the compatibility check.
        format_name: The format of the text in the response, or empty.

    Returns:
        The records, and the response with id, version, guid and the schema. There are no records if
        the subject has the schema already.

    Raises:
        RegistryError: 409, the schema is incompatible. 42201, it is not valid or a reference is
            missing. 42202, the greatest version is 2^31-1. 42205, the mode does not permit it, its
            id belongs to another schema, or the greatest id is 2^31-1. 42208, the name of the
            subject is not valid. 42209, the schema is too large.
    """
    require_valid(subject)
    registration = _Registration(state, tools, subject, request, normalize, force)
    version, records = registration.decide()
    text = None
    if format_name.strip():
        text = text_in_format(state, tools.parsers, version, format_name)
    return Decision(records, registered_json(version, text=text))


class _Registration:
    """One registration: its arguments and the steps to a decision."""

    def __init__(
        self,
        state: RegistryState,
        tools: SchemaTools,
        subject: QualifiedSubject,
        request: SchemaRequest,
        normalize: bool,
        force: bool,
    ) -> None:
        self._state = state
        self._tools = tools
        self._subject = subject
        self._request = request
        self._config = state.config_in_scope(subject)
        self._normalize = normalize or bool(self._config.normalize)
        self._is_import = state.mode_in_scope(subject).is_import
        self._force = force

    def decide(self) -> tuple[SchemaVersion, tuple[Record, ...]]:
        """Return the version and the records to write, none for an existing version."""
        existing = self._existing_version()
        if existing is not None:
            return existing, ()
        require_registrable(self._state, self._subject, self._request)
        candidate = self._candidate()
        schema_id = self._id_of_same_content(candidate)
        if self._request.version == NEXT_VERSION:
            equivalent = self._equivalent_version(candidate, schema_id)
            if equivalent is not None:
                return equivalent, ()
        self._require_compatible(candidate)
        return self._new_version(candidate, schema_id)

    def _existing_version(self) -> SchemaVersion | None:
        """Return the version that the subject has already for the request as it is."""
        request = self._request
        if self._config.has_defaults_or_overrides:
            return None
        existing = matching_version(
            self._state,
            self._tools.parsers,
            self._subject,
            request,
            normalize=self._normalize,
            latest_only=request.version == LATEST_VERSION,
        )
        if existing is None:
            return None
        if request.version in (NEXT_VERSION, LATEST_VERSION):
            return existing if request.id < 0 or request.id == existing.id else None
        named = self._state.version(self._subject, request.version)
        is_same = named is not None and named.id == request.id and named.guid == existing.guid
        return named if is_same else None

    def _candidate(self) -> Candidate:
        request = self._request
        if not self._is_import:
            previous = self._state.latest(self._subject)
            request = with_inherited_text(request, previous)
            number = self._state.next_version(self._subject)
            request = with_inherited_contract(request, self._config, previous, number)
        validates = request.id < 0 and self._config.validate_new_schemas is not False
        return canonical(
            self._state,
            self._tools.parsers,
            self._subject,
            request,
            normalize=self._normalize,
            stored=not validates,
        )

    def _id_of_same_content(self, candidate: Candidate) -> int:
        """Return the id of the request, or else that of the same schema in the context, or -1."""
        if self._request.id >= 0:
            return self._request.id
        own = version_with_content(self._state, candidate)
        if own is not None:
            return own.id
        context = self._subject.context
        same = self._state.with_content(context, candidate.guid)
        return min((each.id for each in same if each.kind == candidate.kind), default=NO_ID)

    def _equivalent_version(self, candidate: Candidate, schema_id: int) -> SchemaVersion | None:
        same = version_with_content(self._state, candidate)
        if same is not None and same.id == schema_id:
            return same
        equivalence = Equivalence(self._state, self._tools.parsers, candidate)
        for version in reversed(self._state.versions(self._subject)):
            may_match = schema_id < 0 or schema_id == version.id
            if may_match and equivalence.matches(version):
                return version
        return None

    def _require_compatible(self, candidate: Candidate) -> None:
        if self._is_import or self._force:
            return
        versions = self._state.versions(self._subject)
        reasons = incompatibilities(self._state, self._tools, self._config, candidate, versions)
        if reasons:
            raise incompatible_schema(str(self._subject), reasons)

    def _new_version(
        self, candidate: Candidate, schema_id: int
    ) -> tuple[SchemaVersion, tuple[Record, ...]]:
        if schema_id < 0:
            schema_id = self._new_id()
        version = candidate.as_version(self._new_number(), schema_id)
        self._require_own_id(version)
        replaced = self._state.version(self._subject, version.version, deleted=True)
        records = (
            *_context_records(self._state, self._subject),
            *self._tombstones(version),
            *(() if replaced is None else kept_ids(self._state, [replaced])),
            version.to_record(),
        )
        return version, records

    def _new_id(self) -> int:
        greatest = self._state.max_id(self._subject.context)
        if greatest >= INTEGER_MAX:
            raise operation_not_permitted(
                f"Context {self._subject.context_prefix} has no id left: its greatest one is"
                f" {greatest}. Register the schema in another context"
            )
        return greatest + 1

    def _new_number(self) -> int:
        number = self._state.next_version(self._subject)
        requested = self._request.version
        if requested <= 0:
            if number > INTEGER_MAX:
                raise invalid_version(number)
            return number
        if requested != number and not self._is_import:
            raise invalid_schema("Version is not one more than previous version")
        return requested

    def _require_own_id(self, version: SchemaVersion) -> None:
        context = QualifiedSubject.of_context(self._subject.context)
        existing = self._state.by_id(version.id, context)
        if existing is not None and not existing.has_content_of(version):
            raise operation_not_permitted(
                f"Overwrite new schema with id {version.id} in context"
                f" {self._subject.context_prefix} is not permitted."
            )

    def _tombstones(self, version: SchemaVersion) -> tuple[Record, ...]:
        """Return the removal of deleted versions with the same id, unless they are referenced."""
        return tuple(
            record
            for each in self._state.versions(self._subject, Deleted.ONLY)
            if each.id == version.id
            and each.version < version.version
            and not self._state.referrers(self._subject, each.version, deleted=True)
            for record in tombstones(self._state, each)
        )


def _context_records(state: RegistryState, subject: QualifiedSubject) -> tuple[Record, ...]:
    """Return the record of a context that has no schemas yet."""
    is_known = subject.context == DEFAULT_CONTEXT or subject.context in state.contexts()
    return () if is_known else (ContextRecord(subject.context),)
