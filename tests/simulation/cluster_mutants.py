"""Planted bugs of a cluster: replication, elections and the controller's writes.

Each breaks one rule that a mistake in the history of replicated logs has taught. The replaced
functions are those of the product, in every broker of the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.planting import Mutant, Patches

BROKERS = 3
NOTICE_S = 0.3
"""Time after which a controller with `writes-without-epoch-check` notices a new session."""


def _truncation_to_high_watermark(patches: Patches) -> None:
    from odradek.log.truncation import LogTruncations
    from odradek.replication.replica_fetcher import ReplicaFetcher

    add = ReplicaFetcher.add

    def truncate_first(fetcher: Any, replica: Any) -> None:
        log = replica.log
        if not log.is_truncating and log.log_end_offset > log.high_watermark:
            truncations = LogTruncations()
            if truncations.truncate_to(log, log.high_watermark):
                fetcher._parts.truncations.start(truncations, [replica.partition])
        add(fetcher, replica)

    patches.replace(ReplicaFetcher, "add", truncate_first)


def _one_step_truncation(patches: Patches) -> None:
    from odradek.log.state.leader_epochs import UNDEFINED_EPOCH
    from odradek.replication import replica_fetcher
    from odradek.replication.followed_replica import FollowedReplica

    decide = replica_fetcher.truncation_for
    position_of = FollowedReplica.position.fget
    assert position_of is not None
    truncated: dict[Any, int] = {}

    def truncate_once(
        epochs: Any, log_end_offset: int, diverging_epoch: int, diverging_end_offset: int
    ) -> Any:
        """Take the leader's end of the epoch, also if this log does not know the epoch."""
        found = decide(epochs, log_end_offset, diverging_epoch, diverging_end_offset)
        truncated[epochs] = epochs.latest
        if found.complete:
            return found
        return replace(found, offset=min(diverging_end_offset, log_end_offset), complete=True)

    def ask_once(replica: Any) -> Any:
        position = position_of(replica)
        if replica.log.epochs in truncated:
            return position._replace(last_fetched_epoch=UNDEFINED_EPOCH)
        return position

    def add(fetcher: Any, replica: Any) -> None:
        truncated.pop(replica.log.epochs, None)
        add_to(fetcher, replica)

    add_to = replica_fetcher.ReplicaFetcher.add
    patches.replace(replica_fetcher, "truncation_for", truncate_once)
    patches.replace(FollowedReplica, "position", ask_once)
    patches.replace(replica_fetcher.ReplicaFetcher, "add", add)


def _no_epochs_in_fetches(patches: Patches) -> None:
    from odradek.log.state.leader_epochs import UNDEFINED_EPOCH
    from odradek.replication.partition import Partition

    check = Partition.check_leader_epoch

    def check_no_epoch(partition: Any, _leader_epoch: int, **options: Any) -> None:
        check(partition, UNDEFINED_EPOCH, **options)

    patches.replace(Partition, "check_leader_epoch", check_no_epoch)
    patches.replace(Partition, "diverges", lambda *_: False)


def _shrink_not_awaited(patches: Patches) -> None:
    from odradek.replication.replication_state import ReplicationState

    def proposed(state: Any) -> Any:
        if state.pending is None:
            return state.isr
        return tuple(broker for broker, _ in state.pending.isr)

    patches.replace(ReplicationState, "maximal_isr", proposed)


def _no_maximal_isr(patches: Patches) -> None:
    from odradek.replication.replication_state import ReplicationState

    patches.replace(ReplicationState, "maximal_isr", lambda state: state.isr)


def _expansion_below_epoch_start(patches: Patches) -> None:
    from odradek.replication.replication_state import ReplicationState

    patches.replace(
        ReplicationState,
        "_is_in_sync",
        lambda state, follower: follower.log_end_offset >= state.high_watermark,
    )


def _no_broker_epochs(patches: Patches) -> None:
    from odradek.controller import alter_partition
    from odradek.errors import ErrorCode
    from odradek.metadata.image import UNKNOWN_BROKER_EPOCH
    from odradek.replication.replication_state import ReplicationState

    fetched = ReplicationState.follower_fetched

    def from_any_process(
        state: Any, replica: Any, epoch: int, offset: int, start: int, brokers: Any, now_ms: int
    ) -> Any:
        registration = brokers.get(replica)
        if registration is not None:
            epoch = registration.epoch
        return fetched(state, replica, epoch, offset, start, brokers, now_ms)

    def is_live(_partition: Any, request: Any, brokers: Any) -> ErrorCode:
        for broker, _ in request.isr:
            found = brokers.get(broker)
            if found is None or found.fenced or found.in_controlled_shutdown:
                return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def without_epochs(_state: Any, _broker: Any) -> int:
        return UNKNOWN_BROKER_EPOCH

    def is_eligible(_state: Any, follower: Any, brokers: Any) -> bool:
        found = brokers.get(follower.broker_id)
        return found is not None and not found.fenced and not found.in_controlled_shutdown

    patches.replace(ReplicationState, "follower_fetched", from_any_process)
    patches.replace(ReplicationState, "_broker_epoch", without_epochs)
    patches.replace(ReplicationState, "_is_eligible", is_eligible)
    patches.replace(alter_partition, "_check_members", is_live)


