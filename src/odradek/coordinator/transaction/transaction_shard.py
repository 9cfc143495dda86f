"""One shard of the transaction coordinator: the transactional ids of one ``__transaction_state``
partition.

`TransactionShard.replay` is the one way in which a record becomes state, after an append and at
load time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

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
    """Owned by the runtime while it loads, then by the event loop."""

    __slots__ = (
        "_changes",
        "_on_loaded",
        "_on_unload",
        "ongoing",
        "partition",
        "served",
        "transactions",
    )

    def __init__(
        self,
        partition: int,
        on_loaded: Callable[[TransactionShard], None],
        on_unload: Callable[[TransactionShard, ErrorCode], None],
    ) -> None:
        self.partition = partition
        self.transactions: dict[str, TransactionMetadata] = {}
        self._changes: UncommittedChanges[str, TransactionMetadata] = UncommittedChanges()
        # Which of them have an open transaction: only these can time out.
        self.ongoing: set[str] = set()
        self.served = False
        self._on_loaded = on_loaded
        self._on_unload = on_unload

    def replay(self, offset: int, key: Message, value: Message | None) -> None:
        """Takes one record in: the whole of a transactional id, or its end (a tombstone)."""
        assert isinstance(key, TransactionLogKey)
        assert value is None or isinstance(value, TransactionLogValue)
        transactional_id = key.transactional_id
        if value is None:
            self.transactions.pop(transactional_id, None)
            self.ongoing.discard(transactional_id)
            return
        try:
            metadata = from_record(key, value)
        except ValueError:
            logger.warning(
                "__transaction_state-%d: a state %d at offset %d is skipped",
                self.partition,
                value.transaction_status,
                offset,
            )
            return
        self.adopt(metadata)

    def adopt(self, metadata: TransactionMetadata) -> None:
        """Puts `metadata` in the place of what was known: what the log says, or that and what lives
        in memory alone."""
        transactional_id = metadata.transactional_id
        self.transactions[transactional_id] = metadata
        if metadata.state is TransactionState.ONGOING:
            self.ongoing.add(transactional_id)
        else:
            self.ongoing.discard(transactional_id)

    def keep(self, offset: int, key: Message) -> None:
        """Keep what the uncommitted record at `offset` replaces."""
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        self._changes.keep(transactional_id, offset, self.transactions.get(transactional_id))

    def commit(self, offset: int) -> None:
        """The records up to `offset` are committed."""
        self._changes.commit(offset)

    def committed(self, transactional_id: str) -> TransactionMetadata | None:
        """The committed metadata of a transactional id."""
        return self._changes.committed(transactional_id, self.transactions.get(transactional_id))

    def all_committed(self) -> list[TransactionMetadata]:
        """The committed metadata of all transactional ids."""
        if not self._changes:
            return list(self.transactions.values())
        found = map(self.committed, dict.fromkeys([*self.transactions, *self._changes]))
        return [metadata for metadata in found if metadata is not None]

    def on_timer(self, key: str) -> None:
        """No transactional id has a timer. Time-outs are looked for from time to time."""

    def loaded(self) -> None:
        self.served = True
        self._on_loaded(self)

    def unload(self, code: ErrorCode) -> None:
        self.served = False
        self._on_unload(self, code)
