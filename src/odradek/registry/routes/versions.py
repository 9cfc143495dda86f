"""``/subjects/{subject}/versions``: registration, and the versions of one subject."""

from __future__ import annotations

from functools import partial

from odradek.registry.decisions.delete import delete_version
from odradek.registry.decisions.lookup import find_version, get_version
from odradek.registry.decisions.register import register
from odradek.registry.decisions.requests import SchemaRequest
from odradek.registry.errors import subject_not_found
from odradek.registry.json_value import JsonValue
from odradek.registry.routes.catch_up import repeated
from odradek.registry.routes.formats import formatted_read, formatted_text
from odradek.registry.routes.parameters import SCHEMAS_LIMIT, Page, QueryParameters
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import ResourceTable
from odradek.registry.routes.responses import EncodedJson
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.service import Registry
from odradek.registry.state import Deleted

_VERSIONS = "/subjects/{subject}/versions"


class VersionRoutes:
    """The handlers of ``/subjects/{subject}/versions``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def resources(self) -> ResourceTable:
        """Return the handlers by path and method."""
        read = partial(repeated, self._registry)
        return {
            _VERSIONS: {"GET": read(self.list), "POST": self.register},
            f"{_VERSIONS}/{{version}}": {"GET": read(self.one), "DELETE": self.delete},
            f"{_VERSIONS}/{{version}}/schema": {"GET": read(self.text)},
            f"{_VERSIONS}/{{version}}/referencedby": {"GET": read(self.referrers)},
        }

    async def list(self, request: RegistryRequest) -> JsonValue:
        """Return the numbers of a subject's versions.

        Parameters: ``deleted``, ``deletedOnly``, ``deletedAsNegative``, ``offset``, ``limit``.
        """
        query, state = request.query, self._registry.state
        subject = state.resolve_alias(request.subject())
        with_deleted = query.flag("deleted") or query.flag("deletedOnly")
        if not state.has_subject(subject, deleted=with_deleted):
            raise subject_not_found(str(subject))
        negative = query.flag("deletedAsNegative")
        numbers = (
            -each.version if negative and each.deleted else each.version
            for each in state.versions(subject, _selection(query))
        )
        return Page.of(query).of_elements(numbers)

    async def register(self, request: RegistryRequest) -> JsonValue:
        """Register a schema: ``normalize``, ``format``, ``force``."""
        query, named = request.query, request.subject()
        schema = SchemaRequest.from_json(await request.json())
        return await self._registry.write(
            lambda state: register(
                state,
                self._registry.tools,
                state.resolve_alias(named),
                schema,
                normalize=query.flag("normalize"),
                force=query.flag("force"),
                format_name=query.text("format"),
            ),
            await request.forwardable(may_skip_writer=True),
        )

    async def one(self, request: RegistryRequest) -> JsonValue:
        """Return a version: ``format``, ``referenceFormat``, ``deleted``."""
        query, parsers = request.query, self._registry.tools.parsers
        named, number = request.subject(), request.version()
        return await formatted_read(
            self._registry,
            query,
            lambda state: get_version(
                state,
                parsers,
                state.resolve_alias(named),
                number,
                deleted=query.flag("deleted"),
                format_name=query.text("format"),
                qualified_references=query.text("referenceFormat") == "qualified",
            ),
        )

    async def text(self, request: RegistryRequest) -> EncodedJson:
        """Return the text of a version, not as a JSON string: ``format``, ``deleted``."""
        query = request.query
        version = self._version(request, deleted=query.flag("deleted"))
        text = await formatted_text(self._registry, version, query)
        return EncodedJson((version.text if text is None else text).encode())

    async def referrers(self, request: RegistryRequest) -> JsonValue:
        """Return the ids of the schemas that reference a version.

        Parameters: ``deleted``, ``offset``, ``limit``.
        """
        query = request.query
        version = self._version(request, deleted=True)
        referrers = self._registry.state.referrers(
            version.subject, version.version, deleted=query.flag("deleted")
        )
        ids = sorted({(each.subject.context, each.id) for each in referrers})
        return [schema_id for _, schema_id in Page.of(query, SCHEMAS_LIMIT).of_elements(ids)]

    async def delete(self, request: RegistryRequest) -> JsonValue:
        """Delete a version: ``permanent``."""
        named, number = request.subject(), request.version()
        permanent = request.query.flag("permanent")
        return await self._registry.write(
            lambda state: delete_version(
                state, state.resolve_alias(named), number, permanent=permanent
            ),
            await request.forwardable(),
        )

    def _version(self, request: RegistryRequest, *, deleted: bool) -> SchemaVersion:
        """Return the version in the path.

        Raises:
            RegistryError: 40401 or 40402, it does not exist. 42202, it is not a version.
        """
        state, number = self._registry.state, request.version()
        subject = state.resolve_alias(request.subject())
        return find_version(state, subject, number, deleted=deleted)


def _selection(query: QueryParameters) -> Deleted:
    if query.flag("deletedAsNegative"):
        return Deleted.INCLUDE
    if query.flag("deletedOnly"):
        return Deleted.ONLY
    return Deleted.INCLUDE if query.flag("deleted") else Deleted.EXCLUDE
