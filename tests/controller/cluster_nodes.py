"""Brokers that consist of a session, a `ClusterController` and a client of the feed.

All run on one event loop with virtual time, on one ensemble in memory that records its writes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from odradek.config.broker import BrokerConfig
from odradek.controller.cluster_controller import ClusterController
from odradek.controller.controller_settings import ControllerSettings
from odradek.controller.loading import load, prepare
from odradek.environment.timers import LoopTimers
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.controller_channel import ControllerChannel
from odradek.metadata.feed_client import FeedClient, FeedClientSettings
from odradek.metadata.image import (
    UNKNOWN_BROKER_EPOCH,
    BrokerRegistration,
    Endpoint,
    MetadataImage,
)
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from odradek.metadata.store.interface import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Operation,
    Performed,
    SessionState,
    Set,
    StoreError,
    StoreFailure,
    UnknownOutcomeError,
)
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.resolution import create_ephemeral
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
from odradek.results import PendingResult, Result
from tests.helpers.seeded_randomness import SeededRandomness
from tests.helpers.virtual_loop import VirtualLoop

R = TypeVar("R")
FEED_SETTINGS = FeedClientSettings(max_wait_ms=500, retry_backoff_max_ms=100)
OWN_PATHS = ("/brokers/topics/", "/config/", "/odradek/", "/latest_producer_id_block", "/admin/")


class LoopClock:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def time_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000


class RecordingEnsemble(MemoryEnsemble):
    """An ensemble that checks each write of a controller when it is executed."""

    def __init__(self, *arguments: Any, **conditions: Any) -> None:
        super().__init__(*arguments, **conditions)
        self.positions: list[tuple[int, int]] = []
        self.violations: list[str] = []
        self.coverage: Counter[str] = Counter()
        self._registered: dict[BrokerId, BrokerRegistration] = {}

    def _commit(self, operations: Sequence[Operation], session_id: int) -> list[Performed]:
        epoch = self._epoch()
        is_prepared = self.tree.find(znodes.METADATA) is not None
        controller = self.tree.find(znodes.CONTROLLER)
        try:
            performed = super()._commit(operations, session_id)
        except BadVersionError as error:
            if error.path == znodes.CONTROLLER_EPOCH:
                self.coverage["elections and writes that the epoch refuses"] += 1
            raise
        if len(operations) == 2 and operations[1] == Delete(znodes.CONTROLLER):
            self.coverage["resignations"] += 1
            if controller is None or controller.stat.ephemeral_owner != session_id:
                self.violations.append("a resignation deletes the node of another session")
        if is_prepared:
            self._check(operations, epoch)
        return performed

    def _epoch(self) -> int:
        node = self.tree.find(znodes.CONTROLLER_EPOCH)
        return 0 if node is None else int(node.data)

    def _check(self, operations: Sequence[Operation], before: int) -> None:
        self.coverage["elections"] += self._epoch() - before
        if self._epoch() < before:
            self.violations.append(f"the controller epoch falls from {before}")
        positions = [each for each in operations if each.path == znodes.METADATA]
        if positions:
            (position,) = positions
            assert isinstance(position, Set)
            self._check_position(position.data, before)
        elif any(_changes_metadata(each) for each in operations):
            self.violations.append(f"a write without a position: {operations}")
        self.coverage["divided deletions"] += any(
            isinstance(each, Create) and each.path.startswith(znodes.DELETE_TOPICS)
            for each in operations
        )

        for each in operations:
            if isinstance(each, Create | Set) and each.path.startswith(znodes.REGISTRATIONS + "/"):
                self._check_registration(BrokerId(int(each.path.rpartition("/")[2])), each.data)

    def _check_registration(self, broker: BrokerId, data: bytes) -> None:
        """Check rule E4: when an unclean restart is registered, no ISR or ELR has the broker."""
        now = znodes.decode_registration(broker, data)
        before = self._registered.get(broker, now)
        self._registered[broker] = now
        if before.boot_id == now.boot_id or before.incarnation_id == now.incarnation_id:
            return
        self.coverage["registered unclean restarts"] += 1
        for path, state, created in self._states():
            if created > now.epoch:  # a new partition of the restarted broker
                continue
            recovers = state.get("leader_recovery_state") and state["isr"] == [broker]
            if broker in (*state["isr"], *state.get("elr", ())) and not recovers:
                self.violations.append(f"{path} has the restarted broker {broker}: {state}")

    def _states(self) -> Iterator[tuple[str, dict[str, Any], int]]:
        """Yield the states of all partitions, and the zxids at which they were created."""
        for name in self.tree.children(znodes.TOPICS):
            if self.tree.find(znodes.delete_mark_path(TopicName(name))) is not None:
                continue  # it does not exist any longer
            if not self.tree.find(f"{znodes.TOPICS}/{name}/partitions"):
                continue
            for number in self.tree.children(f"{znodes.TOPICS}/{name}/partitions"):
                path = f"{znodes.TOPICS}/{name}/partitions/{number}/state"
                node = self.tree.find(path)
                if node is not None:
                    yield path, znodes.decode(node.data), node.stat.czxid

    def _check_position(self, data: bytes, controller_epoch: int) -> None:
        position = epoch, offset = znodes.decode_position(data)
        self.coverage["divided creations"] += bool(znodes.decode_unfinished(data))
        if epoch != controller_epoch:
            self.violations.append(f"controller {epoch} writes in epoch {controller_epoch}")
        if self.positions:
            last_epoch, last_offset = self.positions[-1]
            if epoch < last_epoch or offset != last_offset + 1:
                self.violations.append(f"{position} after {self.positions[-1]}")
        self.positions.append(position)


def _changes_metadata(operation: Operation) -> bool:
    return not isinstance(operation, Check) and operation.path.startswith(OWN_PATHS)


class World:
    """An ensemble and its nodes, by id."""

    def __init__(
        self,
        seed: int = 0,
        conditions: EnsembleConditions | None = None,
        settings: ControllerSettings | None = None,
        configs: dict[str, str] | None = None,
    ) -> None:
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop)
        self.timers = LoopTimers()
        self.randomness = SeededRandomness(seed)
        self.settings = settings
        self.configs = configs or {}
        self.ensemble = RecordingEnsemble(
            conditions or EnsembleConditions(), randomness=self.randomness, timers=self.timers
        )
        self.nodes: dict[BrokerId, Node] = {}

    def run(self, call: Coroutine[Any, Any, R]) -> R:
        return self.loop.run_until_complete(call)

    def advance(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def start(self, count: int = 3) -> None:
        for number in range(1, count + 1):
            node = self.nodes[BrokerId(number)] = Node(self, BrokerId(number))
            self.run(node.start())
        self.advance(2)

    def active(self) -> Node | None:
        """Return the node whose controller is active in the newest epoch."""
        found = [node for node in self.nodes.values() if node.controller.is_active]
        return max(found, key=lambda node: node.controller.epoch, default=None)

    def controller(self) -> ClusterController:
        active = self.active()
        assert active is not None, "there is no controller"
        return active.controller

    def loaded(self) -> MetadataImage:
        """Return the contents of the ensemble."""

        async def read() -> MetadataImage:
            store = MemoryStore(self.ensemble, timers=self.timers)
            await store.open()
            await store.sync()
            loaded = await load(store, "cluster", BrokerId(0))
            assert not loaded.unfinished
            await store.close()
            return loaded.image

        return self.run(read())

    def close(self) -> None:
        for node in self.nodes.values():
            self.run(node.kill())
        self.advance(60)
        self.loop.close()


class Node:
    """One broker."""

    def __init__(self, world: World, node_id: BrokerId) -> None:
        self.world = world
        self.id = node_id
        self.boot_id = "boot"
        self.clean_epoch = -1
        self.directories: tuple[Uuid, ...] = (Uuid(bytes([node_id]) * 16),)
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.is_running = False
        self.polls = True
        self._begin()

    def _begin(self) -> None:
        world = self.world
        self.store = MemoryStore(world.ensemble, timers=world.timers)
        self.has_contended = False
        self.incarnation_id = world.randomness.uuid()
        config = BrokerConfig.from_properties({"node.id": str(self.id), **world.configs})
        self.feed = FeedClient(
            cast("ControllerChannel", DirectChannel(self)),
            config=config,
            cluster_id="cluster",
            broker_id=self.id,
            broker_epoch=lambda: self.broker_epoch,
            timers=world.timers,
            clock=world.clock,
            on_failure=lambda error: world.ensemble.violations.append(f"feed: {error!r}"),
            settings=FEED_SETTINGS,
        )
        self.controller = ClusterController(
            self.store,
            config,
            clock=world.clock,
            timers=world.timers,
            randomness=world.randomness,
            cluster_id=lambda: "cluster",
            is_registered=lambda: self.broker_epoch != UNKNOWN_BROKER_EPOCH,
            standby_image=lambda: self.image,
            settings=world.settings,
        )

    @property
    def image(self) -> MetadataImage:
        """The image that this node has from the feed."""
        return self.feed.image

    async def start(self) -> None:
        self.is_running = True
        self.feed.start()
        self.store.subscribe(self._session_changed)
        await self.store.open()
        self._tasks = [asyncio.get_running_loop().create_task(self._opened(self.store))]

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.LOST:
            return
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        if self.is_running:
            self._tasks.append(asyncio.get_running_loop().create_task(self._reopen(self.store)))

    async def _reopen(self, store: MemoryStore) -> None:
        await store.close()
        await store.open()
        await self._opened(store)

    async def _opened(self, store: MemoryStore) -> None:
        """Register in a new session."""
        session_id = store.session_id
        while self.is_running and store.session_id == session_id:
            try:
                await store.connected()
                await prepare(store, "cluster", self.world.randomness.uuid)
                endpoint = Endpoint("PLAINTEXT", f"host{self.id}", 9092)
                registration = BrokerRegistration(
                    self.id,
                    endpoint.host,
                    endpoint.port,
                    listeners=(endpoint,),
                    boot_id=self.boot_id,
                    incarnation_id=self.incarnation_id,
                    directories=self.directories,
                )
                data = znodes.encode_broker(registration, 0, self.clean_epoch)
                path = f"{znodes.BROKER_IDS}/{self.id}"
                created = await create_ephemeral(store, path, data)
            except (StoreFailure, StoreError, UnknownOutcomeError):
                await asyncio.sleep(0.5)
                continue
            if store.state in (SessionState.LOST, SessionState.CLOSED):
                return
            self.broker_epoch = created.stat.czxid
            if not self.has_contended:
                self.has_contended = True
                self.controller.start()
            self.controller.registered()
            return

    async def kill(self) -> None:
        """End the process. Its session ends after its timeout."""
        if self.is_running:
            self.is_running = False
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.feed.stop()
            self.store.abandon()
            await self.controller.stop()

    async def restart(self) -> None:
        self._begin()
        await self.start()


class DirectChannel:
    """The channel of a node to the controller that it knows, without a network."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def send(
        self,
        request: MetadataFeedRequest | MetadataImageRequest,
        response: type[Any],
        *,
        timeout_ms: float | None = None,
    ) -> Result[Any]:
        node = self._node
        found = node.world.nodes.get(node.controller.controller_id)
        if found is None or not found.is_running or not node.polls:
            result: PendingResult[Any] = PendingResult()
            result.fail(ConnectionError("no controller"))
            return result
        feed = found.controller.feed
        if isinstance(request, MetadataFeedRequest):
            request.max_bytes = min(request.max_bytes, 100_000)
            return feed.poll(request)
        request.max_bytes = min(request.max_bytes, 2_000)
        return feed.image_chunk(request)

    def disconnect(self) -> None:
        """Do nothing: there is no connection."""

    def close(self) -> None:
        """Do nothing: there is no connection."""


def contents(image: MetadataImage) -> MetadataImage:
    """Return what images of the same position have in common."""
    return replace(image, controller_id=BrokerId(-1), cluster_id="", topics_offset=0)
