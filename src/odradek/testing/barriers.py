"""Barriers: a test waits until the broker is in a state, not for so many seconds.

Each looks at the broker itself (nothing is asked over the network), from the test's thread, again
and again until what is wanted is there. When it is not there in time, the error says what was.
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
# Codes of a broker that is about to know: it is looked at again.
_NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}

Seen = TypeVar("Seen")


class WaitTimeoutError(TimeoutError):
    """What a test waited for did not come about; the message says what was seen instead."""


class Barriers(ABC):
    """The `wait_...` methods of a `Broker`. Every time-out is in seconds of real time."""

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
        """Waits until `condition()` is true, and returns what it gave.

        `condition` runs in the thread of the test and may ask anything; `what` names it in the
        error.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            seen = condition()
            if seen:
                return seen
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(f"waited {timeout_s:g} s for {what}: it gave {seen!r}")
            time.sleep(LOOK_AGAIN_S)

    def wait_until_group_stable(
        self,
        group: str,
        *,
        members: int | None = None,
        poll: Callable[[], object] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """Waits until the group has finished its rebalance, with exactly `members` (None: any
        number but 0). Either group protocol.

        Most clients take part in a rebalance while they are polled only: where the consumers
        belong to this thread, `poll` polls them, between one look and the next.
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
        """Waits until the group has no members: all have left or were expelled, or there is no
        such group. `poll` as in `wait_until_group_stable`."""

        def look() -> tuple[bool, str]:
            state, count = self._group(group)
            return count == 0 and state in ("Empty", "Dead"), _group_text(state, count)

        self._wait(look, f'group "{group}" to be empty', timeout_s, poll)

    def wait_for_topic(self, topic: str, *, partitions: int = 1, timeout_s: float = 30.0) -> None:
        """Waits until the topic exists with at least so many partitions."""

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
        """Waits until the high watermark is `offset` or more: so many records are committed."""

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
        """Waits until the group has committed `offset` or more."""

        def look() -> tuple[bool, str]:
            shard = self.server.services.groups.shards.of(group)
            found = shard.offsets.committed(group, topic, partition)
            if found is None:
                return False, "no committed offset"
            return found.offset >= offset, f"committed offset {found.offset}"

        what = f'offset {offset} of {topic}-{partition}, committed by group "{group}"'
        self._wait(look, what, timeout_s)

    def wait_for_open_transactions(self, count: int, *, timeout_s: float = 30.0) -> None:
        """Waits until exactly `count` transactions are open, those among them that are just being
        committed or aborted."""

        def look() -> tuple[bool, str]:
            transactions = self.server.services.transactions
            # Without the internal topic there has never been one.
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
        """Waits for `look`, which runs on the broker's loop: whether it is there, what is seen."""

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
            there, seen = self.call(on_loop)
            if there:
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
