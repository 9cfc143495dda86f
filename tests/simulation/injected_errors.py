"""Unexpected errors in the code of a broker, and a response that names an unknown partition.

A defect in one request or response must not end a loop of the broker. `InjectedErrors` lets the
next call of a function raise `InjectedError`, which the broker may log with its traceback. After
the faults the broker must work as before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from odradek.ids import Uuid
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse
from odradek.protocol.messages.fetch_response import PartitionData as FetchedPartition
from odradek.replication.replica_fetcher import ReplicaFetcher
from tests.simulation.planting import Patches

UNKNOWN_TOPIC_ID = Uuid(b"unknown topic id")


class InjectedError(Exception):
    """An error that stands for any unexpected one."""


class InjectedErrors:
    """The pending errors of one simulation. Each ends with its first call.

    Attributes:
        fails_fetch: The application of the next response to a follower fails.
        fetch_is_malformed: The next response to a follower names a partition that it did not ask.
    """

    def __init__(self, patches: Patches, count: Callable[[str], None]) -> None:
        self.fails_fetch = False
        self.fetch_is_malformed = False
        self._count = count
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

    def clear(self) -> None:
        """End the pending errors."""
        self.fails_fetch = self.fetch_is_malformed = False


def _failing() -> Generator[None, None, None]:
    raise InjectedError("a response cannot be applied")
    yield
