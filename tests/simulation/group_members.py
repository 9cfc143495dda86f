"""Consumers of groups in a simulation: they poll the partitions they own, and commit offsets.

A member of either protocol (`memberships`) heartbeats, polls some of its partitions, and commits
the positions. `GroupProcessor` commits them in the transactions in which it sends, so that each
record is processed exactly once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from tests.simulation.client import Key, Retry, World
from tests.simulation.consumers import Position, SimulatedConsumer, Truncated
from tests.simulation.coordinator_link import GROUP, CoordinatorLink
from tests.simulation.memberships import ClassicMembership, ConsumerMembership, Membership
from tests.simulation.scheduler import SECOND
from tests.simulation.transactors import (
    PROTOCOL_1,
    PROTOCOL_2,
    Abortable,
    SimulatedTransactor,
)

THINK_S_MAX = 6.0
PATIENCE_US = 8 * SECOND
POLLED_MAX = 2
LEAVE_RATE = 0.02
CLASSIC, CONSUMER = "classic", "consumer"
FETCH_VERSIONS = {CLASSIC: 8, CONSUMER: 9}
COMMIT_VERSIONS = {CLASSIC: 8, CONSUMER: 9}
TXN_COMMIT_VERSIONS = {PROTOCOL_1: 3, PROTOCOL_2: 5}
LOST = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""Errors after which the next heartbeat decides about the membership."""


class Refused(Exception):
    """The coordinator has refused a request, because the member is not in this generation."""


