"""``/schemas``: schemas by id, by guid and by the prefix of their subject."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from odradek.registry.errors import schema_not_found
from odradek.registry.json_value import JsonValue
from odradek.registry.routes.catch_up import repeated
from odradek.registry.routes.encoded_schemas import EncodedSchemas
from odradek.registry.routes.formats import formatted_text
from odradek.registry.routes.parameters import SCHEMAS_LIMIT, Page, QueryParameters
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import ResourceTable
from odradek.registry.routes.responses import EncodedJson, JsonArray
from odradek.registry.schema_version import SchemaVersion, schema_json, schema_string_json
from odradek.registry.schemas.parsed import SchemaKind
from odradek.registry.service import Registry
from odradek.registry.state import Deleted
from odradek.registry.subjects import QualifiedSubject

KINDS: Sequence[JsonValue] = (
    SchemaKind.JSON.value,
    SchemaKind.PROTOBUF.value,
    SchemaKind.AVRO.value,
)
"""The kinds in Confluent's order."""

_ASSOCIATION_FILTERS = ("resourceType", "associationType", "lifecycle")
"""Parameters of ``GET /schemas`` that select schemas by the associations of their subjects."""


class SchemaRoutes:
    """The handlers of ``/schemas``.

    Args:
        registry: The registry.
        encoded: The cache of responses by id.
    """

    def __init__(self, registry: Registry, encoded: EncodedSchemas) -> None:
        self._registry = registry
        self._encoded = encoded

    def resources(self) -> ResourceTable:
        """Return the handlers by path and method."""
        read = partial(repeated, self._registry)
        return {
            "/schemas/ids/{id}": {"GET": read(self.by_id)},
            "/schemas/ids/{id}/schema": {"GET": read(self.text_by_id)},
            "/schemas/ids/{id}/subjects": {"GET": read(self.subjects_of_id)},
            "/schemas/ids/{id}/versions": {"GET": read(self.versions_of_id)},
            "/schemas/guids/{guid}": {"GET": read(self.by_guid)},
            "/schemas/guids/{guid}/ids": {"GET": self.ids_of_guid},
            "/schemas/types": {"GET": self.kinds},
            "/schemas": {"GET": self.list},
        }

    async def by_id(self, request: RegistryRequest) -> JsonValue | EncodedJson:
        """Return a schema by its id: ``subject``, ``format``, ``referenceFormat``, ``fetchMaxId``.

        The response names a subject and a version if the request names a subject.
        """
        query = request.query
        version = self._version(request.integer("id"), query)
        with_subject = query.optional_text("subject") is not None
        text = await formatted_text(self._registry, version, query)
        with_max_id = query.flag("fetchMaxId")
        is_qualified = query.text("referenceFormat") == "qualified"
        if text is None and not with_max_id and not is_qualified:
            return self._encoded.encoded(version, with_subject=with_subject)
        context = version.subject.context
        return schema_string_json(
            version,
            text=text,
            with_subject=with_subject,
            max_id=self._registry.state.max_id(context) if with_max_id else None,
            qualified_references=is_qualified,
        )

    async def text_by_id(self, request: RegistryRequest) -> EncodedJson:
        """Return the text of a schema, not as a JSON string: ``subject``, ``format``."""
        version = self._version(request.integer("id"), request.query)
        text = await formatted_text(self._registry, version, request.query)
        return EncodedJson((version.text if text is None else text).encode())

    async def subjects_of_id(self, request: RegistryRequest) -> JsonValue:
        """Return the subjects with an id: ``subject``, ``deleted``, ``offset``, ``limit``."""
        versions = self._versions(request)
        subjects = dict.fromkeys(str(version.subject) for version in versions)
        return Page.of(request.query).of_elements(subjects)

    async def versions_of_id(self, request: RegistryRequest) -> JsonValue:
        """Return the versions with an id: ``subject``, ``deleted``, ``offset``, ``limit``."""
        return [
            {"subject": str(version.subject), "version": version.version}
            for version in Page.of(request.query).of_elements(self._versions(request))
        ]

    async def by_guid(self, request: RegistryRequest) -> JsonValue:
        """Return a schema by its guid: ``format``."""
        guid = request.text("guid")
        version = self._registry.state.by_guid(guid)
        if version is None:
            raise schema_not_found(guid)
        text = await formatted_text(self._registry, version, request.query)
        return schema_string_json(version, text=text)

    async def ids_of_guid(self, request: RegistryRequest) -> JsonValue:
        """Return the contexts and ids of a guid, or none for an unknown guid."""
        ids = self._registry.state.ids_of_guid(request.text("guid"))
        return [{"context": context, "id": schema_id} for context, schema_id in ids]

    async def kinds(self, _: RegistryRequest) -> JsonValue:
        """Return the kinds of schemas."""
        return KINDS

    async def list(self, request: RegistryRequest) -> JsonArray:
        """Return the versions of all subjects with a prefix.

        Parameters: ``subjectPrefix``, ``aliases``, ``deleted``, ``latestOnly``, ``ruleType``,
        ``offset``, ``limit``, and filters by association. No subject has an association, so these
        return all schemas for ``lifecycle=NONE`` and otherwise none.
        """
        query = request.query
        page = Page.of(query, SCHEMAS_LIMIT)
        prefix = query.text("subjectPrefix")
        with_aliases = query.flag("aliases")
        versions = self._registry.state.schemas(
            prefix,
            Deleted.INCLUDE if query.flag("deleted") else Deleted.EXCLUDE,
            latest_only=query.flag("latestOnly"),
            with_aliases=with_aliases,
        )
        selected = (version for version in versions if _is_selected(version, query))
        aliases = self._registry.state.aliases(prefix) if with_aliases else {}
        return JsonArray(
            _listed(version, aliases.get(version.subject)) for version in page.of_elements(selected)
        )

    def _version(self, schema_id: int, query: QueryParameters) -> SchemaVersion:
        version = self._registry.state.by_id(schema_id, self._subject(query))
        if version is None:
            raise schema_not_found(schema_id)
        return version

    def _versions(self, request: RegistryRequest) -> Sequence[SchemaVersion]:
        query = request.query
        versions = self._registry.state.versions_of_id(
            request.integer("id"),
            self._subject(query),
            Deleted.INCLUDE if query.flag("deleted") else Deleted.EXCLUDE,
        )
        if versions is None:
            raise schema_not_found()
        return versions

    def _subject(self, query: QueryParameters) -> QualifiedSubject | None:
        subject = query.text("subject")
        if not subject:
            return None
        return self._registry.state.resolve_alias(QualifiedSubject.parse(subject))


def _is_selected(version: SchemaVersion, query: QueryParameters) -> bool:
    rule_type = query.text("ruleType")
    if rule_type and (version.rule_set is None or not version.rule_set.has_type(rule_type)):
        return False
    if any(query.optional_text(name) is not None for name in _ASSOCIATION_FILTERS):
        return "NONE" in query.texts("lifecycle")
    return True


def _listed(version: SchemaVersion, aliases: Sequence[str] | None) -> JsonValue:
    json = schema_json(version)
    if aliases:
        json["aliases"] = aliases
    return json
