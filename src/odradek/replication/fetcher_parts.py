"""The parts that the fetchers of a broker share, and one connection of a fetcher for fetches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch_response import EpochEndOffset, FetchResponse
from odradek.records.batch import LOG_OVERHEAD
from odradek.records.batch_run import UnexpectedAppendOffset
from odradek.results import Result

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from odradek.environment.clock import Clock
    from odradek.environment.timers import Timers
    from odradek.ids import BrokerId
    from odradek.replication.catch_up_pacer import CatchUpPacer
    from odradek.replication.fetch_plan import FetcherSettings
    from odradek.replication.fetch_session_handler import FetchSessionHandler
    from odradek.replication.followed_replica import FollowedReplica
    from odradek.replication.follower_truncations import FollowerTruncations

R = TypeVar("R", bound=Message)

DONE: Result[None] = Result(None)
LENGTH_POSITION = 8
"""Position of the length in the header of a batch."""


class LeaderChannel(Protocol):
    """A connection to the leader, which is opened again when it ends (`BrokerChannel`)."""

    @property
    def address(self) -> tuple[str, int]: ...

    def send(
        self,
        request: Message,
        response: type[R],
        *,
        timeout_ms: float | None = None,
        version: int | None = None,
    ) -> Result[R]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FetcherParts:
    """The parts that all fetchers of a broker share.

    Attributes:
        broker_id: The id of this broker.
        broker_epoch: Returns the epoch of its registration.
        endpoint: Returns the address of a broker's inter-broker listener, None if it is unknown.
        connect: Returns a channel to an address. The last argument is a name for its purpose.
        executor: Runs flushes.
        truncations: The truncations of all fetchers.
        storage_failed: Stops a replica whose log failed.
        pacer: The rate of catch-up.
    """

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    endpoint: Callable[[BrokerId], tuple[str, int] | None]
    connect: Callable[[str, int, str], LeaderChannel]
    clock: Clock
    timers: Timers
    executor: Executor
    loop: asyncio.AbstractEventLoop
    settings: FetcherSettings
    truncations: FollowerTruncations
    storage_failed: Callable[[FollowedReplica], None]
    pacer: CatchUpPacer


def ignore(_: Result[FetchResponse]) -> None:
    """Callback of the responses to a connection that no fetcher uses."""


class FetchConnection:
    """One connection for fetches: its session, and the channel while the leader's address is known.

    Attributes:
        responded: The callback of each response.
        processing: The rest of a response that is applied in time slices.
        retry_ms: The time before which nothing is sent.
        failures: The number of consecutive failures.
    """

    __slots__ = ("channel", "failures", "name", "processing", "responded", "retry_ms", "session")

    def __init__(self, name: str, session: FetchSessionHandler) -> None:
        self.name = name
        self.session = session
        self.channel: LeaderChannel | None = None
        self.responded: Callable[[Result[FetchResponse]], None] = ignore
        self.processing: Result[None] = DONE
        self.retry_ms: float | None = None
        self.failures = 0


class FollowUp(NamedTuple):
    """The work that is left when all partitions of a response were visited.

    An entry is removed when its work has begun, or, for a flush, when it has ended. The replicas of
    the remaining entries are not fetched, so an error must not lose them.
    """

    diverging: deque[tuple[FollowedReplica, EpochEndOffset | UnexpectedAppendOffset]]
    out_of_range: list[FollowedReplica]
    unflushed: dict[FollowedReplica, tuple[int, int]]
    """With the generation and the leader's high watermark."""


def records_bytes(response: FetchResponse) -> int:
    """Return the size of all records of a response."""
    return sum(
        len(data.records or b"") for topic in response.responses for data in topic.partitions
    )


def first_size(records: memoryview) -> int:
    """Return the size of the first batch by its header, which is not checked yet."""
    return LOG_OVERHEAD + int.from_bytes(records[LENGTH_POSITION:LOG_OVERHEAD], "big", signed=True)
