"""A new checkpoint that continues where the tables end (`--rebuild-checkpoint`).

The new checkpoint is a new query, which begins at the next offsets of the ledger. The steps:

1. Fence the old query in the table, so that none of its batches can be committed.
2. Read the ledger again. A batch that the old query has just committed is then in it.
3. If the newest batch has rejected records and the quarantine does not have that batch, a crash
   came between the two commits. Read these offsets once more, and commit the rejected records under
   the number of that batch. Then fence the old query in the quarantine.
4. Commit the beginning of the new query to the quarantine and to the table, without rows.
5. Write the new checkpoint beside the old one, move the old one away, and the new one in.

A crash after any step leaves a directory that the ingest refuses, or that continues with the old
checkpoint as before. After step 1 the old query can only be replaced: run the command again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import REBUILT_BATCH_ID, BatchCommit, PlannedRange
from odradek.pipeline.ledger.state import LedgerState
from odradek.pipeline.sinks.commit import CountedBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odradek.pipeline.sinks.ledgered import LedgeredTable

ReadRejected = Callable[[tuple[PlannedRange, ...]], "DataFrame"]
"""Returns the quarantine's rows of planned offsets, read from the topics."""


class CheckpointFiles(Protocol):
    """The file operations of a rebuilt checkpoint (`sinks.files.HadoopFiles`)."""

    def exists(self, path: str) -> bool: ...

    def delete(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None: ...

    def create_text(self, path: str, text: str) -> None: ...

    def rename_directory(self, old: str, new: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result: the id of the new query, and where the old checkpoint is, if it existed."""

    query_id: str
    old_checkpoint: str | None


def rebuild(
    table: LedgeredTable,
    quarantine: LedgeredTable,
    files: CheckpointFiles,
    checkpoint: str,
    topics: tuple[str, ...],
    epoch: int,
    read_rejected: ReadRejected,
) -> Rebuilt:
    """Replace the checkpoint of a directory. The new checkpoint continues at the ledger's end.

    Args:
        table: The table, opened by the owner of the directory.
        quarantine: The quarantine, opened likewise.
        files: The files of the directory.
        checkpoint: The path of the checkpoint.
        topics: The topics of the ingest.
        epoch: The epoch of the owner.
        read_rejected: Reads the rejected records of the newest batch again.

    Raises:
        PipelineError: The ledger has no commit, so a new ingest needs no rebuilt checkpoint. The
            table is an older copy than the quarantine.
    """
    old = table.store.state.query_id
    if old is None:
        raise PipelineError(
            f"The ledger of {checkpoint.removesuffix('/checkpoint')} has no commit to continue"
            " from. Start the ingest without --rebuild-checkpoint."
        )
    _check_quarantine_is_not_newer(table, quarantine)
    table.fence(old)
    state = table.store.state
    newest = state.newest_batch(old)
    assert newest is not None
    if newest != REBUILT_BATCH_ID:
        _complete(table, quarantine, old, newest, read_rejected)
        quarantine.fence(old)
    query_id = str(uuid.uuid4())
    for one in (quarantine, table):
        beginning = beginning_of(query_id, one.store.state, epoch)
        if beginning is not None:
            one.begin(beginning)
    offsets = {
        topic: partitions for topic, partitions in state.next_offsets().items() if topic in topics
    }
    moved = write_checkpoint(files, checkpoint, query_id, offsets, epoch)
    return Rebuilt(query_id, moved)


def _check_quarantine_is_not_newer(table: LedgeredTable, quarantine: LedgeredTable) -> None:
    """Raise PipelineError if the quarantine has offsets that would be loaded again."""
    loaded = table.store.state.next_offsets()
    for topic, partitions in quarantine.store.state.next_offsets().items():
        for number, end in partitions.items():
            table_end = loaded.get(topic, {}).get(number, 0)
            if end > table_end:
                raise PipelineError(
                    f"The quarantine has {topic}-{number} up to offset {end - 1}, and the table has"
                    f" it up to offset {table_end - 1}, so the table is an older copy. Bring the"
                    " newest copy of the whole directory back, or ingest into another directory."
                )


def beginning_of(query_id: str, state: LedgerState, epoch: int) -> BatchCommit | None:
    """Return the first commit of a query that replaces the last one. None in an empty ledger."""
    if state.query_id is None:
        return None
    newest = state.newest_batch(state.query_id)
    assert newest is not None
    return BatchCommit(
        query_id,
        REBUILT_BATCH_ID,
        rows=0,
        ranges=(),
        planned=(),
        epoch=epoch,
        first_number=state.first_number + newest + 1 - REBUILT_BATCH_ID,
        replaces=state.query_id,
    )


def _complete(
    table: LedgeredTable,
    quarantine: LedgeredTable,
    query_id: str,
    batch_id: int,
    read_rejected: ReadRejected,
) -> None:
    """Commit the rejected records of the newest batch, if the quarantine lacks them."""
    commit = table.store.find(query_id, batch_id)
    assert commit is not None
    if not commit.rejected or quarantine.store.find(query_id, batch_id) is not None:
        return
    if commit.planned is None:
        raise PipelineError(
            f"Batch {batch_id} has {commit.rejected} records that did not parse, and a crash came"
            " before their commit. An older version wrote the batch, without its planned offsets."
            " Ingest into another directory."
        )
    rows = read_rejected(commit.planned)
    quarantine.commit(CountedBatch(rows, replace(commit, rows=commit.rejected)))


def write_checkpoint(
    files: CheckpointFiles,
    checkpoint: str,
    query_id: str,
    offsets: dict[str, dict[str, int]],
    epoch: int,
) -> str | None:
    """Write a checkpoint whose batch 0 begins at `offsets`. Return the path of the old one.

    Spark reads the id of the query from `metadata`, and the start of batch 0 from `sources/0/0`.
    """
    staged, moved = f"{checkpoint}-new-{epoch}", f"{checkpoint}-replaced-by-{epoch}"
    files.delete(staged)
    for name in ("offsets", "commits", "sources/0"):
        files.make_directory(f"{staged}/{name}")
    files.create_text(f"{staged}/metadata", json.dumps({"id": query_id}))
    files.create_text(f"{staged}/sources/0/0", f"\0v1\n{json.dumps(offsets)}")
    has_old = files.exists(checkpoint)
    if has_old:
        files.rename_directory(checkpoint, moved)
    files.rename_directory(staged, checkpoint)
    return moved if has_old else None


def range_options(planned: tuple[PlannedRange, ...]) -> dict[str, str]:
    """Return the options with which Spark's Kafka source reads exactly the planned offsets."""
    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in planned:
        partitions.setdefault(one.topic, []).append(one.partition)
        starts.setdefault(one.topic, {})[str(one.partition)] = one.start_offset
        ends.setdefault(one.topic, {})[str(one.partition)] = one.end_offset
    return {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