class GroupMember(SimulatedConsumer):
    """A member of a group. `protocol` is `CLASSIC` or `CONSUMER`.

    Args:
        host: The host of the client, if this is a part of another client.
    """

    def __init__(
        self, world: World, name: str, group: str, protocol: str, *, host: str = ""
    ) -> None:
        super().__init__(world, name, host=host)
        self.group = group
        self.protocol = protocol
        self.coordinator = CoordinatorLink(self, GROUP, group)
        kind = ClassicMembership if protocol == CLASSIC else ConsumerMembership
        self.membership: Membership = kind(self, self.coordinator, group, world.safe_keys)
        self.moved: set[int] = set()
        self._commits = 0

    async def run(self) -> None:
        while not self.world.draining:
            await self.think(THINK_S_MAX)
            await self.operation()
        await self.leave()
        await self.disconnect()

    async def leave(self) -> None:
        try:
            await self.membership.leave()
        except Retry:
            self.world.count("members that could not leave")
        self.positions = {}

    async def operation(self) -> None:
        """Poll, and commit the positions. Sometimes leave the group instead."""
        if self.rng.random() < LEAVE_RATE:
            await self.leave()
            return
        try:
            await self.prepare()
        except Retry:
            self.world.count("polls of groups failed")
            return
        self.record.begin("poll", isolation=self.isolation, group=self.group)
        await self.poll()
        self.record.event("ok", reads=self.reads, moved=self.take_moved())
        if self.reads:
            await self._commit()

    # -- positions ---------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Heartbeat, and fetch the offsets of partitions that are new. Raise Retry on a failure."""
        try:
            await self.membership.heartbeat()
        finally:
            for key in [each for each in self.positions if each not in self.membership.owned]:
                self.drop(key)
        new = [key for key in self.membership.owned if key not in self.positions]
        if new:
            deadline_us = self.world.scheduler.now_us + PATIENCE_US
            try:
                await self.until(deadline_us, lambda: self._fetch_offsets(new))
            except Refused as error:
                self.membership.lost()
                raise Retry(str(error)) from error

    def drop(self, key: Key) -> None:
        """Forget the position of a partition."""
        del self.positions[key]
        self.moved.add(key.number)

    def take_moved(self) -> list[int]:
        """Return the numbers of the keys whose position has changed since the last poll."""
        moved, self.moved = sorted(self.moved), set()
        return moved

    def offset_key(self, key: Key) -> tuple[str, str, int]:
        return self.group, key.topic, key.partition

    async def _fetch_offsets(self, keys: list[Key]) -> None:
        """Fetch the committed offsets of keys. A partition without one is read from the start."""
        rules = self.world.coordinators
        answered = {
            key: -1 if rules is None else rules.answered(self.offset_key(key)) for key in keys
        }
        is_member = self.protocol == CONSUMER
        asked = OffsetFetchRequestGroup(
            self.group,
            self.membership.member_id if is_member else None,
            self.membership.generation if is_member else -1,
            [
                OffsetFetchRequestTopics(key.topic, partition_indexes=[key.partition])
                for key in keys
            ],
        )
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        version = FETCH_VERSIONS[self.protocol]
        response, step = await self.coordinator.call(request, OffsetFetchResponse, version)
        (found,) = response.groups
        self._expect(found.error_code)
        parts = {
            (topic.name, part.partition_index): part
            for topic in found.topics
            for part in topic.partitions
        }
        for key in keys:
            part = parts[key.topic, key.partition]
            self._expect(part.error_code)
        for key in keys:
            part = parts[key.topic, key.partition]
            if rules is not None:
                name, before = self.offset_key(key), answered[key]
                rules.fetch_sent(name, part.committed_offset, part.metadata or "", before, step)
            self.positions[key] = Position(max(part.committed_offset, 0))
            self.moved.add(key.number)
        self.world.count("offsets of groups fetched", len(keys))

    def _expect(self, code: int) -> None:
        """Raise Retry or Refused for an error of OffsetFetch."""
        if code:
            self.coordinator.check(code)
            error = ErrorCode(code)
            self.world.count(f"group error {error.name}")
            raise Refused(error.name) if error in LOST else Retry(error.name)

    async def poll(self) -> None:
        """Fetch some of the partitions that the member owns, into `reads`."""
        self.reads = []
        keys = list(self.positions)
        for key in self.rng.sample(keys, min(POLLED_MAX, len(keys))):
            try:
                await self.fetch(key, wait_ms=0)
            except Retry:
                self.world.count("polls failed")
            except Truncated:
                self.moved.add(key.number)
        if self.reads:
            self.world.count("polls of groups with records")

    def committed_positions(self) -> dict[Key, int]:
        """Return the next offset of each key that was read in this operation."""
        by_number = {key.number: key for key in self.positions}
        return {by_number[number]: offset + 1 for number, offset, _ in self.reads}

    def next_metadata(self) -> str:
        """Return the metadata of a commit, which no other commit has."""
        self._commits += 1
        return f"{self.record.process}/{self._commits}"

    async def _commit(self) -> None:
        positions, metadata = self.committed_positions(), self.next_metadata()
        numbers = {key.number: offset for key, offset in positions.items()}
        self.record.begin("commit", group=self.group, positions=numbers)
        deadline_us = self.world.scheduler.now_us + PATIENCE_US
        try:
            await self.until(deadline_us, lambda: self._send_commit(positions, metadata))
        except (Retry, Refused) as error:
            self.record.event("info", error=str(error))
            # Another commit may have taken effect. The next poll begins at the committed offsets.
            for key in list(self.positions):
                self.drop(key)
            return
        self.world.count(f"offsets committed, {self.protocol} group")
        self.record.event("ok")

    async def _send_commit(self, positions: dict[Key, int], metadata: str) -> None:
        request = OffsetCommitRequest(
            self.group,
            self.membership.generation,
            self.membership.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    key.topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            key.partition, offset, committed_metadata=metadata
                        )
                    ],
                )
                for key, offset in positions.items()
            ],
        )
        version = COMMIT_VERSIONS[self.protocol]
        response, step = await self.coordinator.call(request, OffsetCommitResponse, version)
        self.check_commit([part.error_code for each in response.topics for part in each.partitions])
        if self.world.coordinators is not None:
            for key, offset in positions.items():
                self.world.coordinators.commit_sent(self.offset_key(key), offset, metadata, step)

    def check_commit(self, codes: list[int]) -> None:
        """Raise Retry or Refused if a partition of a commit has an error."""
        for code in codes:
            if code:
                self.coordinator.check(code)
                error = ErrorCode(code)
                self.world.count(f"commit error {error.name}")
                if error in LOST:
                    raise Refused(error.name)
                raise Retry(error.name)


