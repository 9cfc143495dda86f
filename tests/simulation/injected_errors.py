"""Unexpected errors in the code of a broker, and a response that names an unknown partition.

A defect in one request or response must not end a loop of the broker. `InjectedErrors` lets the
next call of a function raise `InjectedError`, which the broker may log with its traceback. After
the faults the broker must work as before. A broker that stops with the error is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from odradek.controller import cluster_controller
from odradek.ids import Uuid
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse
from odradek.protocol.messages.fetch_response import PartitionData as FetchedPartition
from odradek.replication.replica_fetcher import ReplicaFetcher
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.executors import SimulatedPool
from tests.simulation.planting import Patches

UNKNOWN_TOPIC_ID = Uuid(b"unknown topic id")


class InjectedError(Exception):
    """An error that stands for any unexpected one."""


class InjectedErrors:
    """The pending errors of one simulation. Each ends with its first call.

    Attributes:
        fails_fetch: The application of the next response to a follower fails.
        fetch_is_malformed: The next response to a follower names a partition that it did not ask.
        fails_call: The next call of a thread of the process with this loop fails.
        fails_open: The next session with the metadata store cannot be opened.
        fails_take_over: The next controller that is elected cannot read the metadata.
    """

    def __init__(self, patches: Patches, count: Callable[[str], None]) -> None:
        self.fails_fetch = False
        self.fetch_is_malformed = False
        self.fails_call: SimulatedLoop | None = None
        self.fails_open = False
        self.fails_take_over = False
        self._count = count
        self._patch_threads(patches)
        self._patch_sessions(patches)
        apply = vars(ReplicaFetcher)["_apply"]

        def applied(fetcher: ReplicaFetcher, connection: Any, response: FetchResponse) -> Any:
            if self.fails_fetch:
                self.fails_fetch = False
                self._count("injected errors")
                return _failing()
            if self.fetch_is_malformed and response.responses:
                self.fetch_is_malformed = False
                self._count("malformed responses")
                unknown = FetchableTopicResponse(
                    topic_id=UNKNOWN_TOPIC_ID, partitions=[FetchedPartition(0)]
                )
                response.responses.append(unknown)
            return apply(fetcher, connection, response)

        patches.set(ReplicaFetcher, "_apply", applied)

    def _patch_threads(self, patches: Patches) -> None:
        submit = vars(SimulatedPool)["submit"]

        def submitted(pool: SimulatedPool, function: Callable[..., Any], *arguments: Any) -> Any:
            def call() -> Any:
                if self.fails_call is pool.loop:
                    self.fails_call = None
                    self._count("injected errors of threads")
                    raise InjectedError(f"a call of {pool.name} fails")
                return function(*arguments)

            return submit(pool, call)

        patches.set(SimulatedPool, "submit", submitted)

    def _patch_sessions(self, patches: Patches) -> None:
        open_session = vars(MemoryStore)["open"]
        read_metadata = vars(cluster_controller)["read_metadata"]

        async def opened(store: MemoryStore) -> None:
            if self.fails_open:
                self.fails_open = False
                self._count("injected errors of sessions")
                raise InjectedError("a session cannot be opened")
            await open_session(store)

        async def read(*arguments: Any) -> Any:
            if self.fails_take_over:
                self.fails_take_over = False
                self._count("injected errors of take-overs")
                raise InjectedError("a controller cannot read the metadata")
            return await read_metadata(*arguments)

        patches.set(MemoryStore, "open", opened)
        patches.set(cluster_controller, "read_metadata", read)

    def clear(self) -> None:
        """End the pending errors."""
        self.fails_fetch = self.fetch_is_malformed = False
        self.fails_open = self.fails_take_over = False
        self.fails_call = None


def _failing() -> Generator[None, None, None]:
    raise InjectedError("a response cannot be applied")
    yield
