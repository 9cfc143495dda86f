"""``/contexts``: the contexts, and the deletion of an empty one."""

from __future__ import annotations

from odradek.registry.decisions.contexts import delete_context
from odradek.registry.json_value import JsonValue
from odradek.registry.routes.parameters import Page
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import ResourceTable
from odradek.registry.routes.responses import NoContent
from odradek.registry.service import Registry


class ContextRoutes:
    """The handlers of ``/contexts``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def resources(self) -> ResourceTable:
        """Return the handlers by path and method."""
        return {
            "/contexts": {"GET": self.list},
            "/contexts/{context}": {"DELETE": self.delete},
        }

    async def list(self, request: RegistryRequest) -> JsonValue:
        """Return the names of the contexts: ``contextPrefix``, ``offset``, ``limit``."""
        prefix = request.query.text("contextPrefix")
        contexts = self._registry.state.contexts()
        selected = (context for context in contexts if context.startswith(prefix))
        return Page.of(request.query).of_elements(selected)

    async def delete(self, request: RegistryRequest) -> NoContent:
        """Delete a context without subjects."""
        context = request.text("context")
        await self._registry.write(
            lambda state: delete_context(state, context), await request.forwardable()
        )
        return NoContent()
