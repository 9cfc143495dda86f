"""``/config`` and ``/config/{subject}``: compatibility level, normalization, defaults, aliases."""

from __future__ import annotations

from odradek.registry.decisions.config import delete_config, get_config, update_config
from odradek.registry.json_value import JsonValue
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import ResourceTable
from odradek.registry.service import Registry


class ConfigRoutes:
    """The handlers of ``/config``. An alias is a subject of its own here."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def resources(self) -> ResourceTable:
        """Return the handlers by path and method."""
        handlers = {"GET": self.get, "PUT": self.update, "DELETE": self.delete}
        return {"/config": handlers, "/config/{subject}": handlers}

    async def get(self, request: RegistryRequest) -> JsonValue:
        """Return a config: ``defaultToGlobal``."""
        return get_config(
            self._registry.state,
            request.subject(),
            default_to_global=request.query.flag("defaultToGlobal"),
        )

    async def update(self, request: RegistryRequest) -> JsonValue:
        """Change the settings in the body."""
        subject, body = request.subject(), await request.json()
        return await self._registry.write(
            lambda state: update_config(state, subject, body), await request.forwardable()
        )

    async def delete(self, request: RegistryRequest) -> JsonValue:
        """Delete a config. Return it."""
        subject = request.subject()
        return await self._registry.write(
            lambda state: delete_config(state, subject), await request.forwardable()
        )
