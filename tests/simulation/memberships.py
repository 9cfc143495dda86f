"""The membership of a simulated consumer in its group, by the classic or the consumer protocol.

A membership sends the requests of its protocol, and says which partitions its member owns. It has
no background task: the member calls `heartbeat` before each poll. A member that is late loses its
partitions, and joins again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from odradek.protocol.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from tests.simulation.client import Client, Key, Retry
from tests.simulation.coordinator_link import CoordinatorLink

SESSION_TIMEOUT_MS = 12_000
REBALANCE_TIMEOUT_MS = 4_000
"""A JoinGroup waits so long for the other members. It is less than the client's timeout."""
CONSUMER_TYPE = "consumer"
ASSIGNOR = "round-robin"


class Membership(Protocol):
    """The membership of one member.

    Attributes:
        member_id: The id of the member, or empty.
        generation: The generation, or the member epoch. Commits have it.
        owned: The partitions that the member owns.
    """

    member_id: str
    generation: int
    owned: dict[Key, None]

    async def heartbeat(self) -> None:
        """Join, or stay in the group, and update `owned`.

        Raises:
            Retry: The member cannot go on now. `owned` may be empty afterwards.
        """

    async def leave(self) -> None:
        """Leave the group. Raise Retry if no coordinator has answered."""

    def lost(self) -> None:
        """Forget the membership, because the coordinator has refused it."""


class ClassicMembership:
    """A member that joins by JoinGroup and SyncGroup. The leader assigns the partitions."""

    def __init__(
        self, client: Client, coordinator: CoordinatorLink, group: str, keys: Sequence[Key]
    ) -> None:
        self._client = client
        self._coordinator = coordinator
        self._group = group
        self._keys = keys
        topics = list(dict.fromkeys(key.topic for key in keys))
        subscription = ConsumerProtocolSubscription(topics=topics)
        self._subscription = bytes(2) + encode(subscription, 0)  # its version, 0, as an int16
        self.member_id = ""
        self.generation = -1
        self.owned: dict[Key, None] = {}

    def lost(self) -> None:
        self.member_id = ""
        self._revoke()

    def _revoke(self) -> None:
        self.generation = -1
        self.owned = {}

    async def heartbeat(self) -> None:
        if self.generation < 0:
            await self._join()
            return
        request = HeartbeatRequest(self._group, self.generation, self.member_id)
        response, _ = await self._coordinator.call(request, HeartbeatResponse, 4)
        self._check(response.error_code)

    async def leave(self) -> None:
        if self.member_id:
            request = LeaveGroupRequest(self._group, members=[MemberIdentity(self.member_id)])
            self.lost()
            await self._coordinator.call(request, LeaveGroupResponse, 5)

    def _check(self, code: int) -> None:
        """Raise Retry for an error. The member joins again."""
        if not code:
            return
        error = ErrorCode(code)
        self._client.world.count(f"group error {error.name}")
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._revoke()
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.lost()
        raise Retry(error.name)

    async def _join(self) -> None:
        protocol = JoinGroupRequestProtocol(ASSIGNOR, self._subscription)
        request = JoinGroupRequest(
            self._group,
            SESSION_TIMEOUT_MS,
            REBALANCE_TIMEOUT_MS,
            self.member_id,
            None,
            CONSUMER_TYPE,
            [protocol],
        )
        response, _ = await self._coordinator.call(request, JoinGroupResponse, 9)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request.member_id = response.member_id
            response, _ = await self._coordinator.call(request, JoinGroupResponse, 9)
        self._check(response.error_code)
        self.member_id = response.member_id
        await self._sync(response)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        """Get the assignment, which the leader has made."""
        assignments = []
        if joined.leader == self.member_id:
            members = [member.member_id for member in joined.members]
            assignments = [
                SyncGroupRequestAssignment(member, _encode(self._keys[at :: len(members)]))
                for at, member in enumerate(members)
            ]
        request = SyncGroupRequest(
            self._group,
            joined.generation_id,
            self.member_id,
            None,
            CONSUMER_TYPE,
            ASSIGNOR,
            assignments,
        )
        response, _ = await self._coordinator.call(request, SyncGroupResponse, 5)
        self._check(response.error_code)
        self.generation = joined.generation_id
        numbers = set(map(int, response.assignment.split()))
        self.owned = dict.fromkeys(key for key in self._keys if key.number in numbers)
        self._client.world.count("classic generations")


