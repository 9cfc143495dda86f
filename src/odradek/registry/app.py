"""The registry's REST interface as a Starlette application: all endpoints, and the form of errors.

Paths, parameters, media types, error codes and messages equal those of Confluent's schema registry.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from odradek.registry.errors import RegistryError, RegistryErrorCode
from odradek.registry.forwarding import response_headers
from odradek.registry.routes.compatibility import CompatibilityRoutes
from odradek.registry.routes.config import ConfigRoutes
from odradek.registry.routes.content_types import ContentNegotiation
from odradek.registry.routes.contexts import ContextRoutes
from odradek.registry.routes.encoded_schemas import EncodedSchemas
from odradek.registry.routes.metadata import MetadataRoutes
from odradek.registry.routes.mode import ModeRoutes
from odradek.registry.routes.paths import PathRewriting
from odradek.registry.routes.resources import Resource, ResourceTable
from odradek.registry.routes.responses import error_response
from odradek.registry.routes.schemas import SchemaRoutes
from odradek.registry.routes.subjects import SubjectRoutes
from odradek.registry.routes.unsupported import UnsupportedRoutes
from odradek.registry.routes.versions import VersionRoutes
from odradek.registry.service import Registry


def create_app(registry: Registry) -> Starlette:
    """Return the application for one instance of the registry."""
    negotiation = ContentNegotiation()

    def forwarded_headers() -> dict[str, str]:
        return response_headers(registry.identity.registry, registry.epoch, registry.state.offset)

    routes = [
        Route(path, Resource(handlers, negotiation, forwarded_headers))
        for path, handlers in resource_table(registry).items()
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(PathRewriting)],
        exception_handlers={HTTPException: _http_error, Exception: _internal_error},
    )
    # `PathRewriting` removes a slash at the end of a path. Clients do not follow redirects.
    app.router.redirect_slashes = False
    return app


def resource_table(registry: Registry) -> ResourceTable:
    """Return the handlers of all endpoints by path and method.

    The router compares the paths in this order. Schemas by id come first, because deserializers
    request them most.
    """
    return {
        **SchemaRoutes(registry, EncodedSchemas()).resources(),
        **SubjectRoutes(registry).resources(),
        **VersionRoutes(registry).resources(),
        **CompatibilityRoutes(registry).resources(),
        **ConfigRoutes(registry).resources(),
        **ModeRoutes(registry).resources(),
        **ContextRoutes(registry).resources(),
        **MetadataRoutes(registry).resources(),
        **UnsupportedRoutes().resources(),
    }


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    message = f"HTTP {error.status_code} {phrase}"
    return error_response(RegistryError(error.status_code, message))


async def _internal_error(_: Request, error: Exception) -> Response:
    """Return the response to a request that failed by a defect. The server logs the traceback."""
    return error_response(
        RegistryError(RegistryErrorCode.INTERNAL_ERROR, f"Internal error ({type(error).__name__})")
    )
