"""The writes of the controller to the metadata store. Each one is one fenced `multi`.

A write checks the controller epoch, performs the changes, and sets the node of the metadata
position (`znodes.METADATA`) at its version. A controller that was replaced can therefore not write
any longer (KAFKA-6082). The node says which change of which controller is the last one in the
store.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName
from odradek.metadata import znodes
from odradek.metadata.store.interface import (
    BadVersionError,
    Check,
    MetadataStore,
    Operation,
    SessionLostError,
    Set,
    StoreFailure,
    operations_bytes,
)
from odradek.metadata.store.resolution import SupersededError, write_with_version_node

logger = logging.getLogger(__name__)

OPERATIONS_PER_WRITE_MAX = 500
"""Upper bound of the operations of one write to a store that limits their size.

The store takes a write in one time slice, some microseconds for each operation.
"""

_OFFSET_DIGITS_MAX = 20
_FENCES = (znodes.CONTROLLER_EPOCH, znodes.METADATA)
_REPLACED = "This is no longer the controller."


class MetadataWriter:
    """The only object that changes the cluster's metadata in the store.

    A writer ends when another controller has written, or when the outcome of a write stays unknown.
    The image of its controller may then lack a change. An ended writer writes nothing.

    Args:
        store: The session of the controller.
        epoch: The controller epoch.
        epoch_version: The version of the node of the epoch.
        position_version: The version of the node of the position.
    """

    def __init__(
        self, store: MetadataStore, epoch: int, epoch_version: int, position_version: int
    ) -> None:
        self._store = store
        self.epoch = epoch
        self.has_ended = False
        self._fence = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._position_version = position_version

    async def write(
        self, operations: Sequence[Operation], offset: int, unfinished: Sequence[TopicName] = ()
    ) -> KafkaError | None:
        """Write the operations and the metadata offset that they have.

        Args:
            operations: The changes.
            offset: The metadata offset of the changes.
            unfinished: The topics that further writes complete.

        Returns:
            The error if they cannot be written. Then nothing has changed, or the writer has ended.
        """
        if self.has_ended:
            return KafkaError(ErrorCode.NOT_CONTROLLER, _REPLACED)
        position = self._position(offset, unfinished)
        try:
            await write_with_version_node(self._store, [self._fence, *operations], position)
        except BadVersionError as error:
            if error.path not in _FENCES:
                raise
            return self._ended()
        except SupersededError:
            return self._ended()
        except SessionLostError as error:
            self.has_ended = True
            logger.error(
                "the session of the metadata store has ended: %s. This controller writes no "
                "further changes",
                error,
            )
            return KafkaError(ErrorCode.NOT_CONTROLLER, _REPLACED)
        except StoreFailure as error:
            logger.error("cannot write the metadata store: %s. The change is refused", error)
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "The metadata cannot be written. The log of the broker has the cause.",
            )
        self._position_version += 1
        return None

    def parts(self, operations: Sequence[Operation], unfinished: Sequence[TopicName] = ()) -> int:
        """Return how many writes the operations need at least. 1: they are one write."""
        if self._store.multi_bytes_max is None:
            return 1
        if len(operations) > OPERATIONS_PER_WRITE_MAX:
            return -(-len(operations) // OPERATIONS_PER_WRITE_MAX)
        return max(1, math.ceil(operations_bytes(operations) / self.room_bytes(unfinished)))

    def room_bytes(self, unfinished: Sequence[TopicName] = ()) -> float:
        """Return the size of the operations that one write can have."""
        limit = self._store.multi_bytes_max
        return math.inf if limit is None else limit - self.overhead_bytes(unfinished)

    def overhead_bytes(self, unfinished: Sequence[TopicName] = ()) -> int:
        """Return the size of the fence and the position, which are part of each write."""
        fixed: list[Operation] = [self._fence, self._position(0, unfinished)]
        return operations_bytes(fixed) + _OFFSET_DIGITS_MAX

    def combined(self, groups: Iterable[Sequence[Operation]]) -> Iterator[list[Operation]]:
        """Combine groups of operations into writes. A group is not divided."""
        room = self.room_bytes()
        write: list[Operation] = []
        size = 0
        for group in groups:
            added = operations_bytes(group)
            if write and (
                size + added > room or len(write) + len(group) > OPERATIONS_PER_WRITE_MAX
            ):
                yield write
                write, size = [], 0
            write += group
            size += added
        yield write

    def _position(self, offset: int, unfinished: Sequence[TopicName]) -> Set:
        data = znodes.encode_position(self.epoch, offset, unfinished)
        return Set(znodes.METADATA, data, self._position_version)

    def _ended(self) -> KafkaError:
        self.has_ended = True
        logger.error(
            "another controller has taken over the metadata store: this one makes no changes. "
            "If the broker is not part of a cluster, two brokers use its store. Stop one of them"
        )
        return KafkaError(ErrorCode.NOT_CONTROLLER, _REPLACED)
