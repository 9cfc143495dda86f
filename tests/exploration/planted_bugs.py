"""Bugs of replication protocols that the exploration has to find, as changed rules of the model."""

from __future__ import annotations

from odradek.ids import BrokerId
from odradek.replication.replication_state import FollowerState, ReplicationState
from tests.exploration.model import Rules


class ShrinkNotAwaitedState(ReplicationState):
    """The high watermark ignores a removed replica before the controller has confirmed it."""

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        if self.pending is not None:
            return tuple(broker for broker, _ in self.pending.isr)
        return self.isr


class ShrinkNotAwaited(Rules):
    replication_state = ShrinkNotAwaitedState


class NoMaximalIsrState(ReplicationState):
    """A replica counts only after the leader knows that the controller has added it."""

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        return self.isr


class NoMaximalIsr(Rules):
    replication_state = NoMaximalIsrState


class ExpansionBelowEpochStartState(ReplicationState):
    """A follower joins the ISR at the high watermark, also below the start of the epoch."""

    def _is_in_sync(self, follower: FollowerState) -> bool:
        return follower.log_end_offset >= self.high_watermark


class ExpansionBelowEpochStart(Rules):
    replication_state = ExpansionBelowEpochStartState


class NoBrokerEpochs(Rules):
    """Neither fetches nor proposals have broker epochs (before KIP-841 and KIP-903)."""

    checks_broker_epochs = False


class HighWatermarkBelowMinIsr(Rules):
    """The high watermark advances with any ISR. The controller still fills the ELR."""

    leader_requires_min_isr = False


class UncleanReplicaInElr(Rules):
    """A replica stays in the ELR although it restarted uncleanly."""

    keeps_unclean_replica_in_elr = True


class TruncationToHighWatermark(Rules):
    """A follower of a new leader truncates to its high watermark (before KIP-101)."""

    truncates_to_high_watermark = True


class OneStepTruncation(Rules):
    """A follower asks once for the end of its last epoch, before it fetches (before KIP-279)."""

    truncates_in_one_step = True


class NoEpochsInFetches(Rules):
    """A leader accepts fetches of followers in any epoch (before KIP-320)."""

    epochs_in_fetches = False


class RefusalKeepsPartitionEpoch(Rules):
    """A leader reverts a refused proposal, and an earlier copy of it may still be accepted."""

    refusal_raises_partition_epoch = False


class PositionsOfEarlierEpoch(Rules):
    """A leader that is elected again before it knows of the leader between keeps the positions."""

    forgets_positions = False


PLANTED_BUGS: dict[str, type[Rules]] = {
    "shrink-not-awaited": ShrinkNotAwaited,
    "no-maximal-isr": NoMaximalIsr,
    "expansion-below-epoch-start": ExpansionBelowEpochStart,
    "no-broker-epochs": NoBrokerEpochs,
    "high-watermark-below-min-isr": HighWatermarkBelowMinIsr,
    "unclean-replica-in-elr": UncleanReplicaInElr,
    "truncation-to-high-watermark": TruncationToHighWatermark,
    "one-step-truncation": OneStepTruncation,
    "no-epochs-in-fetches": NoEpochsInFetches,
    "refusal-keeps-partition-epoch": RefusalKeepsPartitionEpoch,
    "positions-of-earlier-epoch": PositionsOfEarlierEpoch,
}
