"""Copies of a table's commits, which outlive the table's own history.

    DIR/ledger/table/7.json     {"format": 1, "number": 7, "position": 812, "table_id": "...",
                                 "state": {...}, "commits": [...], "changes": [...]}

The table's commits are the truth: userMetadata in Delta's log, commit files in Parquet. Delta
removes its log after 30 days. A segment has the commits since the segment before it, and the fold
of all commits up to `position`: the version of a Delta table, the number of a Parquet commit. Start
reads the newest segment, and the table's commits after its position. Its cost does not grow with
the table. At least one segment is written for every `SEGMENT_COMMITS` commits, and one at each
start if there are commits since.

A segment is created whole, and never overwritten. It is a pure function of the table's commits, so
two drivers that write the same number write segments that are both true. States after a crash:

- before the segment is written: the next start reads the commits from the table again,
- no directory, or an older copy of it: the next start reads more of the table's history. Commits
  that Delta has removed from its log are then missing, and the fold shows a gap.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.state import LedgerState, fold

FORMAT = 1
SEGMENT_COMMITS = 100
NOTHING = -1
"""The position before the first commit."""


class SegmentFiles(Protocol):
    """The file operations of the store (`sinks.files.HadoopFiles`)."""

    def list_names(self, path: str) -> list[str]: ...

    def read_text(self, path: str) -> str: ...

    def create_text(self, path: str, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of a Delta table by another program, which may have changed or removed rows."""

    version: int
    operation: str

    def text(self) -> str:
        return f"{self.operation} in version {self.version}"


@dataclass(frozen=True, slots=True)
class Tail:
    """The commits of a table after a position.

    `changes` are those after the newest commit of an ingest. `table_id` is None for a Parquet
    table. `count` is the number of all commits in the table, also before the position. It is None
    for a Delta table, whose log loses old commits.
    """

    position: int
    commits: tuple[BatchCommit, ...] = ()
    changes: tuple[TableChange, ...] = ()
    table_id: str | None = None
    count: int | None = None


class LedgerStore:
    """The ledger of one table: its segments, and the table's commits after them.

    Args:
        files: The files of the table directory.
        path: The directory of the segments.
        table: The path of the table, for messages.
        read_tail: Returns the table's commits after a position.
    """

    def __init__(
        self,
        files: SegmentFiles,
        path: str,
        table: str,
        read_tail: Callable[[int], Tail],
    ) -> None:
        self._files = files
        self._path = path
        self._table = table
        self._read_tail = read_tail
        self._number = 0
        self._position = NOTHING
        self._table_id: str | None = None
        self._unsaved: list[BatchCommit] = []
        self._recent: dict[tuple[str, int], BatchCommit] = {}
        self._state = LedgerState()
        self._changes: tuple[TableChange, ...] = ()

    @property
    def state(self) -> LedgerState:
        return self._state

    @property
    def position(self) -> int:
        return self._position

    @property
    def changes(self) -> tuple[TableChange, ...]:
        """Changes by other programs since the newest commit of an ingest."""
        return self._changes

    def load(self) -> None:
        """Read the newest segment and the table's commits after it.

        Raises:
            PipelineError: A segment cannot be read, or belongs to another table.
        """
        self._number = max(self._numbers(), default=0)
        if self._number:
            fields = self._read(self._number)
            self._position = fields["position"]
            self._table_id = fields["table_id"]
            self._state = LedgerState.from_fields(fields["state"])
            self._changes = tuple(TableChange(**one) for one in fields["changes"])
            self._remember(BatchCommit.from_json(one) for one in fields["commits"])
        self.refresh()

    def refresh(self) -> None:
        """Read the table's commits after the position.

        Raises:
            PipelineError: The table is older than the ledger, or another one.
        """
        tail = self._read_tail(self._position)
        if self._table_id is not None and tail.table_id not in (None, self._table_id):
            raise PipelineError(
                f"{self._table} is not the table of the ledger {self._path}: it was replaced by"
                " another one. Bring the table back, or ingest into another directory."
            )
        if tail.position < self._position:
            raise PipelineError(
                f"{self._table} has version {tail.position}, and its ledger {self._path} has"
                f" recorded version {self._position}: the table is an older copy. Bring the newest"
                " copy of the whole directory back, or ingest into another directory."
            )
        self._table_id = tail.table_id if self._table_id is None else self._table_id
        self._position = tail.position
        self._state = fold(tail.commits, self._state)
        if tail.count not in (None, self._state.commits):
            raise PipelineError(
                f"{self._table} has {tail.count:,} commits, and its ledger {self._path} has"
                f" {self._state.commits:,}: commit files were removed or restored. Bring the newest"
                " copy of the whole directory back, or ingest into another directory."
            )
        since = tail.changes if tail.commits else (*self._changes, *tail.changes)
        self._changes = tuple(dict.fromkeys(since))  # a rollback is in the tail until a commit
        self._unsaved += tail.commits
        self._remember(tail.commits)

    def find(self, query_id: str, batch_id: int) -> BatchCommit | None:
        """Return the commit of a batch. Only an old batch needs segments before the newest one."""
        key = query_id, batch_id
        if key in self._recent:
            return self._recent[key]
        for number in sorted(self._numbers(), reverse=True):
            for text in self._read(number)["commits"]:
                commit = BatchCommit.from_json(text)
                if (commit.query_id, commit.batch_id) == key:
                    return commit
        return None

    def commits(self) -> list[BatchCommit]:
        """Return all commits, oldest first. Read every segment."""
        saved = [
            BatchCommit.from_json(text)
            for number in sorted(self._numbers())
            for text in self._read(number)["commits"]
        ]
        return [*saved, *self._unsaved]

    def save(self, *, at_least: int = 1) -> bool:
        """Write a segment if it would have that many commits. Return whether it was written."""
        if len(self._unsaved) < at_least:
            return False
        number = self._number + 1
        text = json.dumps(
            {
                "format": FORMAT,
                "number": number,
                "position": self._position,
                "table_id": self._table_id,
                "state": self._state.to_fields(),
                "commits": [one.to_json() for one in self._unsaved],
                "changes": [
                    {"version": one.version, "operation": one.operation} for one in self._changes
                ],
            },
            separators=(",", ":"),
        )
        try:
            self._files.create_text(self._file(number), text)
        except FileExistsError:
            return False  # of another driver. The next start reads it.
        self._number = number
        self._recent = {}
        self._remember(self._unsaved)
        self._unsaved = []
        return True

    def _remember(self, commits: Iterable[BatchCommit]) -> None:
        for commit in commits:
            self._recent[commit.query_id, commit.batch_id] = commit

    def _numbers(self) -> list[int]:
        names = (name.removesuffix(".json") for name in self._files.list_names(self._path))
        return [int(name) for name in names if name.isdigit()]

    def _file(self, number: int) -> str:
        return f"{self._path}/{number}.json"

    def _read(self, number: int) -> dict[str, Any]:
        path = self._file(number)
        try:
            fields = json.loads(self._files.read_text(path))
            if fields["format"] != FORMAT:
                raise ValueError(f"format {fields['format']} is unknown")
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise PipelineError(
                f"The ledger file {path} cannot be read: {error}. Use the version that wrote it, or"
                f" move {self._path} away: the next start then reads the table's own history."
            ) from error
        assert isinstance(fields, dict)
        return fields