class GroupProcessor(SimulatedTransactor):
    """A transactional producer that reads as a member of a group.

    Its transactions have the positions of its reads. After an abort it reads the same again.
    """

    def __init__(
        self, world: World, name: str, group: str, group_protocol: str, *, protocol: int
    ) -> None:
        self.member = GroupMember(world, f"{name} member", group, group_protocol, host=name)
        self._before: dict[Key, Position] = {}
        self._positions: dict[Key, int] = {}
        self._metadata = ""
        super().__init__(world, name, protocol=protocol)

    def _restart(self) -> None:
        """Begin another incarnation, which fetches the committed offsets again."""
        super()._restart()
        self.member.record = self.record
        for key in list(self.member.positions):
            self.member.drop(key)

    async def run(self) -> None:
        await super().run()
        await self.member.leave()
        await self.member.disconnect()

    async def _is_ready(self) -> bool:
        if self.rng.random() < LEAVE_RATE:
            await self.member.leave()
        try:
            await self.member.prepare()
        except Retry:
            self.world.count("polls of groups failed")
            return False
        return True

    async def _perform(self, keys: list[Key], sends: list[list[Any]], deadline_us: int) -> None:
        """Read some records, and send all of its own."""
        self._before = {key: replace(each) for key, each in self.member.positions.items()}
        self._positions = {}
        await self.member.poll()
        await super()._perform(keys, sends, deadline_us)

    def _named(self) -> dict[str, Any]:
        self.member.reads = []
        return {"group": self.member.group}

    def _seen(self) -> dict[str, Any]:
        positions = {key.number: offset for key, offset in self._positions.items()}
        return {"reads": self.member.reads, "positions": positions, "moved": [*self.member.moved]}

    def _finish(self, status: str, sends: list[list[Any]], error: str = "") -> None:
        """Record the outcome. Go back to the positions before a transaction without effect."""
        seen, member = self._seen(), self.member
        if status == "fail":
            read = {number for number, _, _ in member.reads}
            sought = {}
            for key, position in self._before.items():
                if key in member.positions and key.number in read:
                    member.positions[key] = position
                    sought[key.number] = position.offset
            seen["sought"] = sought
        elif status == "ok" and self.world.coordinators is not None:
            for key, offset in self._positions.items():
                name = member.offset_key(key)
                self.world.coordinators.commit_decided(name, offset, self._metadata)
        seen["moved"] = member.take_moved()
        self.record.event(status, error=error, sends=sends, protocol=self.protocol, **seen)

    async def _add_offsets(self, deadline_us: int) -> None:
        self._positions = self.member.committed_positions()
        if not self._positions:
            return
        self._metadata = self.member.next_metadata()
        if self.protocol == PROTOCOL_1:
            await self.until(deadline_us, self._add_group)
        await self.until(deadline_us, self._commit_offsets)
        self.world.count(f"offsets committed in transactions, protocol {self.protocol}")

    async def _add_group(self) -> None:
        request = AddOffsetsToTxnRequest(self.name, self.producer_id, self.epoch, self.member.group)
        response, _ = await self.coordinator.call(request, AddOffsetsToTxnResponse, 3)
        self.check_transaction(response.error_code)

    async def _commit_offsets(self) -> None:
        """Commit the positions at the group coordinator, within the transaction."""
        member, positions, metadata = self.member, self._positions, self._metadata
        request = TxnOffsetCommitRequest(
            self.name,
            member.group,
            self.producer_id,
            self.epoch,
            member.membership.generation,
            member.membership.member_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    key.topic,
                    [TxnOffsetCommitRequestPartition(key.partition, offset, -1, metadata)],
                )
                for key, offset in positions.items()
            ],
        )
        version = TXN_COMMIT_VERSIONS[self.protocol]
        response, step = await member.coordinator.call(request, TxnOffsetCommitResponse, version)
        for code in (part.error_code for each in response.topics for part in each.partitions):
            member.coordinator.check(code)
            if ErrorCode(code) in LOST:
                self.world.count(f"commit error {ErrorCode(code).name}")
                raise Abortable(ErrorCode(code).name)
            self.check_transaction(code)
        if self.world.coordinators is not None:
            for key, offset in positions.items():
                name = member.offset_key(key)
                self.world.coordinators.commit_sent(name, offset, metadata, step)
