"""The lease under which a broker leads partitions that have other replicas.

The controller elects other leaders when the session of a broker has ended. A broker that does not
know that yet could acknowledge records that the next leader does not have: with acks=1, or with
itself as the only in-sync replica. It therefore stops serving these partitions in two cases:

- Its session is lost, also during its start. It serves again when its image has its new
  registration. The elections that followed from the end of the session have metadata offsets up to
  that one.
- It is isolated. For a session timeout it has heard neither the metadata store, nor the controller,
  nor a follower in the ISR of the partition. It serves again when it hears the store or the
  controller.

While the metadata store alone cannot be reached, no controller is active. The brokers keep serving
the partitions with an in-sync follower. A partition without other replicas is always served,
because no other broker can become its leader.

`Lease` decides, without input and output. `LeadershipLease` reads the times. A lost session ends
the lease of all partitions at once (`LeaderLease`). The partitions are suspended and resumed in
time slices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from odradek.metadata.image import UNKNOWN_BROKER_EPOCH
from odradek.metadata.store.interface import SessionState
from odradek.slicing import in_slices

if TYPE_CHECKING:
    from odradek.environment.clock import Clock
    from odradek.environment.timers import Timer, Timers
    from odradek.ids import TopicPartition
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.metadata.store.interface import MetadataStore
    from odradek.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

CHECKS_PER_TIMEOUT = 10
"""Number of checks in a session timeout. A check visits partitions only without a lease."""
PARTITIONS_A_SLICE = 50
"""Partitions that are suspended or resumed in one time slice. Each completes its requests."""


class Standing(Enum):
    """The partitions that a broker may lead."""

    MEMBER = "member"
    """All its partitions."""
    ISOLATED = "isolated"
    """Partitions with an in-sync follower that has fetched within the timeout."""
    EXPIRED = "expired"
    """Only partitions without other replicas."""


class Heard(NamedTuple):
    """Signs of life of a broker's cluster. Times are monotonic.

    Attributes:
        image_epoch: The epoch of this broker's registration in its image. -1: it has none.
        others_ms: The last response of a controller that is another broker. If this broker is the
            controller: the last poll of another broker.
    """

    image_epoch: int
    others_ms: float


@dataclass(slots=True)
class Lease:
    """The evidence that this broker still belongs to its cluster. Pure. Times are monotonic.

    Attributes:
        timeout_ms: The session timeout.
        store_heard_ms: When the store was heard last.
        broker_epoch: Its epoch. -1: this broker is not registered.
    """

    timeout_ms: float
    store_heard_ms: float
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    _was_expired: bool = True

    def standing(
        self, now_ms: float, *, is_connected: bool, broker_epoch: int, heard: Heard
    ) -> Standing:
        """Return what this broker may lead now.

        Args:
            now_ms: The time.
            is_connected: Whether the store is connected.
            broker_epoch: The epoch of the registration, or -1 after a lost session.
            heard: The evidence.
        """
        if is_connected:
            self.store_heard_ms = now_ms
        if broker_epoch != self.broker_epoch:
            self._was_expired = True
            self.broker_epoch = broker_epoch
        if broker_epoch == UNKNOWN_BROKER_EPOCH:
            return Standing.EXPIRED
        if self._was_expired:
            if heard.image_epoch != broker_epoch:
                return Standing.EXPIRED
            self._was_expired = False
        heard_ms = max(self.store_heard_ms, heard.others_ms)
        return Standing.MEMBER if now_ms - heard_ms < self.timeout_ms else Standing.ISOLATED

    def may_lead(self, standing: Standing, now_ms: float, isr_heard_ms: float) -> bool:
        """Return whether this broker may lead a partition that has other replicas.

        Args:
            standing: The partitions that it may lead.
            now_ms: The time.
            isr_heard_ms: When the last follower in the ISR has fetched.
        """
        if standing is Standing.ISOLATED:
            return now_ms - isr_heard_ms < self.timeout_ms
        return standing is Standing.MEMBER


class LeadershipLease:
    """Suspends the partitions that this broker must not lead. Owned by the event loop.

    Args:
        store: The session of this broker.
        broker_epoch: Returns the epoch of its registration, or -1.
        heard: Returns what was heard of the cluster.
        image: Returns the newest image of this broker.
        replica_manager: The partitions.
        changed: Called with each partition after it was suspended or resumed.
        clock, timers: The environment.
        timeout_ms: The session timeout.
    """

    def __init__(
        self,
        store: MetadataStore,
        broker_epoch: Callable[[], int],
        heard: Callable[[], Heard],
        image: Callable[[], MetadataImage],
        replica_manager: ReplicaManager,
        changed: Callable[[TopicPartition], object],
        clock: Clock,
        timers: Timers,
        timeout_ms: float,
    ) -> None:
        self._store = store
        self._broker_epoch = broker_epoch
        self._heard = heard
        self._image = image
        self._replica_manager = replica_manager
        self._changed = changed
        self._clock = clock
        self._timers = timers
        now_ms = clock.monotonic_ms()
        self._lease = Lease(timeout_ms, now_ms)
        self._standing = Standing.MEMBER
        # The lease of all partitions has ended, and is not renewed yet.
        self._is_expired = False
        # Partitions may be suspended that are to be resumed.
        self._may_have_suspended = False
        self._visits: Generator[None, None, None] | None = None
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Check the lease from now on."""
        self._store.subscribe(self._session_changed)
        self._tick()

    async def stop(self) -> None:
        """Stop leading for good, before the session ends.

        Clients may still be connected. The next leaders do not have what this broker would
        acknowledge with acks=1.
        """
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._replica_manager.expire_lease()
        try:
            await in_slices(self._suspend(Standing.EXPIRED))
        except Exception:
            # The lease of all partitions has ended, so none of them serves requests.
            logger.exception("bug in the suspension of partitions. Report the traceback")

    def image_changed(self, delta: MetadataDelta, _: MetadataImage, __: MetadataImage) -> None:
        """Check the lease when the image has a new registration of a broker."""
        if self._standing is Standing.EXPIRED and delta.brokers.changed:
            self.check()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.check()

    def _tick(self) -> None:
        # First, so that a failed check is not the last one.
        delay_s = self._lease.timeout_ms / CHECKS_PER_TIMEOUT / 1000
        self._timer = self._timers.call_later(delay_s, self._tick)
        self.check()

    def check(self) -> None:
        """Suspend and resume partitions as the lease requires now."""
        if self._is_stopped:
            return
        state = self._store.state
        standing = self._lease.standing(
            self._clock.monotonic_ms(),
            is_connected=state is SessionState.CONNECTED,
            broker_epoch=UNKNOWN_BROKER_EPOCH
            if state is SessionState.LOST
            else self._broker_epoch(),
            heard=self._heard(),
        )
        if standing is not self._standing:
            self._standing = standing
            logger.info("the standing of this broker in its cluster is %s", standing.value)
        if standing is Standing.EXPIRED:
            self._is_expired = True
            self._replica_manager.expire_lease()
        if standing is not Standing.MEMBER:
            self._may_have_suspended = True
        if self._may_have_suspended and self._visits is None:
            self._visits = self._visiting()
            self._visit()

    def _visit(self) -> None:
        """Run the next time slice of the visits. After an error, the next check begins others."""
        if self._is_stopped or self._visits is None:
            return
        try:
            next(self._visits)
        except StopIteration:
            self._visits = None
        except Exception:
            logger.exception(
                "bug in the suspension of partitions. It is tried again. Report the traceback"
            )
            self._visits = None
            self._may_have_suspended = True
        else:
            self._timers.call_later(0, self._visit)

    def _visiting(self) -> Generator[None, None, None]:
        """Suspend and resume partitions until they are as the newest standing requires."""
        while True:
            standing = self._standing
            if standing is not Standing.MEMBER:
                yield from self._suspend(standing)
            elif self._is_expired:
                # Every partition is suspended before the lease of all is renewed, because each is
                # compared with the newest image first.
                yield from self._suspend(Standing.EXPIRED)
                if self._standing is Standing.MEMBER:
                    self._is_expired = False
                    self._replica_manager.renew_lease()
                continue
            else:
                self._may_have_suspended = False
                yield from self._resume()
            if standing is self._standing:
                return

    def _suspend(self, standing: Standing) -> Generator[None, None, None]:
        count = 0
        for visited, partition in enumerate(self._replica_manager.partitions(), 1):
            replication = partition.replication
            if replication is not None and not partition.is_suspended:
                now_ms = self._clock.monotonic_ms()
                if not self._lease.may_lead(standing, now_ms, replication.last_fetch_of_isr_ms):
                    self._replica_manager.suspend(partition)
                    self._changed(partition.topic_partition)
                    count += 1
            if not visited % PARTITIONS_A_SLICE:
                yield
        if count and not self._is_stopped:
            logger.warning(
                "this broker is %s and stops leading %d partitions until it is a member again",
                standing.value,
                count,
            )

    def _resume(self) -> Generator[None, None, None]:
        count = 0
        for visited, partition in enumerate(self._replica_manager.partitions(), 1):
            if self._standing is not Standing.MEMBER:
                break
            if partition.is_suspended:
                found = self._image().partition(*partition.topic_partition)
                # The newest image may have another leader that the partition has not applied yet.
                if found is not None and found.leader_epoch == partition.leader_epoch:
                    self._replica_manager.resume(partition)
                    self._changed(partition.topic_partition)
                    count += 1
            if not visited % PARTITIONS_A_SLICE:
                yield
        if count:
            logger.info("this broker leads %d partitions again", count)
