"""Partitions of transactions that wait for requests to one other broker. Pure.

A marker and a verification both name a transaction and some of its partitions. While a request to
the broker is in flight, further ones wait, and the next request has as many of them as its limits
allow. A transaction with more partitions is divided over several requests. No request is therefore
long enough to be decoded or encoded in time slices.

An entry is done when each of its partitions has a code. A request has at most one part for each
key, because the response names transactions by their key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from odradek.errors import ErrorCode
from odradek.ids import TopicPartition

PARTITION_BYTES = 16
"""Bytes of a partition in a request or response, without the name of its topic. Not exact."""


class QueueLimits(NamedTuple):
    """Limits of a queue.

    Attributes:
        parts_max: Transactions in one request.
        partitions_max: Partitions in one request.
        bytes_max: Bytes of one request, approximately. Its first partition may exceed them.
        in_flight_max: Requests without a response. One, as in Kafka: the next one is then larger.
        waiting_max: Transactions that wait.
    """

    parts_max: int = 200
    partitions_max: int = 500
    bytes_max: int = 64 * 1024
    in_flight_max: int = 1
    waiting_max: int = 10_000


LIMITS = QueueLimits()


class Entry:
    """The partitions of one transaction. The shell subclasses it.

    Attributes:
        key: The id by which the response names the transaction.
        partitions: The partitions, each one once, those of a topic together.
        header_bytes: Bytes of the transaction in a request, without its partitions.
        codes: The codes so far.
        is_cancelled: No code is needed any longer.
    """

    __slots__ = ("codes", "header_bytes", "is_cancelled", "key", "partitions", "taken")

    def __init__(
        self, key: Hashable, partitions: Sequence[TopicPartition], header_bytes: int
    ) -> None:
        self.key = key
        self.partitions = partitions
        self.header_bytes = header_bytes
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.taken = 0
        self.is_cancelled = False

    @property
    def is_done(self) -> bool:
        """Whether each partition has a code."""
        return len(self.codes) == len(self.partitions)


E = TypeVar("E", bound=Entry)


class Part(NamedTuple, Generic[E]):
    """The partitions of an entry that one request has."""

    entry: E
    partitions: Sequence[TopicPartition]


class PeerQueue(Generic[E]):
    """The entries for one broker. Owned by its shell.

    Args:
        limits: The limits of requests.
    """

    def __init__(self, limits: QueueLimits = LIMITS) -> None:
        self._limits = limits
        self._waiting: deque[E] = deque()
        self._in_flight = 0
        # Entries to refuse before the queue is searched for cancelled ones again.
        self._refusals_left = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and no request is in flight."""
        return not self._waiting and not self._in_flight

    def add(self, entry: E) -> bool:
        """Add an entry. Return False if too many wait.

        A full queue is searched for cancelled entries once for every tenth of its length that it
        refuses. Each entry would cost 0.5 ms otherwise.
        """
        waiting_max = self._limits.waiting_max
        if len(self._waiting) >= waiting_max:
            if self._refusals_left > 0:
                self._refusals_left -= 1
                return False
            self._waiting = deque(each for each in self._waiting if not each.is_cancelled)
            if len(self._waiting) >= waiting_max:
                self._refusals_left = waiting_max // 10
                return False
        self._waiting.append(entry)
        return True

    def take(self) -> list[Part[E]]:
        """Return the parts of the next request, which is in flight from now on.

        The list is empty if nothing waits, or too many requests are in flight.
        """
        parts: list[Part[E]] = []
        if self._in_flight >= self._limits.in_flight_max:
            return parts
        partitions_left, bytes_left = self._limits.partitions_max, self._limits.bytes_max
        keys: set[Hashable] = set()
        while self._waiting and len(parts) < self._limits.parts_max:
            entry = self._waiting[0]
            if entry.is_cancelled:
                self._waiting.popleft()
                continue
            if entry.key in keys:
                break
            end, bytes_left = _end_of_part(entry, partitions_left, bytes_left, not parts)
            if end == entry.taken:
                break
            partitions = entry.partitions[entry.taken : end]
            parts.append(Part(entry, partitions))
            keys.add(entry.key)
            partitions_left -= len(partitions)
            entry.taken = end
            if end < len(entry.partitions):
                break
            self._waiting.popleft()
        if parts:
            self._in_flight += 1
        return parts

    def responded(
        self,
        parts: Sequence[Part[E]],
        codes: Mapping[Hashable, Mapping[TopicPartition, ErrorCode]],
        otherwise: ErrorCode,
    ) -> list[E]:
        """End a request. Return the entries that are done by it.

        Args:
            parts: The parts of the request.
            codes: The codes of the response, by key and partition.
            otherwise: The code of each partition that the response does not have.
        """
        assert self._in_flight > 0, "a request has one outcome"
        self._in_flight -= 1
        done = []
        nothing: Mapping[TopicPartition, ErrorCode] = {}
        for entry, partitions in parts:
            if entry.is_cancelled:
                continue
            received = codes.get(entry.key, nothing)
            for partition in partitions:
                entry.codes[partition] = received.get(partition, otherwise)
            if entry.is_done:
                done.append(entry)
        return done


def _end_of_part(
    entry: Entry, partitions_left: int, bytes_left: int, is_first: bool
) -> tuple[int, int]:
    """Return the end of the next part of an entry, and the bytes that are left after it.

    The first partition of a request always has room.
    """
    end = entry.taken
    bytes_left -= entry.header_bytes
    topic = None
    while end < len(entry.partitions) and partitions_left > 0:
        name = entry.partitions[end].topic
        size = PARTITION_BYTES + (0 if name == topic else len(name))
        if size > bytes_left and not (is_first and end == entry.taken):
            break
        topic = name
        end += 1
        partitions_left -= 1
        bytes_left -= size
    return end, bytes_left
