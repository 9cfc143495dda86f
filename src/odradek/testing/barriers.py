"""Barriers: methods with which a test waits for a state of the broker instead of a fixed time.

Each barrier runs in the test's thread and polls the state inside the broker, without requests over
the network. On a timeout the error describes the last state.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName

if TYPE_CHECKING:
    from odradek.broker.broker import BrokerServer

LOOK_AGAIN_S = 0.002
# Error codes of a coordinator that is still loading. The barrier polls again.
_NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}

Seen = TypeVar("Seen")


class WaitTimeoutError(TimeoutError):
    """A state was not reached in time. The message describes the last state."""


class Barriers(ABC):
    """The `wait_...` methods of a `Broker`. Each timeout is in seconds of real time.

    Each method raises `WaitTimeoutError` if the state is not reached in time.
    """

    @property
    @abstractmethod
    def server(self) -> BrokerServer: ...

    @abstractmethod
    def call(self, function: Callable[[BrokerServer], Coroutine[Any, Any, Seen]]) -> Seen: ...

    def wait_until(
        self,
        condition: Callable[[], Seen],
        what: str = "the condition",
        *,
        timeout_s: float = 30.0,
    ) -> Seen:
        """Wait until `condition()` returns a true value, and return that value.

        Args:
            condition: A function without arguments, which runs in the test's thread.
            what: Description of the condition for the error message.
            timeout_s: Time limit in seconds.

        Raises:
            WaitTimeoutError: The condition was still false after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            seen = condition()
            if seen:
                return seen
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(f"waited {timeout_s:g} s for {what}: it returned {seen!r}")
            time.sleep(LOOK_AGAIN_S)

    def wait_until_group_stable(
        self,
        group: str,
        *,
        members: int | None = None,
        poll: Callable[[], object] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """Wait until the group has finished its rebalance, in either group protocol.

        Args:
            group: The group id.
            members: The exact number of members, or None for any number above 0.
            poll: Called between two checks. Most clients take part in a rebalance only while they
                are polled, so a test polls here the consumers that belong to its thread.
            timeout_s: Time limit in seconds.
        """

        def look() -> tuple[bool, str]:
            state, count = self._group(group)
            enough = count > 0 if members is None else count == members
            return state == "Stable" and enough, _group_text(state, count)

        with_members = "" if members is None else f" with {_count(members, 'member')}"
        self._wait(look, f'group "{group}" to be stable{with_members}', timeout_s, poll)

    def wait_until_group_empty(
        self,
        group: str,
        *,
        poll: Callable[[], object] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """Wait until the group has no members or does not exist.

        The argument `poll` is the same as in `wait_until_group_stable`.
        """

        def look() -> tuple[bool, str]:
            state, count = self._group(group)
            return count == 0 and state in ("Empty", "Dead"), _group_text(state, count)

        self._wait(look, f'group "{group}" to be empty', timeout_s, poll)

    def wait_for_topic(self, topic: str, *, partitions: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until the topic exists with at least `partitions` partitions."""

        def look() -> tuple[bool, str]:
            topics = self.server.services.image().topics_by_name
            found = topics.get(TopicName(topic))
            if found is None:
                return False, f"the topics {sorted(topics)}"
            count = len(found.partitions)
            return count >= partitions, f"{_count(count, 'partition')}"

        self._wait(look, f'topic "{topic}" with {_count(partitions, "partition")}', timeout_s)

    def wait_for_high_watermark(
        self, topic: str, offset: int, *, partition: int = 0, timeout_s: float = 30.0
    ) -> None:
        """Wait until the high watermark is at least `offset`."""

        def look() -> tuple[bool, str]:
            log = self.server.services.replica_manager.partition(topic, partition).log
            return log.high_watermark >= offset, f"high watermark {log.high_watermark}"

        self._wait(look, f"high watermark {offset} of {topic}-{partition}", timeout_s)

    def wait_for_committed_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        timeout_s: float = 30.0,
    ) -> None:
        """Wait until the group has committed `offset` or a later offset."""

        def look() -> tuple[bool, str]:
            shard = self.server.services.groups.shards.of(group)
            found = shard.offsets.committed(group, topic, partition)
            if found is None:
                return False, "no committed offset"
            return found.offset >= offset, f"committed offset {found.offset}"

        what = f'offset {offset} of {topic}-{partition}, committed by group "{group}"'
        self._wait(look, what, timeout_s)

    def wait_for_open_transactions(self, count: int, *, timeout_s: float = 30.0) -> None:
        """Wait until exactly `count` transactions are open.

        A transaction in PrepareCommit or PrepareAbort counts as open.
        """

        def look() -> tuple[bool, str]:
            transactions = self.server.services.transactions
            # The list is empty if the internal topic of transactions does not exist.
            found = transactions.all_transactions()
            states = {
                each.transactional_id: each.state.kafka_name
                for each in found
                if each.state.kafka_name in ("Ongoing", "PrepareCommit", "PrepareAbort")
            }
            return len(states) == count, f"{_count(len(states), 'open transaction')} {states}"

        self._wait(look, _count(count, "open transaction"), timeout_s)

    def _group(self, group: str) -> tuple[str, int]:
        found = self.server.services.groups.shards.of(group).committed_group(group)
        return ("Dead", 0) if found is None else (found.state.value, len(found.members))

    def _wait(
        self,
        look: Callable[[], tuple[bool, str]],
        what: str,
        timeout_s: float,
        poll: Callable[[], object] | None = None,
    ) -> None:
        """Call `look` on the broker's loop until it returns True as its first value.

        The second value describes the state for the error message.
        """

        async def on_loop(_server: object) -> tuple[bool, str]:
            try:
                return look()
            except KafkaError as error:
                if error.code in _NOT_YET or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return False, error.code.name
                if error.code is ErrorCode.NOT_COORDINATOR:
                    return False, "no group and no offset yet"
                raise

        deadline = time.monotonic() + timeout_s
        while True:
            reached, seen = self.call(on_loop)
            if reached:
                return
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(f"waited {timeout_s:g} s for {what}; seen last: {seen}")
            if poll is not None:
                poll()
            time.sleep(LOOK_AGAIN_S)


def _group_text(state: str, members: int) -> str:
    return "no such group" if state == "Dead" else f"{state} with {_count(members, 'member')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
