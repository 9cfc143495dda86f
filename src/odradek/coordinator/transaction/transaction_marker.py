"""The marker that ends one producer's transaction, as an entry of a WriteTxnMarkers request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from odradek.errors import ErrorCode
from odradek.ids import TopicPartition


class TransactionMarker(NamedTuple):
    """One marker for many partitions.

    For `transaction_version` see `ProducerStateManager.check_marker`.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: Sequence[TopicPartition]
    transaction_version: int = 1


MarkerCodes = Mapping[int, Mapping[TopicPartition, ErrorCode]]
"""The code of each partition, by producer id and partition."""

WriteMarkers = Callable[[Sequence[TransactionMarker]], Awaitable[MarkerCodes]]
