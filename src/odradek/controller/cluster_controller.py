"""The controller of a cluster of several brokers.

Every broker has a `ClusterController`. It contends for ``/controller`` and is active while it is
elected (`odradek.controller.take_over`). The active controller is the only writer of the cluster's
metadata. All of its inputs are events on one queue with one consumer: session states and watches of
the store, requests, polls that make a broker live, and timers. An event decides on the newest image
(pure plans), and commits records (`ControllerTerm`).

The controller ends its term when the session is suspended or lost, when a write is refused or has
no known outcome, or when ``/controller`` belongs to another session. Requests then get
NOT_CONTROLLER. The next term, on this or another broker, begins with the contents of the store.

The response to a request of an administrator waits until this broker and the leaders that the
change elects have applied it. Each broker reports its metadata offset with each poll of the feed,
and the broker of the controller polls like any other.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from odradek.config.broker import BrokerConfig
from odradek.controller import broker_plans, plans
from odradek.controller.alter_partition import AlterPartition, AlterPartitionResult, check_sender
from odradek.controller.applied_waits import AppliedWaits
from odradek.controller.broker_changes import (
    BrokerChanges,
    planning_broker_changes,
    planning_elections,
)
from odradek.controller.broker_registry import BrokerRegistry
from odradek.controller.clock_check import warn_at_take_over, warn_of_clocks
from odradek.controller.controller_settings import ControllerSettings, controller_settings
from odradek.controller.controller_term import Committed, ControllerTerm, Deposed
from odradek.controller.election import Election, may_shut_down
from odradek.controller.election_policies import (
    UNCLEAN,
    ElectionPolicies,
    check_min_isr,
    planning_min_isr,
)
from odradek.controller.event_queue import EventQueue
from odradek.controller.feed_server import FeedServer
from odradek.controller.loading import MetadataChanged
from odradek.controller.metadata_writer import MetadataWriter
from odradek.controller.named_timers import NamedTimers
from odradek.controller.plan import Planning
from odradek.controller.registered_brokers import registered_brokers, sender_of
from odradek.controller.take_over import (
    Elected,
    contend,
    find_other,
    owns_controller,
    read_brokers,
    read_metadata,
    resign,
)
from odradek.environment.clock import Clock
from odradek.environment.randomness import Randomness
from odradek.environment.timers import Timers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.features import FeatureUpdate
from odradek.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage
from odradek.metadata.quotas import Entity, QuotaAlteration
from odradek.metadata.store.interface import (
    MetadataStore,
    SessionState,
    StoreError,
    StoreFailure,
    UnknownOutcomeError,
    WatchEvent,
)
from odradek.metadata.topic_changes import CreatedTopic, NewPartitions, NewTopic
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.result_tasks import shielded
from odradek.slicing import in_slices

logger = logging.getLogger(__name__)

EXPECTED_FAILURES = (
    StoreFailure,
    StoreError,
    UnknownOutcomeError,
    MetadataChanged,
    znodes.InvalidNode,
)
"""Errors of the store, after which another election begins."""

R = TypeVar("R")
Partition = tuple[TopicName, int]


class HeartbeatResult(NamedTuple):
    """The response to a heartbeat of a broker."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class ClusterController:
    """The controller of one broker of a cluster, on the event loop of the broker.

    Args:
        store: The session of the broker, on a store that is prepared (`loading.prepare`). Its owner
            opens and closes it.
        config: The configs of the broker.
        clock, timers, randomness: The environment.
        cluster_id: Returns the id of the cluster.
        is_registered: Returns whether this broker is registered in its session. Other brokers find
            a controller by its registration, so this one contends only then.
        standby_image: Returns the image that this broker has from the feed.
        settings: Times. Default: those of the configs.
    """

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        *,
        clock: Clock,
        timers: Timers,
        randomness: Randomness,
        cluster_id: Callable[[], str],
        is_registered: Callable[[], bool],
        standby_image: Callable[[], MetadataImage],
        settings: ControllerSettings | None = None,
    ) -> None:
        self._store = store
        self._config = config
        self._node_id = BrokerId(config.node_id)
        self._clock = clock
        self._randomness = randomness
        self._cluster_id = cluster_id
        self._is_registered = is_registered
        self._standby_image = standby_image
        self._settings = settings or controller_settings(config)
        self._policies = ElectionPolicies(config)
        self._events = EventQueue()
        self._queued: set[Callable[[], Awaitable[None]]] = set()
        self._term: ControllerTerm | None = None
        self._armed = NamedTimers(timers)
        self._waits = AppliedWaits(timers)
        self._listeners: list[Callable[[], None]] = []
        self._is_started = False
        self._must_load = False
        self._elected: Elected | None = None
        """The last election that this broker has won."""
        self._interruptions = 0
        """How often the session was suspended or lost. Watches end with each of them."""
        self._failed_terms = 0
        self.controller_id = NO_LEADER
        """The controller as ``/controller`` names it. -1: it is not known."""
        self.others_polled_ms = -math.inf
        """The monotonic time of the last poll that another broker sent to this controller."""
        self.feed = FeedServer(
            cluster_id,
            self._node_id,
            timers,
            self._polled,
            wait_ms_max=self._settings.session_timeout_ms / 3,
        )

    # --- state ---

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller and serves requests."""
        return self._term is not None and self._term.is_serving

    @property
    def image(self) -> MetadataImage:
        """The newest committed image if this is the active controller, else the broker's image."""
        return self._term.image if self._term is not None else self._standby_image()

    @property
    def epoch(self) -> int:
        """The epoch of the active controller, as far as this broker knows it."""
        return self.image.controller_epoch

    async def change_count(self) -> int:
        """Return the metadata offset of the newest change."""
        return self.image.offset

    def applied_offsets(self) -> dict[BrokerId, int]:
        """Return the metadata offset that each live broker has reported to this controller."""
        return self._serving().registry.applied_offsets()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener()` when `controller_id` or `is_active` has changed."""
        self._listeners.append(listener)

    def _changed(self, controller_id: BrokerId) -> None:
        self.controller_id = controller_id
        for listener in self._listeners:
            listener()

    # --- start and stop ---

    def start(self) -> None:
        """Contend for the leadership of the cluster from now on, in each session."""
        self._is_started = True
        self._store.subscribe(self._session_changed)
        if self._store.state is SessionState.CONNECTED:
            self._queue(self._elect)

    def registered(self) -> None:
        """Contend in the session in which this broker is registered now."""
        self._queue(self._elect)

    async def stop(self) -> None:
        """End the term. The end of the session gives up the leadership of the cluster.

        The owner of the session closes it first, or at the same time. Otherwise this call waits for
        calls in flight as long as the session is suspended.
        """
        self._is_started = False
        self._end_term("This broker stops.")
        await self._events.close()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._queue(self._elect)
            return
        self._interruptions += 1
        self._end_term("The session of the metadata store is not connected.")
        if self.controller_id != NO_LEADER:
            self._changed(NO_LEADER)

    # --- the queue ---

    def _queue(self, event: Callable[[], Awaitable[None]]) -> None:
        """Add an event of the controller itself, unless it waits in the queue already."""
        if event in self._queued or not self._is_started:
            return
        self._queued.add(event)

        async def run() -> None:
            self._queued.discard(event)
            if self._is_started:
                await self._run(event)

        self._events.append_internal(run)

    async def _run(self, event: Callable[[], Awaitable[None]]) -> None:
        """Run an event of the controller itself. After a failure, begin again with an election.

        A broker that cannot take over, or has a defect, leaves the next term to another broker.
        """
        must_resign = not self.is_active
        is_defect = True
        try:
            await event()
            return
        except Deposed as error:
            self._must_load |= error.must_load
            self._end_term(error.message or "")
        except EXPECTED_FAILURES as error:
            logger.warning(
                "the event %s of the controller failed: %r. The controller is elected again",
                _name(event),
                error,
            )
            self._must_load |= isinstance(error, StoreError)
            is_defect = not isinstance(error, StoreFailure | UnknownOutcomeError)
            self._end_term(repr(error))
        except (Exception, asyncio.CancelledError):
            # A defect must not leave a controller that has missed an event.
            logger.exception(
                "bug in the event %s of the controller. The controller is elected again. Report "
                "the traceback",
                _name(event),
            )
            self._must_load = True
            self._end_term("an event of the controller has failed")
            must_resign = True
        if self._store.state is not SessionState.CONNECTED:
            return
        if must_resign and self._elected is not None and await resign(self._store, self._elected):
            # The others have the first chance. Failures of the connection do not lengthen the wait.
            self._failed_terms = self._failed_terms + 1 if is_defect else max(self._failed_terms, 1)
            self._queue(self._elect)
        else:
            self._arm("election", self._settings.retry_ms, self._elect)

    async def _request(self, event: Callable[[ControllerTerm], Awaitable[R]]) -> R:
        """Run the event of a request, which the active controller serves only.

        The end of the term refuses the request at once, also while its event is running.
        """
        term = self._serving()

        async def run() -> R:
            try:
                return await event(term)
            except Deposed as error:
                self._must_load |= error.must_load
                self._depose(term, error.message or "")
                raise
            except (StoreFailure, UnknownOutcomeError) as error:
                self._depose(term, repr(error))
                raise Deposed("This is no longer the controller.") from error

        result = self._events.append(run)
        term.add_request(result)
        return await shielded(result, "an event of the controller")

    def _serving(self) -> ControllerTerm:
        if self._term is None or not self._term.is_serving:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the controller.")
        return self._term

    def _arm(self, name: str, delay_ms: float, event: Callable[[], Awaitable[None]]) -> None:
        """Queue an event after a delay. It replaces an armed one of that name."""
        self._armed.arm(name, delay_ms, partial(self._queue, event))

    # --- terms ---

    def _depose(self, term: ControllerTerm, reason: str) -> None:
        if self._term is term:
            self._end_term(reason)
            if self._store.state is SessionState.CONNECTED:
                self._queue(self._elect)

    def _end_term(self, reason: str) -> None:
        self._armed.cancel_all()
        term, self._term = self._term, None
        if term is None:
            return
        logger.info(
            "broker %d ends its term %d as controller: %s", self._node_id, term.epoch, reason
        )
        term.end()
        self.feed.end()
        self._waits.end()
        self._changed(NO_LEADER)

    def _on_watch(self, _: WatchEvent) -> None:
        """Follow a change of /controller, or the loss of the connection."""
        if self._store.state is SessionState.CONNECTED:
            self._queue(self._elect)

    @property
    def _may_contend(self) -> bool:
        return self._store.state is SessionState.CONNECTED and self._is_registered()

    async def _elect(self) -> None:
        """Become the controller unless another broker is, or check that this one still is.

        A broker whose last term failed leaves the other brokers some time to contend first.
        """
        if not self._may_contend:
            return
        if self._term is not None:
            if await owns_controller(self._store, self._on_watch):
                return
            self._end_term("Another broker is the controller.")
        if self._elected and self._standby_image().controller_epoch > self._elected.epoch:
            self._failed_terms = 0  # another broker has led since the last failure of this one
        if self._failed_terms and await find_other(self._store, self._on_watch) is None:
            if self.controller_id != NO_LEADER:
                self._changed(NO_LEADER)
            if not self._armed.is_armed("contention"):
                self._arm("contention", self._resigned_wait_ms(), self._contend)
            return
        await self._contend()

    def _resigned_wait_ms(self) -> int:
        settings = self._settings
        wait_ms = settings.resigned_wait_ms << min(self._failed_terms - 1, 10)
        wait_ms = min(wait_ms, settings.resigned_wait_max_ms)
        return wait_ms + self._randomness.between(0, wait_ms)

    async def _contend(self) -> None:
        if self._term is not None or not self._may_contend:
            return
        result = await contend(self._store, self._node_id, self._clock.time_ms(), self._on_watch)
        if not isinstance(result, Elected):
            self._changed(result.controller_id)
            if result.controller_id == NO_LEADER:
                self._arm("election", self._settings.retry_ms, self._elect)
            return
        self._elected = result
        await self._take_over(result)

    async def _take_over(self, elected: Elected) -> None:
        """Begin a term: complete what the previous controller began, and publish the elections."""
        interruptions = self._interruptions
        # After a term that has failed, the store may have other contents than any image.
        standby = MetadataImage() if self._must_load else self._standby_image()
        loaded = await read_metadata(self._store, self._cluster_id(), self._node_id, standby)
        nodes = await read_brokers(self._store, self._on_brokers_watch)
        if self._interruptions != interruptions:
            return  # The watch of the brokers may have ended. A new session has queued an election.
        warn_at_take_over(nodes, self._clock.time_ms(), self._node_id)
        writer = MetadataWriter(
            self._store, elected.epoch, elected.epoch_version, loaded.position_version
        )
        now_ms = self._clock.monotonic_ms()
        registry = BrokerRegistry(self._settings.session_timeout_ms, now_ms)
        term = self._term = ControllerTerm(
            self._store,
            writer,
            self._node_id,
            loaded.image,
            registry,
            loaded.unfinished,
            self._publishing,
        )
        changes, _ = registered_brokers(term.image, nodes)
        registry.taken_over({broker: each.epoch for broker, each in _live(changes)}, now_ms)
        for broker, registration in term.image.brokers.items():
            if broker not in changes.after:
                changes.after[broker] = replace(registration, fenced=True)
        planning = planning_broker_changes(term.image, changes, self._policies.of(term.image))
        records = await in_slices(planning)
        brokers = term.image.brokers.with_changes(dict(_live(changes)))
        missing = broker_plans.missing_partitions(term.unfinished_topics(), term.image, brokers)
        records = await in_slices(missing) + records
        records += self._policies.safety_records(term.image)
        await term.commit(records, always=True)
        await term.resume_deletions()
        if self._term is not term:
            return
        self.feed.begin(term.image)
        term.is_serving = True
        self._must_load = False
        self._failed_terms = 0
        self._arm_timers()
        logger.info("broker %d is the controller in epoch %d", self._node_id, term.epoch)
        self._changed(self._node_id)

    def _arm_timers(self) -> None:
        settings, term = self._settings, self._serving()
        self._armed.arm("liveness", term.registry.tick_ms, self._tick)
        self._arm("unclean", settings.unclean_interval_ms, self._elect_leaderless)
        if settings.balances_leaders:
            self._arm("balance", settings.balance_interval_ms, self._balance)

    def _publishing(
        self, delta: MetadataDelta, image: MetadataImage
    ) -> Generator[None, None, None]:
        return self.feed.publishing(delta.records, image)

    # --- brokers ---

    def _on_brokers_watch(self, _: WatchEvent) -> None:
        if self._store.state is SessionState.CONNECTED:
            self._queue(self._read_brokers)

    async def _read_brokers(self) -> None:
        """Compare the nodes of the brokers with the registry, by their czxid."""
        term = self._term
        if term is None:
            return
        nodes = await read_brokers(self._store, self._on_brokers_watch)
        known = term.registry.epochs
        for broker in known:
            if broker not in nodes or nodes[broker].stat.czxid != known[broker]:
                term.registry.gone(broker)
        new = {
            broker: node for broker, node in nodes.items() if known.get(broker) != node.stat.czxid
        }
        warn_of_clocks(new, self._clock.time_ms(), self._node_id)
        changes, valid = registered_brokers(term.image, new)
        for broker, registration in valid.items():
            changes.after[broker] = replace(registration, fenced=True)
        committed = await self._commit_liveness(term, changes)
        now_ms = self._clock.monotonic_ms()
        for broker, registration in valid.items():
            term.registry.registered(broker, registration.epoch, committed.offset, now_ms)

    async def _update_liveness(self) -> None:
        """Fence and unfence brokers as the registry says."""
        if self._term is not None:
            await self._commit_liveness(self._term, BrokerChanges())

    async def _commit_liveness(self, term: ControllerTerm, changes: BrokerChanges) -> Committed:
        for broker, registration in term.image.brokers.items():
            fenced = not term.registry.is_live(broker)
            if broker not in changes.after and registration.fenced != fenced:
                changes.after[broker] = replace(registration, fenced=fenced)
        planning = planning_broker_changes(term.image, changes, self._policies.of(term.image))
        committed = await term.commit_planned(planning)
        self._waits.check(term.registry.applied_offsets())
        return committed

    def _tick(self) -> None:
        """Find the brokers that have not polled within the session timeout, to fence them.

        It runs outside of the queue. A tick that waited behind a long event would be late, and a
        late tick means that this process was stopped.
        """
        term = self._term
        if term is None:
            return
        if term.registry.expired(self._clock.monotonic_ms()):
            self._queue(self._update_liveness)
        self._armed.arm("liveness", term.registry.tick_ms, self._tick)

    def _polled(self, request: MetadataFeedRequest, offset: int) -> ErrorCode:
        """Handle a poll of the feed. It runs outside of the queue and changes no metadata."""
        term = self._term
        if term is None:
            return ErrorCode.NOT_CONTROLLER
        broker = BrokerId(request.broker_id)
        epoch = term.registry.epochs.get(broker)
        if epoch is not None and 0 <= request.broker_epoch < epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        now_ms = self._clock.monotonic_ms()
        if broker != self._node_id:
            self.others_polled_ms = now_ms
        if term.registry.polled(broker, request.broker_epoch, offset, now_ms):
            self._queue(self._update_liveness)
        if not self._waits.is_empty:
            self._waits.check(term.registry.applied_offsets())
        return ErrorCode.NONE

    async def broker_heartbeat(
        self,
        broker: BrokerId,
        epoch: int,
        *,
        wants_shutdown: bool = False,
        failed_directories: Collection[Uuid] = (),
    ) -> HeartbeatResult:
        """Serve BrokerHeartbeat (rule E5).

        Raises:
            KafkaError: STALE_BROKER_EPOCH, NOT_CONTROLLER.
        """

        async def heartbeat(term: ControllerTerm) -> HeartbeatResult:
            before = sender_of(term.image, broker, epoch)
            online = tuple(each for each in before.directories if each not in failed_directories)
            # A broker without a directory that works stops. It has no leadership until then. Its
            # boot id no longer proves a clean stop: the write error may have dropped pages.
            has_failed = bool(before.directories) and not online
            stops = wants_shutdown or has_failed
            after = replace(
                before,
                in_controlled_shutdown=before.in_controlled_shutdown or stops,
                directories=online or before.directories,
                boot_id="" if has_failed else before.boot_id,
            )
            if after != before:
                changes = BrokerChanges(after={broker: after})
                policies = self._policies.of(term.image)
                planning = planning_broker_changes(term.image, changes, policies)
                committed = await term.commit_planned(planning)
                if after.in_controlled_shutdown and not before.in_controlled_shutdown:
                    term.shutdown_offsets[broker] = committed.offset
            fenced = term.image.brokers[broker].fenced
            may_stop = after.in_controlled_shutdown and await self._may_stop(term, broker)
            return HeartbeatResult(term.registry.is_live(broker), fenced, may_stop)

        return await self._request(heartbeat)

    @staticmethod
    async def _may_stop(term: ControllerTerm, broker: BrokerId) -> bool:
        """Return whether a broker in controlled shutdown may stop."""
        led = await in_slices(broker_plans.counting_led(term.image, broker))
        offset = term.shutdown_offsets.setdefault(broker, term.image.offset)
        return may_shut_down(broker, led, offset, term.registry.applied_offsets())

    async def unregister_broker(self, broker: BrokerId) -> None:
        """Remove the registration of a broker.

        A broker that runs stays without a registration until its node is a new one, or until the
        next controller reads its node. Recorded deletions no longer wait for the broker. If it
        comes back with logs of deleted topics, it sets them aside.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED.
        """

        async def unregister(term: ControllerTerm) -> tuple[ControllerTerm, Committed]:
            if broker not in term.image.brokers:
                text = f"Broker ID {broker} is not currently registered"
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
            changes = BrokerChanges(after={broker: None}, restarts={broker: False})
            policies = self._policies.of(term.image)
            planning = planning_broker_changes(term.image, changes, policies)
            records = await in_slices(planning)
            deletions = list(term.image.deletions)
            records += plans.plan_deletions_finished(term.image, broker, deletions).records
            committed = await term.commit(records)
            term.registry.unregistered(broker)
            self._waits.check(term.registry.applied_offsets())
            return term, committed

        await self._wait_until_applied(*await self._request(unregister))

    # --- elections ---

    async def _elect_leaderless(self) -> None:
        """Elect leaders of partitions that have none, uncleanly where the topic permits it."""
        if self._term is None:
            return
        policies = self._policies.of(self._term.image)
        planning = planning_elections(self._term.image, policies)
        await self._term.commit_planned(planning)
        self._arm("unclean", self._settings.unclean_interval_ms, self._elect_leaderless)

    async def _balance(self) -> None:
        """Give leaderships back to the first replicas."""
        if self._term is None:
            return
        planning = broker_plans.planning_balance(
            self._term.image,
            self._policies.of(self._term.image),
            self._settings.imbalance_percentage,
        )
        await self._term.commit_planned(planning)
        self._arm("balance", self._settings.balance_interval_ms, self._balance)

    async def assign_directories(
        self, broker: BrokerId, epoch: int, directories: Mapping[tuple[Uuid, int], Uuid]
    ) -> dict[tuple[Uuid, int], ErrorCode]:
        """Record in which log directory a broker has its replicas (AssignReplicasToDirs).

        A replica in a directory that is not online, or fails afterwards, loses its leadership.

        Args:
            broker, epoch: The sender.
            directories: The id of the directory by topic id and number of the partition.
        """

        async def assign(term: ControllerTerm) -> dict[tuple[Uuid, int], ErrorCode]:
            sender_of(term.image, broker, epoch)
            policies = self._policies.of(term.image)
            planning = broker_plans.planning_directories(term.image, broker, directories, policies)
            return await term.commit_plan(await in_slices(planning))

        return await self._request(assign)

    async def elect_leaders(
        self, election: Election, partitions: Collection[Partition] | None
    ) -> dict[Partition, KafkaError | None]:
        """Serve ElectLeaders of type PREFERRED or UNCLEAN (rules E2 and E3).

        Args:
            election: The type.
            partitions: The partitions. None: all that need an election.
        """
        return await self._planned(
            lambda term: broker_plans.planning_requested_elections(
                term.image, election, partitions, self._policies.of(term.image)
            )
        )

    async def drain_broker(
        self, broker: BrokerId, drained: bool, *, is_first: bool
    ) -> broker_plans.DrainStep:
        """Perform a step of DrainBroker."""
        return await self._planned(
            lambda term: broker_plans.planning_drain(
                term.image, broker, drained, self._policies.of(term.image), is_first=is_first
            )
        )

    async def raise_leader_epochs(
        self, epochs: Mapping[tuple[Uuid, int], int]
    ) -> dict[tuple[Uuid, int], ErrorCode]:
        """Raise leader epochs to given values, where they are lower.

        Args:
            epochs: The leader epoch by topic id and number of the partition.
        """
        return await self._planned(
            lambda term: broker_plans.planning_leader_epochs(term.image, epochs)
        )

    async def alter_partitions(
        self,
        broker: BrokerId,
        epoch: int,
        changes: Sequence[tuple[Uuid, int, AlterPartition]],
    ) -> list[AlterPartitionResult]:
        """Serve AlterPartition (rule I4). The results are in the order of `changes`.

        Args:
            broker, epoch: The sender.
            changes: Topic id, number of the partition, and change.

        Raises:
            KafkaError: STALE_BROKER_EPOCH, NOT_CONTROLLER.
        """

        async def alter(term: ControllerTerm) -> list[AlterPartitionResult]:
            error = check_sender(term.image.brokers, broker, epoch)
            if error:
                raise KafkaError(error)
            planning = broker_plans.planning_alter_partitions(
                term.image, changes, self._policies.of(term.image)
            )
            return await term.commit_plan(await in_slices(planning))

        return await self._request(alter)

    # --- requests of administrators: the interface of `Controller` ---

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | KafkaError]:
        """Create the valid topics. The results are in the order of `topics`."""
        return await self._planned(
            lambda term: plans.planning_topics(
                term.image, self._config, topics, self._randomness.uuid, self._randomness.between
            ),
            validate_only,
        )

    async def delete_topics(self, ids: Sequence[Uuid]) -> list[KafkaError | None]:
        """Delete topics by id. The results are in the order of `ids`."""
        return await self._planned(
            lambda term: broker_plans.planning_topic_deletions(term.image, ids)
        )

    async def deletions_finished(
        self, broker: BrokerId, epoch: int, topic_ids: Collection[Uuid]
    ) -> None:
        """Record that a broker has no logs of these deleted topics, and none can reappear.

        Raises:
            KafkaError: STALE_BROKER_EPOCH, NOT_CONTROLLER.
        """

        async def finish(term: ControllerTerm) -> None:
            sender_of(term.image, broker, epoch)
            plan = plans.plan_deletions_finished(term.image, broker, topic_ids)
            await term.commit(plan.records)

        await self._request(finish)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Add partitions to topics. The results are in the order of `requests`."""
        return await self._planned(
            lambda term: plans.planning_partitions(term.image, requests, self._randomness.between),
            validate_only,
        )

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Alter configs of any resources. The results are in order of `changes`."""

        def planning(term: ControllerTerm) -> Planning[list[KafkaError | None]]:
            image = term.image
            plan = yield from plans.planning_config_changes(
                image, self._config, changes, check_min_isr
            )
            changed = yield from planning_min_isr(image, plan.records, self._policies.of)
            plan.records[:0] = changed
            return plan

        results = await self._planned(planning, validate_only)
        if not validate_only and any(op.name == UNCLEAN for each in changes for op in each.ops):
            self._queue(self._elect_leaderless)
        return results

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> dict[Entity, KafkaError | None]:
        """Alter client quotas. Return the error or None for each entity."""
        return await self._planned(
            lambda term: plans.planning_quotas(term.image, alterations), validate_only
        )

    async def update_features(
        self,
        changes: Mapping[str, int] | Sequence[FeatureUpdate],
        *,
        validate_only: bool = False,
    ) -> KafkaError | None:
        """Finalize levels of features. Level 0 means "off". Return the error, or None."""

        def planning(term: ControllerTerm) -> Planning[KafkaError | None]:
            yield
            return plans.plan_features(term.image, self._config, changes)

        return await self._planned(planning, validate_only)

    async def allocate_producer_ids(self, broker: BrokerId | None = None) -> range:
        """Return the next block of producer ids, which this cluster has never allocated before.

        Args:
            broker: The broker that gets the block. Default: this one.
        """

        async def allocate(term: ControllerTerm) -> range:
            plan = plans.plan_producer_ids(term.image, self._node_id if broker is None else broker)
            await term.commit(plan.records)
            return plan.result

        return await self._request(allocate)

    async def _planned(
        self,
        planning: Callable[[ControllerTerm], Planning[R]],
        validate_only: bool = False,
    ) -> R:
        """Plan, commit, and wait until this broker and the leaders it elects have applied it."""

        async def run(term: ControllerTerm) -> tuple[ControllerTerm, R, Committed | None]:
            plan = await in_slices(planning(term))
            if validate_only or not plan.records:
                return term, plan.result, None
            elected = broker_plans.with_live_leaders(plan.records, term.image, term.image.brokers)
            return term, plan.result, await term.commit_planned(elected)

        term, result, committed = await self._request(run)
        if committed is not None:
            await self._wait_until_applied(term, committed)
        return result

    async def _wait_until_applied(self, term: ControllerTerm, committed: Committed) -> None:
        """Wait until this broker and the elected leaders have applied a change."""
        if not term.has_ended:
            await self._waits.wait(
                committed.offset,
                {self._node_id, *committed.leaders},
                term.registry.applied_offsets(),
                self._settings.apply_timeout_ms,
            )


def _name(event: Callable[[], Awaitable[None]]) -> str:
    """Return the name of an event of the controller for the log, such as "elect"."""
    return getattr(event, "__name__", "of a request").strip("_")


def _live(changes: BrokerChanges) -> list[tuple[BrokerId, BrokerRegistration]]:
    return [(broker, each) for broker, each in changes.after.items() if each is not None]