def _no_epoch_check_of_writes(patches: Patches) -> None:
    from odradek.controller import metadata_writer
    from odradek.controller.cluster_controller import ClusterController
    from odradek.metadata.store.interface import ANY_VERSION, Check, SessionState

    changed = ClusterController._session_changed

    async def unfenced(store: Any, operations: Sequence[Any], position: Any) -> Any:
        kept = [each for each in operations if not isinstance(each, Check)]
        return await store.multi([*kept, position._replace(version=ANY_VERSION)])

    def notice_late(controller: Any, state: Any) -> None:
        """The check protects a controller that has not noticed the end of its session."""
        if state is SessionState.CONNECTED:
            loop = controller._store._running_loop()
            loop.call_later(NOTICE_S, changed, controller, state)

    patches.replace(metadata_writer, "write_with_version_node", unfenced)
    patches.replace(ClusterController, "_session_changed", notice_late)


def _lost_write_repeated(patches: Patches) -> None:
    from odradek.controller import metadata_writer
    from odradek.metadata.store.interface import ANY_VERSION, Set, UnknownOutcomeError

    def blind(operation: Any) -> Any:
        if isinstance(operation, Set):
            return operation._replace(version=ANY_VERSION)
        return operation

    async def repeat(store: Any, operations: Sequence[Any], position: Any) -> Any:
        try:
            return await store.multi([*operations, position])
        except UnknownOutcomeError:
            await store.connected()
            return await store.multi([*map(blind, operations), blind(position)])

    patches.replace(metadata_writer, "write_with_version_node", repeat)


def _response_after_its_epoch(patches: Patches) -> None:
    from odradek.replication.leader_replication import LeaderReplication

    def apply(
        leader: Any, _proposal: Any, _epoch: int, partition_epoch: int, isr: Any, recovery: Any
    ) -> None:
        leader = leader._partition.replication
        if leader is None:
            return
        leader.state._commit(isr, partition_epoch, recovery)
        leader._partition.isr_committed(isr)
        brokers, now_ms = leader._parts.brokers(), leader._now_ms()
        leader._perform(leader.state.maybe_increment_high_watermark(brokers, now_ms))

    patches.replace(LeaderReplication, "proposal_succeeded", apply)


def _high_watermark_below_min_isr(patches: Patches) -> None:
    from odradek.replication.replication_state import ReplicationState

    advance = ReplicationState._with_high_watermark

    def advance_always(state: Any, *arguments: Any) -> Any:
        minimum, state._min_isr = state._min_isr, 0
        try:
            return advance(state, *arguments)
        finally:
            state._min_isr = minimum

    patches.replace(ReplicationState, "_with_high_watermark", advance_always)


def _unclean_replica_in_elr(patches: Patches) -> None:
    from odradek.controller import election

    target = election._target_elr
    patches.replace(
        election,
        "_target_elr",
        lambda partition, isr, _unclean_restarts, minimum: target(partition, isr, (), minimum),
    )


def _sendfile_above_high_watermark(patches: Patches) -> None:
    from odradek.log import follower_read
    from odradek.net import sender

    patches.set(sender, "SMALL_REGION_BYTES", 0)
    patches.replace(follower_read, "_copy_uncommitted", lambda _files, _high, read, wait: read)


CLUSTER_MUTANTS = tuple(
    Mutant(name, what, apply, BROKERS)
    for name, what, apply in (
        (
            "truncation-to-high-watermark",
            "a follower truncates its log to its high watermark before it fetches (KIP-101)",
            _truncation_to_high_watermark,
        ),
        (
            "one-step-truncation",
            "a follower that does not know the diverging epoch truncates to the leader's end of it "
            "and does not ask again (KIP-279)",
            _one_step_truncation,
        ),
        (
            "no-epochs-in-fetches",
            "the leader checks neither the leader epoch nor the last epoch of a fetch (KIP-320)",
            _no_epochs_in_fetches,
        ),
        (
            "shrink-not-awaited",
            "the leader counts with a smaller ISR before the controller has committed it",
            _shrink_not_awaited,
        ),
        (
            "no-maximal-isr",
            "the leader counts with the committed ISR while an expansion is in flight",
            _no_maximal_isr,
        ),
        (
            "expansion-below-epoch-start",
            "a follower joins the ISR at the high watermark, below the start of the epoch",
            _expansion_below_epoch_start,
        ),
        (
            "no-broker-epochs",
            "fetches and ISRs count for any process of a broker (KIP-903)",
            _no_broker_epochs,
        ),
        (
            "writes-without-epoch-check",
            "a controller that has not noticed the end of its session can write",
            _no_epoch_check_of_writes,
        ),
        (
            "lost-write-repeated",
            "a write whose response was lost is repeated without its versions",
            _lost_write_repeated,
        ),
        (
            "late-response-applied",
            "the response to AlterPartition is applied after its epoch",
            _response_after_its_epoch,
        ),
        (
            "high-watermark-below-min-isr",
            "the high watermark advances while the ISR is below the minimum",
            _high_watermark_below_min_isr,
        ),
        (
            "unclean-replica-in-elr",
            "a replica that restarted uncleanly stays in the ELR",
            _unclean_replica_in_elr,
        ),
        (
            "sendfile-above-high-watermark",
            "records above the high watermark are sent from the file, which may be truncated",
            _sendfile_above_high_watermark,
        ),
    )
)
