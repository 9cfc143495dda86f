"""A shard of the transaction coordinator: the ids of one ``__transaction_state`` partition.

Records become state only through `TransactionShard.replay`, after an append and at load time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.coordinator.shard_lifecycle import Transition
from odradek.coordinator.transaction.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
    from_record,
)
from odradek.coordinator.uncommitted_changes import UncommittedChanges
from odradek.errors import ErrorCode
from odradek.protocol.codec import Message
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.messages.transaction_log_value import TransactionLogValue

logger = logging.getLogger(__name__)


class TransactionShard:
    """The transactional ids of one partition. Owned by its loading task, then by the event loop.

    Args:
        partition: The partition of ``__transaction_state``.
        leader_epoch: The leader epoch in which the shard is loaded. It is the coordinator epoch of
            its markers.
        on_loaded: Called when the shard begins to serve.
        on_unload: Ends the work of the shard when it is dropped.
    """

    __slots__ = (
        "_changes",
        "_on_loaded",
        "_on_unload",
        "leader_epoch",
        "ongoing",
        "partition",
        "served",
        "transactions",
    )

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        on_loaded: Callable[[TransactionShard], None],
        on_unload: Callable[[TransactionShard], Transition],
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.transactions: dict[str, TransactionMetadata] = {}
        self._changes: UncommittedChanges[str, TransactionMetadata] = UncommittedChanges()
        # The transactional ids with an open transaction. Only these can time out.
        self.ongoing: dict[str, None] = {}
        self.served = False
        self._on_loaded = on_loaded
        self._on_unload = on_unload

    def replay(self, offset: int, key: Message, value: Message | None) -> None:
        """Apply one record: the whole metadata of a transactional id, or a tombstone."""
        assert isinstance(key, TransactionLogKey)
        assert value is None or isinstance(value, TransactionLogValue)
        transactional_id = key.transactional_id
        if value is None:
            self.transactions.pop(transactional_id, None)
            self.ongoing.pop(transactional_id, None)
            return
        try:
            metadata = from_record(key, value)
        except ValueError:
            logger.warning(
                "__transaction_state-%d: the record at offset %d is skipped: state %d is unknown",
                self.partition,
                offset,
                value.transaction_status,
            )
            return
        self.adopt(metadata)

    def adopt(self, metadata: TransactionMetadata) -> None:
        """Set the metadata of a transactional id. It may have fields that no record has."""
        transactional_id = metadata.transactional_id
        self.transactions[transactional_id] = metadata
        if metadata.state is TransactionState.ONGOING:
            self.ongoing[transactional_id] = None
        else:
            self.ongoing.pop(transactional_id, None)

    def keep(self, offset: int, key: Message) -> None:
        """Keep the metadata that the uncommitted record at `offset` replaces."""
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        self._changes.keep(transactional_id, offset, self.transactions.get(transactional_id))

    def commit(self, offset: int) -> None:
        """Drop the kept values of the records up to `offset`, which are committed."""
        self._changes.commit(offset)

    def committed(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the committed metadata of a transactional id."""
        return self._changes.committed(transactional_id, self.transactions.get(transactional_id))

    def all_committed(self) -> list[TransactionMetadata]:
        """Return the committed metadata of all transactional ids."""
        if not self._changes:
            return list(self.transactions.values())
        found = map(self.committed, dict.fromkeys([*self.transactions, *self._changes]))
        return [metadata for metadata in found if metadata is not None]

    def on_timer(self, key: str) -> None:
        """Do nothing. Transactional ids have no timers: timeouts are checked at intervals."""

    def starting(self) -> Transition:
        return iter(())

    def loaded(self) -> None:
        self.served = True
        self._on_loaded(self)

    def unloading(self, code: ErrorCode) -> Transition:
        """End the work of the shard. Only its uncommitted writes wait, which the runtime ends."""
        self.served = False
        return self._on_unload(self)
