"""Requests of a simulated client to the coordinator of a group or of a transactional id."""

from __future__ import annotations

from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from tests.simulation.client import Client, Retry

GROUP, TRANSACTION = 0, 1
"""Types of a coordinator's key."""
MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors after which the client asks again which broker is the coordinator."""


class CoordinatorLink:
    """The coordinator of one key, which is found by FindCoordinator and remembered.

    Args:
        client: The client that sends the requests.
        kind: `GROUP` or `TRANSACTION`.
        key: The group or the transactional id.
    """

    def __init__(self, client: Client, kind: int, key: str) -> None:
        self._client = client
        self._kind = kind
        self._key = key
        self._address: tuple[str, int] | None = None

    async def call(self, request: Any, response: type[Any], version: int) -> tuple[Any, int]:
        """Send a request. Return the response, and the step in which the broker sent it.

        Raises:
            Retry: There is no coordinator, the connection failed, or the response is late. Also if
                the response as a whole has an error of `MOVED`.
        """
        if self._address is None:
            self._address = await self._find()
        try:
            found, step = await self._client.timed_call(self._address, request, response, version)
        except Retry:
            self._address = None
            raise
        code = getattr(found, "error_code", 0)
        if code in MOVED:
            self.check(code)
        return found, step

    def check(self, code: int) -> None:
        """Raise Retry for an error of `MOVED`, which may also be in an element of a response."""
        if code in MOVED:
            self._address = None
            self._client.world.count(f"coordinator error {ErrorCode(code).name}")
            raise Retry(ErrorCode(code).name)

    async def _find(self) -> tuple[str, int]:
        client = self._client
        request = FindCoordinatorRequest("", self._kind, [self._key])
        address = client.rng.choice(client.world.bootstrap)
        found = await client.call(address, request, FindCoordinatorResponse, 4)
        (coordinator,) = found.coordinators
        if coordinator.error_code:
            raise Retry(ErrorCode(coordinator.error_code).name)
        return coordinator.host, coordinator.port
