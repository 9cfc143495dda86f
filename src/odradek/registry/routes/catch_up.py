"""Reads that an instance repeats after it has caught up with the writer.

A producer may register a schema at one instance, and a consumer may ask another instance for it a
millisecond later. The second instance then reads the log up to the writer's offset first.
"""

from __future__ import annotations

from odradek.registry.errors import RegistryError, RegistryErrorCode
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import Handler, Result
from odradek.registry.service import Registry

NOT_FOUND_CODES = frozenset(
    {
        RegistryErrorCode.SUBJECT_NOT_FOUND,
        RegistryErrorCode.VERSION_NOT_FOUND,
        RegistryErrorCode.SCHEMA_NOT_FOUND,
    }
)
"""The errors after which a read is repeated."""


def repeated(registry: Registry, read: Handler) -> Handler:
    """Return a handler that repeats a read once, if the instance has caught up with the writer.

    Args:
        registry: The registry.
        read: A handler without effects.
    """

    async def handler(request: RegistryRequest) -> Result:
        try:
            return await read(request)
        except RegistryError as error:
            if error.code not in NOT_FOUND_CODES or request.is_forwarded:
                raise
            if not await registry.catch_up():
                raise
        return await read(request)

    return handler
