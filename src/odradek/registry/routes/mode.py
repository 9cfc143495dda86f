"""``/mode`` and ``/mode/{subject}``: whether schemas can be written, and whether ids are given."""

from __future__ import annotations

from odradek.registry.decisions.mode import delete_mode, get_mode, update_mode
from odradek.registry.json_value import JsonValue
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import ResourceTable
from odradek.registry.service import Registry


class ModeRoutes:
    """The handlers of ``/mode``. An alias is a subject of its own here."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def resources(self) -> ResourceTable:
        """Return the handlers by path and method."""
        handlers = {"GET": self.get, "PUT": self.update, "DELETE": self.delete}
        return {"/mode": handlers, "/mode/{subject}": handlers}

    async def get(self, request: RegistryRequest) -> JsonValue:
        """Return a mode: ``defaultToGlobal``."""
        return get_mode(
            self._registry.state,
            request.subject(),
            default_to_global=request.query.flag("defaultToGlobal"),
        )

    async def update(self, request: RegistryRequest) -> JsonValue:
        """Set a mode: ``force``."""
        subject, body = request.subject(), await request.json()
        force = request.query.flag("force")
        return await self._registry.write(
            lambda state: update_mode(state, subject, body, force=force),
            await request.forwardable(),
        )

    async def delete(self, request: RegistryRequest) -> JsonValue:
        """Delete a mode: ``recursive``. Return it."""
        subject = request.subject()
        recursive = request.query.flag("recursive")
        return await self._registry.write(
            lambda state: delete_mode(state, subject, recursive=recursive),
            await request.forwardable(),
        )
