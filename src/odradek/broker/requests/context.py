"""Arguments of a handler: the services of the broker and the context of the request.

A handler is ``handle(services, context, request)`` in ``odradek.broker.handlers.<name>``. It
returns an `odradek.results.Result` of the response. A result of None means that the broker sends no
response (Produce with acks=0). The next request of the connection starts when the result is
executed. The broker sends the response when the result is done: a fetch waits for min.bytes, a
produce with acks=all for the high watermark, a JoinGroup for the other members.

Errors of the client, disk or cluster are error codes in the response. `CloseConnection` closes the
connection. Any other exception is a bug of the broker, which logs it and closes the connection.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.broker.requests.reported_reasons import ReportedReasons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from odradek.broker.coordinators import Coordinators
    from odradek.broker.requests.cluster import ClusterRequests
    from odradek.broker.requests.fetch_sessions import FetchSessionCache
    from odradek.broker.requests.quotas import ClientQuotas
    from odradek.broker.transactions.producer_ids import ProducerIdAllocator
    from odradek.config.broker import BrokerConfig
    from odradek.controller.cluster_controller import ClusterController
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
"""Maximum length of the text kept for a client's software name and version. Each of the two may
have 32,767 characters in the request.
"""


class RequestContext:
    """The header of a request, and the session that its connection had when it arrived.

    Handlers and quotas have no other information about the client.
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

    is_long = False
    """The request has more than `ELEMENTS_UNSLICED_MAX` elements."""

    def release_slot(self) -> None:
        """Let another long request start, because this one waits for another broker from now on.

        Does nothing for a request that is not long (`odradek.broker.requests.dispatch`).
        """

    @contextmanager
    def while_connected(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Call `cancel` if the connection is lost during the block, or was lost before it."""
        connection = self._connection
        if connection.closed:
            cancel()
        connection.on_close.append(cancel)
        try:
            yield
        finally:
            connection.on_close.remove(cancel)

    def mute(self, pause_ms: int) -> None:
        """Start no request of the connection for `pause_ms`. Responses are still sent."""
        self._connection.mute(pause_ms / 1000)

    def set_client_software(self, name: str, version: str) -> None:
        """Record the client's software name and version (ApiVersions).

        Both are cut to `CLIENT_SOFTWARE_CHARACTERS_MAX`.
        """
        software = f"{name} {version}"
        self._connection.client_software = software[:CLIENT_SOFTWARE_CHARACTERS_MAX]


@dataclass(slots=True)
class Services:
    """The parts of a running broker, made and owned by `BrokerServer`.

    All of them are used on the event loop only. Blocking work runs in `executor`. Searches for
    timestamps run in `timestamp_lookups`, which has few threads of its own and limits how many run
    at the same time. `cluster` is None in a single broker.
    """

    config: BrokerConfig
    clock: Clock
    timers: Timers
    node_id: int
    executor: Executor
    timestamp_lookups: WorkRunner
    log_manager: LogManager
    image: Callable[[], MetadataImage]
    controller: Controller | ClusterController
    replica_manager: ReplicaManager
    producer_ids: ProducerIdAllocator
    fetch_sessions: FetchSessionCache
    quotas: ClientQuotas
    coordinators: Coordinators
    cluster: ClusterRequests | None = None
    reported_reasons: ReportedReasons = field(default_factory=ReportedReasons)

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator, created on first use."""
        return self.coordinators.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator, created on first use."""
        return self.coordinators.transactions
