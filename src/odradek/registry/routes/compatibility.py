"""``/compatibility/subjects/{subject}/versions``: whether a schema could be registered."""

from __future__ import annotations

from odradek.registry.decisions.lookup import check_compatibility
from odradek.registry.decisions.requests import SchemaRequest
from odradek.registry.json_value import JsonValue
from odradek.registry.routes.catch_up import repeated
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import ResourceTable
from odradek.registry.service import Registry

_VERSIONS = "/compatibility/subjects/{subject}/versions"


class CompatibilityRoutes:
    """The handlers of ``/compatibility``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def resources(self) -> ResourceTable:
        """Return the handlers by path and method."""
        return {
            _VERSIONS: {"POST": self.with_subject},
            f"{_VERSIONS}/{{version}}": {"POST": repeated(self._registry, self.with_version)},
        }

    async def with_subject(self, request: RegistryRequest) -> JsonValue:
        """Compare a schema as a registration would: ``verbose``."""
        return await self._check(request, None)

    async def with_version(self, request: RegistryRequest) -> JsonValue:
        """Compare a schema with one version: ``verbose``."""
        return await self._check(request, request.version())

    async def _check(self, request: RegistryRequest, version: int | None) -> JsonValue:
        query, named = request.query, request.subject()
        schema = SchemaRequest.from_json(await request.json())
        return await self._registry.read_off_loop(
            lambda state: check_compatibility(
                state,
                self._registry.tools,
                state.resolve_alias(named),
                schema,
                version,
                verbose=query.flag("verbose"),
            )
        )
