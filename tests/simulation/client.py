"""The base of the clients of a simulation: connections, metadata, and the history of operations.

A client speaks the protocol through `odradek.client`, on the virtual time of a loop that all
clients share. Each client is a host of its own, so that the network can fail for it alone.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.invariants import NO_STEP
from tests.simulation.link import Link
from tests.simulation.network import HostNetwork, SimulatedNetwork
from tests.simulation.scheduler import Scheduler
from tests.simulation.world_settings import PlannedTopic

if TYPE_CHECKING:
    from tests.simulation.coordinator_model import CoordinatorModel

CALL_TIMEOUT_S = 5.0
RETRY_S = 0.2
METADATA_VERSION = 12
VALUES_PER_PROCESS = 1_000_000

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_CONTROLLER,
    }
)


class Retry(Exception):
    """The request failed in a way that a client answers by trying again."""


@dataclass(frozen=True, slots=True)
class Key:
    """One partition of the history, which the checker knows by a number.

    Attributes:
        durable: The topic loses nothing acknowledged: flush.messages=1, or several replicas.
        replicas: Number of replicas. Records that acks=1 has acknowledged may be lost above 1.
    """

    number: int
    topic: str
    partition: int
    durable: bool
    replicas: int = 1


@dataclass(slots=True)
class TopicView:
    """What a client knows of a topic: its id, and leader and leader epoch of each partition."""

    topic_id: Uuid
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)


class World(Protocol):
    """The parts of the simulation that clients use.

    Attributes:
        keys: The partitions of the history.
        safe_keys: Those that lose nothing acknowledged in this run. Only these have transactions,
            because a power cut could take a part of a transaction from the others.
    """

    scheduler: Scheduler
    network: SimulatedNetwork
    client_loop: SimulatedLoop
    keys: list[Key]
    safe_keys: list[Key]
    bootstrap: list[tuple[str, int]]
    topics: Sequence[PlannedTopic]
    replicas_max: int
    draining: bool
    tempo: float

    @property
    def coordinators(self) -> CoordinatorModel | None:
        """The rules about coordinators. None for a single broker."""

    def next_process(self) -> int: ...

    def count(self, what: str, number: int = 1) -> None: ...

    def violation(self, what: str) -> None: ...

    def history_event(self, event: dict[str, Any]) -> None: ...

    def acknowledged(
        self, key: Key, first: int, last: int, acks: int, step: int = NO_STEP
    ) -> None: ...

    def was_read(self, key: Key, end: int, step: int = NO_STEP) -> None: ...

    def may_lose(self, key: Key) -> bool: ...

    def is_deposed(self, key: Key, address: tuple[str, int]) -> bool: ...

    def producer_id_given(self, producer_id: int, to: str) -> None: ...

    def request_ended(self, began_us: int, failure: str) -> None: ...


class Recorder:
    """The events of one process in the history; see `conformance.histories.history`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process = world.next_process()
        self._number = -1
        self._fields: dict[str, Any] = {}
        self._next_value = self.process * VALUES_PER_PROCESS

    def value(self) -> int:
        """Return a number that was never sent."""
        self._next_value += 1
        return self._next_value

    def begin(self, f: str, **fields: Any) -> None:
        self._number += 1
        self._fields = {"process": self.process, "op": self._number, "f": f}
        self.event("invoke", **fields)

    def event(self, kind: str, **fields: Any) -> None:
        self._world.history_event({"type": kind, **self._fields, **fields})