def _encode(keys: Sequence[Key]) -> bytes:
    """Return an assignment: the numbers of the keys as text."""
    return b" ".join(b"%d" % key.number for key in keys)


class ConsumerMembership:
    """A member of the consumer protocol (KIP-848). The coordinator assigns the partitions."""

    def __init__(
        self, client: Client, coordinator: CoordinatorLink, group: str, keys: Sequence[Key]
    ) -> None:
        self._client = client
        self._coordinator = coordinator
        self._group = group
        self._keys = keys
        self._topics = list(dict.fromkeys(key.topic for key in keys))
        self._is_full = True
        self._reported: dict[Key, None] = {}
        self.member_id = ""
        self.generation = 0
        self.owned: dict[Key, None] = {}

    def lost(self) -> None:
        self.generation = 0
        self.owned, self._reported = {}, {}
        self._is_full = True

    async def heartbeat(self) -> None:
        is_full, owned = self._is_full, None
        if is_full or self.owned.keys() != self._reported.keys():
            owned = await self._named(self.owned)
        request = ConsumerGroupHeartbeatRequest(
            self._group,
            self.member_id,
            self.generation,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=self._topics if is_full else None,
            topic_partitions=owned,
        )
        # A change of the assignment would be lost with the response.
        self._is_full = True
        reported = dict(self.owned)
        response = await self._send(request)
        self._is_full = False
        if owned is not None:
            self._reported = reported
        self.member_id = response.member_id or self.member_id
        self.generation = response.member_epoch
        if response.assignment is not None:
            await self._assign(response.assignment.topic_partitions)

    async def leave(self) -> None:
        if self.generation > 0:
            request = ConsumerGroupHeartbeatRequest(self._group, self.member_id, -1)
            self.lost()
            await self._send(request)

    async def _send(self, request: Any) -> Any:
        response, _ = await self._coordinator.call(request, ConsumerGroupHeartbeatResponse, 0)
        if response.error_code:
            error = ErrorCode(response.error_code)
            self._client.world.count(f"group error {error.name}")
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self.lost()
            raise Retry(error.name)
        return response

    async def _topic_ids(self) -> dict[str, Uuid]:
        missing = [topic for topic in self._topics if topic not in self._client.topics]
        if missing:
            await self._client.refresh(*missing)
        return {topic: view.topic_id for topic, view in self._client.topics.items()}

    async def _named(self, keys: dict[Key, None]) -> list[TopicPartitions]:
        """Return keys as the request names them: by topic id."""
        if not keys:
            return []
        ids, found = await self._topic_ids(), dict[str, TopicPartitions]()
        for key in keys:
            if key.topic not in ids:
                raise Retry(f"{key.topic} is not known")
            entry = found.setdefault(key.topic, TopicPartitions(ids[key.topic]))
            entry.partitions.append(key.partition)
        return list(found.values())

    async def _assign(self, assigned: Sequence[Any]) -> None:
        """Take the assignment. The next heartbeat reports it."""
        try:
            ids = {topic_id: topic for topic, topic_id in (await self._topic_ids()).items()}
        except Retry:
            self._is_full = True
            raise
        named = {
            (ids.get(each.topic_id), number) for each in assigned for number in each.partitions
        }
        self.owned = dict.fromkeys(key for key in self._keys if (key.topic, key.partition) in named)
        if len(self.owned) < len(named):
            self._is_full = True  # the metadata lacks a topic
        self._client.world.count("consumer assignments")
