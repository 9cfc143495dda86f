"""Endpoints of Confluent's registry that are not implemented. They respond with 404.

- ``/associations``: subjects of a topic. Clients fall back to the name of the topic after a 404.
- ``/subjects/{subject}/versions/{version}/tags``: changes of tags inside a schema's text.
- ``/dek-registry``: keys for the encryption of fields.

Their 404 has Confluent's JSON form. A client that gets another body, such as
``@confluentinc/schemaregistry``, reports an error instead (Karapace issue 1273).
"""

from __future__ import annotations

from odradek.registry.json_value import JsonValue
from odradek.registry.routes.parameters import not_found
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import ResourceTable

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PATHS = (
    "/associations",
    "/associations:batchGet",
    "/associations:batchMutate",
    "/associations/{path:path}",
    "/subjects/{subject}/versions/{version}/tags",
    "/dek-registry/{path:path}",
)


class UnsupportedRoutes:
    """The handler of all of these endpoints."""

    def resources(self) -> ResourceTable:
        """Return the handlers by path and method."""
        return {path: dict.fromkeys(_METHODS, self.not_found) for path in _PATHS}

    async def not_found(self, _: RegistryRequest) -> JsonValue:
        """Respond with 404.

        Raises:
            RegistryError: Always.
        """
        raise not_found()