class Client:
    """One client: connections to brokers, and metadata.

    Args:
        name: Its name, also of its random numbers.
        host: The host on which it runs. Default: one of its own, with its name.
    """

    def __init__(self, world: World, name: str, *, host: str = "") -> None:
        self.world = world
        self.name = name
        self.rng: random.Random = world.scheduler.stream(name)
        self.loop = world.client_loop
        self.bootstrap = world.bootstrap
        self._port = HostNetwork(world.network, world.client_loop, host or name)
        self._links: dict[tuple[str, int], Link] = {}
        self._connecting = asyncio.Lock()
        self.brokers: dict[int, tuple[str, int]] = {}
        self._epochs: dict[tuple[Uuid, int], tuple[int, int]] = {}
        self.topics: dict[str, TopicView] = {}

    # -- requests ----------------------------------------------------------------------------------

    async def call(
        self, address: tuple[str, int], request: Any, response: type[Any], version: int
    ) -> Any:
        """Send a request and return the response.

        Raises:
            Retry: The connection failed, or the response is late.
        """
        return (await self.timed_call(address, request, response, version))[0]

    async def timed_call(
        self, address: tuple[str, int], request: Any, response: type[Any], version: int
    ) -> tuple[Any, int]:
        """Send a request. Return the response, and the step in which the broker sent it.

        Raises:
            Retry: The connection failed, or the response is late.
        """
        began_us = self.world.scheduler.now_us
        link: Link | None = None
        try:
            link = await self._link(address)
            result = await link.call(request, response, version)
        except (OSError, TimeoutError) as error:
            if link is not None and self._links.get(address) is link:
                del self._links[address]
            self.topics.clear()  # another broker may lead now
            self.world.request_ended(began_us, type(error).__name__)
            raise Retry(str(error)) from error
        self.world.request_ended(began_us, "")
        return result

    async def _link(self, address: tuple[str, int]) -> Link:
        async with self._connecting:  # in the order of the calls
            link = self._links.get(address)
            if link is None:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    _, link = await self._port.connect(
                        *address, lambda: Link(self.name, CALL_TIMEOUT_S)
                    )
                self._links[address] = link
        return link

    async def disconnect(self) -> None:
        """Close all connections."""
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    # -- metadata ----------------------------------------------------------------------------------

    async def refresh(self, *topics: str) -> None:
        """Fetch the metadata of topics from any broker. Raise Retry if no broker responds."""
        asked = [MetadataRequestTopic(name=topic) for topic in topics]
        address = self.rng.choice(self.bootstrap)
        request = MetadataRequest(asked, allow_auto_topic_creation=False)
        response = await self.call(address, request, MetadataResponse, METADATA_VERSION)
        self.brokers = {each.node_id: (each.host, each.port) for each in response.brokers}
        for topic in response.topics:
            if topic.error_code:
                self.topics.pop(topic.name, None)
                continue
            leaders = {
                each.partition_index: self._newest(
                    topic.topic_id, each.partition_index, each.leader_id, each.leader_epoch
                )
                for each in topic.partitions
            }
            self.topics[topic.name] = TopicView(topic.topic_id, leaders)

    def _newest(
        self, topic_id: Uuid, partition: int, leader: int, leader_epoch: int
    ) -> tuple[int, int]:
        """Return leader and leader epoch, unless a broker has reported a newer epoch (KIP-320)."""
        known = self._epochs.get((topic_id, partition))
        if known is not None and known[1] > leader_epoch:
            return known
        self._epochs[topic_id, partition] = leader, leader_epoch
        return leader, leader_epoch

    async def leader(self, topic: str, partition: int) -> tuple[tuple[str, int], int]:
        """Return address and leader epoch of the partition's leader. Raise Retry without one."""
        view = self.topics.get(topic)
        if view is None or partition not in view.leaders:
            await self.refresh(topic)
            view = self.topics.get(topic)
            if view is None or partition not in view.leaders:
                raise Retry(f"{topic}-{partition} is not known")
        leader, epoch = view.leaders[partition]
        address = self.brokers.get(leader)
        if address is None or leader < 0:
            self.topics.pop(topic, None)
            raise Retry(f"{topic}-{partition} has no leader")
        return address, epoch

    def check(self, topic: str, code: int) -> ErrorCode:
        """Return an error code. Raise Retry for those that a client retries."""
        error = ErrorCode(code)
        if error in RETRIABLE:
            self.topics.pop(topic, None)
            self.world.count(f"error {error.name}")
            raise Retry(error.name)
        return error

    # -- time --------------------------------------------------------------------------------------

    async def think(self, seconds: float) -> None:
        """Pause before the next operation, for at most so many seconds at the usual tempo."""
        await self.sleep(self.rng.uniform(0, seconds) / self.world.tempo)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, deadline_us: int, attempt: Callable[[], Any]) -> Any:
        """Repeat `await attempt()` while it raises Retry. Raise Retry when the time is up."""
        while True:
            try:
                return await attempt()
            except Retry:
                if self.world.scheduler.now_us > deadline_us:
                    raise
                await self.sleep(RETRY_S * self.rng.uniform(0.5, 2))


def history_line(event: dict[str, Any], now_us: int) -> str:
    return json.dumps({**event, "time": now_us * 1_000})
