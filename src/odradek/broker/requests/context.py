"""What a handler is given: the broker's services, and what is known of the request's sender.

A handler is ``handle(services, context, request)`` in ``odradek.broker.handlers.<name>``. It
returns a `odradek.results.Result` of the response. None in place of a response means that no
response leaves (Produce with acks=0). The next request of the connection starts when the result is
executed. The response leaves when it is done: a fetch waits for min.bytes, a produce with acks=all
for the high watermark, a JoinGroup for the other members.

Errors of the client, disk or cluster are codes in the response. `CloseConnection` closes the
connection; any other exception is a bug of the broker: it is logged and closes the connection too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from odradek.broker.coordinators import Coordinators
    from odradek.broker.requests.fetch_sessions import FetchSessionCache
    from odradek.broker.requests.quotas import ClientQuotas
    from odradek.broker.transactions.producer_ids import ProducerIdAllocator
    from odradek.config.broker import BrokerConfig
    from odradek.controller.controller import Controller
    from odradek.coordinator.group.group_coordinator import GroupCoordinator
    from odradek.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from odradek.environment.clock import Clock
    from odradek.environment.timers import Timers
    from odradek.log.directories.log_manager import LogManager
    from odradek.metadata.image import MetadataImage
    from odradek.net.connection import Connection
    from odradek.offloading import WorkRunner
    from odradek.replication.replica_manager import ReplicaManager


CLIENT_SOFTWARE_CHARACTERS_MAX = 128
"""So much of a client's software name and version is kept. Each may have 32,767 characters."""


class RequestContext:
    """One request: its header, and the session of its connection when it arrived.

    Handlers and quotas know of the client what is here, and nothing else.
    """

    __slots__ = (
        "_connection",
        "api_key",
        "api_version",
        "client_id",
        "correlation_id",
        "session",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        connection: Connection,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self._connection = connection
        self.session = connection.session

    def mute(self, pause_ms: int) -> None:
        """Start no request of the client for so long. Responses leave in the meantime."""
        self._connection.mute(pause_ms / 1000)

    def set_client_software(self, name: str, version: str) -> None:
        """Note the name and the version of the client's software (ApiVersions), if not too long."""
        software = f"{name} {version}"
        self._connection.client_software = software[:CLIENT_SOFTWARE_CHARACTERS_MAX]


@dataclass(slots=True)
class Services:
    """The parts of a running broker, owned by `BrokerServer`, which fills them in while it starts.

    Everything here is used on the event loop only; what blocks goes to `executor`. Searches for
    timestamps go to `timestamp_lookups`, which has a bound and few threads of its own.
    """

    config: BrokerConfig
    clock: Clock
    timers: Timers
    node_id: int
    executor: Executor
    timestamp_lookups: WorkRunner
    log_manager: LogManager
    image: Callable[[], MetadataImage]
    controller: Controller
    replica_manager: ReplicaManager
    producer_ids: ProducerIdAllocator
    fetch_sessions: FetchSessionCache
    quotas: ClientQuotas
    coordinators: Coordinators

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator, made when it is first asked for."""
        return self.coordinators.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator, made when it is first asked for."""
        return self.coordinators.transactions
