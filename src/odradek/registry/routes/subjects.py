"""``/subjects``: the subjects, and look-ups under one subject."""

from __future__ import annotations

from functools import partial

from odradek.registry.decisions.delete import delete_subject
from odradek.registry.decisions.lookup import latest_with_metadata, look_up
from odradek.registry.decisions.requests import SchemaRequest
from odradek.registry.json_value import JsonValue
from odradek.registry.routes.catch_up import repeated
from odradek.registry.routes.formats import formatted_read
from odradek.registry.routes.parameters import Page, QueryParameters
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import ResourceTable
from odradek.registry.service import Registry
from odradek.registry.state import Deleted
from odradek.registry.subjects import CONTEXT_WILDCARD


class SubjectRoutes:
    """The handlers of ``/subjects``. `VersionRoutes` has the handlers of versions."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def resources(self) -> ResourceTable:
        """Return the handlers by path and method."""
        read = partial(repeated, self._registry)
        return {
            "/subjects": {"GET": self.list},
            "/subjects/{subject}": {"POST": read(self.look_up), "DELETE": self.delete},
            "/subjects/{subject}/metadata": {"GET": read(self.latest_with_metadata)},
        }

    async def list(self, request: RegistryRequest) -> JsonValue:
        """Return the names of subjects.

        Parameters: ``subjectPrefix``, ``deleted``, ``deletedOnly``, ``offset``, ``limit``.
        """
        query = request.query
        prefix = query.text("subjectPrefix", CONTEXT_WILDCARD)
        subjects = self._registry.state.subjects(prefix, _selection(query))
        return Page.of(query).of_elements(subjects)

    async def look_up(self, request: RegistryRequest) -> JsonValue:
        """Return the version that has a schema: ``normalize``, ``format``, ``deleted``."""
        query, parsers = request.query, self._registry.tools.parsers
        named = request.subject()
        schema = SchemaRequest.from_json(await request.json())
        return await self._registry.read_off_loop(
            lambda state: look_up(
                state,
                parsers,
                state.resolve_alias(named),
                schema,
                normalize=query.flag("normalize"),
                deleted=query.flag("deleted"),
                format_name=query.text("format"),
            )
        )

    async def latest_with_metadata(self, request: RegistryRequest) -> JsonValue:
        """Return the newest version with properties in its metadata.

        Parameters: ``key`` and ``value``, each once for a property, ``deleted``, ``format``.
        """
        query, parsers = request.query, self._registry.tools.parsers
        named = request.subject()
        return await formatted_read(
            self._registry,
            query,
            lambda state: latest_with_metadata(
                state,
                parsers,
                state.resolve_alias(named),
                dict(zip(query.texts("key"), query.texts("value"), strict=False)),
                deleted=query.flag("deleted"),
                format_name=query.text("format"),
            ),
        )

    async def delete(self, request: RegistryRequest) -> JsonValue:
        """Delete a subject: ``permanent``."""
        named = request.subject()
        permanent = request.query.flag("permanent")
        return await self._registry.write(
            lambda state: delete_subject(state, state.resolve_alias(named), permanent=permanent),
            await request.forwardable(),
        )


def _selection(query: QueryParameters) -> Deleted:
    if query.flag("deletedOnly"):
        return Deleted.ONLY
    return Deleted.INCLUDE if query.flag("deleted") else Deleted.EXCLUDE
