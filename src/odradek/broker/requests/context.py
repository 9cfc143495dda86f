"""What a handler is given: the broker's services, and what is known of the request's sender.

A handler is ``handle(services, context, request)`` in ``odradek.broker.handlers.<name>``. It
returns

* a response message: it leaves at once (the hot path, a straight function);
* None: no response leaves (Produce with acks=0);
* an ``asyncio.Future`` of a response: the request is executed, the answer comes later, and the next
  request of the connection may start now (waiting for the high watermark, min.bytes, a rebalance);
* a coroutine of any of these: the next request of the connection starts when it has ended.

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


@dataclass(slots=True)
class RequestContext:
    """One request: its header, and the connection on which it came."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    connection: Connection


@dataclass(slots=True)
class Services:
    """The parts of a running broker, owned by `BrokerServer`, which fills them in while it starts.

    Everything here is used on the event loop only; what blocks goes to `executor`. Work on the
    records of a client's batch goes to `opened_batches`, and searches for timestamps go to
    `timestamp_lookups`: each has a bound and few threads of its own.
    """

    config: BrokerConfig
    clock: Clock
    timers: Timers
    node_id: int
    executor: Executor
    opened_batches: WorkRunner
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
