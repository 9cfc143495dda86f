"""A table in memory, for the ledger without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.store import LedgerStore, TableChange, Tail
from odradek.pipeline.sinks.ledgered import LedgeredTable
from tests.pipeline.table_ledger.files import FilesInMemory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Check = Callable[[], None]
Complete = Callable[[], BatchCommit]


class TableInMemory:
    """A sink whose rows are any objects. A version is a commit, a change, or neither."""

    def __init__(self) -> None:
        self.versions: list[BatchCommit | TableChange | None] = []
        self.rows: list[object] = []
        self.fenced: set[str] = set()
        self.epochs: list[int] = []
        self.on_expire: Callable[[], None] = lambda: None

    def prepare(self, schema: StructType) -> StructType:
        return schema

    def exists(self) -> bool:
        return True

    def take_over(self, epoch: int, check: Check) -> None:
        check()
        self.epochs.append(epoch)

    def append(self, rows: DataFrame, draft: BatchCommit, complete: Complete, check: Check) -> None:
        """Append like Delta: a batch of a fenced query is skipped without an error."""
        if draft.query_id not in self.fenced:
            commit = complete()
            self.rows.append(rows)
            self.versions.append(commit)

    def fence(self, query_id: str) -> None:
        self.fenced.add(query_id)
        self.versions.append(None)

    def begin(self, commit: BatchCommit, check: Check) -> None:
        self.versions.append(commit)

    def expire(self) -> None:
        self.on_expire()

    def tail(self, position: int) -> Tail:
        commits: list[BatchCommit] = []
        changes: list[TableChange] = []
        for one in self.versions[position + 1 :]:
            if isinstance(one, BatchCommit):
                commits.append(one)
                changes = []
            elif one is not None:
                changes.append(one)
        return Tail(len(self.versions) - 1, tuple(commits), tuple(changes))

    def read(self) -> DataFrame:
        raise AssertionError("the ledger needs no rows")


def open_table(
    sink: TableInMemory,
    files: FilesInMemory,
    role: str = "table",
    *,
    epoch: int = 1,
    check: Check = lambda: None,
    accept_changes: bool = False,
) -> LedgeredTable:
    """Return the table as the owner of an epoch opens it."""
    table = LedgeredTable(
        sink,
        LedgerStore(files, f"/lake/ledger/{role}", f"/lake/{role}", sink.tail),
        f"/lake/{role}",
        check,
        has_every_batch=role == "table",
        accept_changes=accept_changes,
    )
    table.open(epoch)
    return table
