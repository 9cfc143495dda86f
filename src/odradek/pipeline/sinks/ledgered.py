"""A table with its ledger: each batch is committed once, or skipped, or stops the job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.evolution.conformed import conformed
from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.store import SEGMENT_COMMITS, LedgerStore
from odradek.pipeline.ledger.verdicts import check_continues, check_repeated

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from odradek.pipeline.sinks.commit import Batch, Check, Sink


class LedgeredTable:
    """The table or the quarantine of an ingest.

    Args:
        sink: The table.
        store: The table's ledger. Call `load` before the first commit.
        path: The path of the table, for messages.
        check: Raises PipelineError if this driver no longer owns the directory.
        has_every_batch: Whether each batch has a commit. The quarantine has only some.
        accept_changes: Whether to continue after another program changed the table.
    """

    def __init__(
        self,
        sink: Sink,
        store: LedgerStore,
        path: str,
        check: Check,
        *,
        has_every_batch: bool,
        accept_changes: bool = False,
    ) -> None:
        self._sink = sink
        self._store = store
        self._path = path
        self._check = check
        self._has_every_batch = has_every_batch
        self._accept_changes = accept_changes
        self._schema: StructType | None = None

    @property
    def store(self) -> LedgerStore:
        return self._store

    def exists(self) -> bool:
        return self._sink.exists()

    def prepare(self, schema: StructType) -> None:
        """Create the table, or change it so that it takes rows of `schema`.

        Raises:
            PipelineError: The rows do not fit the table.
        """
        self._schema = self._sink.prepare(schema)

    def has_rows(self) -> bool:
        """Return whether the table has rows, also if no history has their commits."""
        return self._sink.exists() and not self._sink.read().isEmpty()

    def open(self, epoch: int) -> None:
        """Fence earlier owners, load the ledger, and save the commits since its newest segment.

        Raises:
            PipelineError: The ledger does not fit the table, or another program changed the table.
        """
        self._store.load()  # before the directories without a commit are removed
        self._sink.take_over(epoch, self._check)
        self._store.refresh()
        self._check_changes()
        self._store.save()
        self._sink.expire()

    def _check_changes(self) -> None:
        if self._store.changes and not self._accept_changes:
            found = ", ".join(one.text() for one in self._store.changes)
            raise PipelineError(
                f"Another program changed {self._path} since the last batch: {found}. Rows that the"
                " ledger has may be missing or altered. Restore the version before it, or continue"
                " with the table as it is with --accept-loss."
            )

    def fence(self, query_id: str) -> None:
        """Prevent all further commits of the query, and refresh the ledger."""
        self._check()
        self._sink.fence(query_id)
        self._store.refresh()

    def begin(self, commit: BatchCommit) -> None:
        """Append the commit of a rebuilt checkpoint."""
        self._sink.begin(commit, self._check)
        self._store.refresh()
        if self._store.state.query_id != commit.query_id:
            raise PipelineError(
                f"The commit of the rebuilt checkpoint is not in {self._path}. Another program"
                " changed the table. Run the command again."
            )
        self._store.save()

    def commit(self, batch: Batch) -> BatchCommit:
        """Append the rows of a batch, whole or not at all.

        Returns:
            The commit. If the table has the batch already, its commit from then.

        Raises:
            PipelineError: The table has the batch with other planned offsets, the batch does not
                continue the ledger, or another driver owns the directory.
        """
        self._store.refresh()
        self._check_changes()
        state, draft = self._store.state, batch.draft
        newest = state.newest_batch(draft.query_id)
        if newest is not None and draft.batch_id <= newest:
            return self._repeated(batch)
        if self._has_every_batch:
            check_continues(self._path, state, draft)
        if self._store.changes:
            accepted = tuple(one.text() for one in self._store.changes)
            draft = replace(draft, accepted_changes=accepted)
        draft = replace(draft, first_number=state.first_number)
        self._check()
        committed: list[BatchCommit] = []

        def complete() -> BatchCommit:
            committed.append(batch.complete(draft))
            return committed[-1]

        rows = batch.rows if self._schema is None else conformed(batch.rows, self._schema)
        self._sink.append(rows, draft, complete, self._check)
        self._store.refresh()
        if not committed or self._store.state.newest_batch(draft.query_id) != draft.batch_id:
            raise PipelineError(
                f"Batch {draft.batch_id} is not in {self._path} after its commit. Another program"
                " changed the table. Run one ingest for each directory, and start this one again."
            )
        if self._store.save(at_least=SEGMENT_COMMITS):
            self._sink.expire()
        return committed[-1]

    def _repeated(self, batch: Batch) -> BatchCommit:
        """Return the commit that the table has of a batch, or raise PipelineError."""
        draft = batch.draft
        stored = self._store.find(draft.query_id, draft.batch_id)
        if stored is not None and stored.planned is None:
            # An older version stored only the records, which are compared instead.
            draft = batch.count(draft)
        return check_repeated(self._path, stored, draft)
