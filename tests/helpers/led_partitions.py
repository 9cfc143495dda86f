"""Images of a partition that broker 1 leads."""

from __future__ import annotations

from odradek.ids import BrokerId
from odradek.metadata.image import PartitionImage

LEADER = BrokerId(1)


def led(
    leader_epoch: int,
    replicas: tuple[int, ...] = (1,),
    isr: tuple[int, ...] | None = None,
    *,
    leader: int = LEADER,
    partition_epoch: int = 0,
) -> PartitionImage:
    """Return an image of partition 0. By default all replicas are in the ISR."""
    return PartitionImage(
        0,
        BrokerId(leader),
        leader_epoch,
        partition_epoch,
        tuple(map(BrokerId, replicas)),
        tuple(map(BrokerId, replicas if isr is None else isr)),
    )
