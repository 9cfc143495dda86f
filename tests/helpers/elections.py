"""Elections as single events, for models and tests of the election functions."""

from __future__ import annotations

from odradek.controller.election import Acceptable, ElectionPolicy, changed_partition
from odradek.metadata.image import NO_LEADER, PartitionImage


def broker_unfenced(
    partition: PartitionImage, acceptable: Acceptable, policy: ElectionPolicy
) -> PartitionImage | None:
    """Elect a leader for a partition without one, after a broker has become acceptable."""
    if partition.leader != NO_LEADER:
        return None
    return changed_partition(partition, acceptable, policy)
