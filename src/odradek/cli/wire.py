"""Client for the few admin requests that librdkafka does not offer.

It has one socket and sends one request at a time. It encodes with `odradek.protocol`, as the broker
does. All other requests of the command line go through librdkafka.
"""

from __future__ import annotations

from typing import Self, TypeVar

from odradek.cli.client import (
    REQUEST_TIMEOUT_S,
    server_address,
    unreachable,
    wait_until_listening,
)
from odradek.cli.failures import Subject
from odradek.cli.output import CommandError
from odradek.client.blocking import BlockingClient
from odradek.errors import ErrorCode
from odradek.protocol.codec import Message
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse

CLIENT_ID = "odradek-cli"
TRANSACTION_COORDINATOR = 1

R = TypeVar("R", bound=Message)


class WireClient:
    """A connection to one broker. Each failure raises `CommandError`."""

    def __init__(self, bootstrap_server: str) -> None:
        self._server = bootstrap_server
        self._client = _connected(bootstrap_server)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, request: Message, response: type[R], version: int) -> R:
        """Return the response to `request`, an instance of `response`."""
        try:
            return self._client.call(request, response, version)
        except OSError as error:
            name = type(request).__name__.removesuffix("Request")
            raise CommandError(
                f"The broker at {self._server} did not respond to {name}: {error}. Check its log."
            ) from None

    def coordinator_of(self, transactional_id: str) -> WireClient:
        """Return a connection to the broker that coordinates a transactional id."""
        request = FindCoordinatorRequest(
            coordinator_keys=[transactional_id], key_type=TRANSACTION_COORDINATOR
        )
        found = self.call(request, FindCoordinatorResponse, 4).coordinators[0]
        check(found.error_code, Subject("transactional id", transactional_id))
        return WireClient(f"{found.host}:{found.port}")


def _connected(bootstrap_server: str) -> BlockingClient:
    """Return a connection to the first server that accepts one."""
    wait_until_listening(bootstrap_server)
    refusal: Exception = ValueError("not HOST:PORT")
    for address in map(server_address, bootstrap_server.split(",")):
        if address is None:
            continue
        try:
            return BlockingClient.connect(address, REQUEST_TIMEOUT_S, CLIENT_ID)
        except OSError as error:
            refusal = error
    raise unreachable(bootstrap_server, refusal)


def check(code: int, subject: Subject, message: str | None = None) -> None:
    """Raise CommandError with Kafka's name of the error, unless `code` is 0."""
    if code:
        name = ErrorCode(code).name
        raise subject.failed(code, f"{name} ({message})" if message else name)
