"""A rebuilt checkpoint continues at the end of the ledger, after a crash at each step too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.rebuild import Rebuilt, range_options, rebuild, write_checkpoint
from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange
from odradek.pipeline.sinks.local_files import LocalFiles
from tests.pipeline.commits import write
from tests.pipeline.table_ledger.files import FilesInMemory
from tests.pipeline.table_ledger.tables import TableInMemory, open_table
from tests.pipeline.table_ledger.test_state import commit

ROWS: Any = "rows"


class Lake:
    """A directory with a table and a quarantine in memory, and a real checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = FilesInMemory()
        self.table, self.quarantine = TableInMemory(), TableInMemory()
        self.epoch = 0
        self.read_again: list[tuple[PlannedRange, ...]] = []

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(LocalFiles(), f"{self.path}/checkpoint")

    def rebuild(self, files: LocalFiles | None = None) -> Rebuilt:
        self.epoch += 1

        def read_rejected(planned: tuple[PlannedRange, ...]) -> Any:
            self.read_again.append(planned)
            return "rejected again"

        return rebuild(
            open_table(self.table, self.files, epoch=self.epoch),
            open_table(self.quarantine, self.files, "quarantine", epoch=self.epoch),
            files or LocalFiles(),
            f"{self.path}/checkpoint",
            ("t",),
            self.epoch,
            read_rejected,
        )


def loaded(path: Path, *, quarantined: bool = True) -> Lake:
    """Return a directory with two batches, the second of which has rejected records."""
    lake = Lake(path)
    table = open_table(lake.table, lake.files)
    write(table, ROWS, commit(0, 0, 10))
    write(table, ROWS, commit(1, 10, 20, rejected=3))
    if quarantined:
        write(open_table(lake.quarantine, lake.files, "quarantine"), ROWS, commit(1, 10, 20))
    lake.epoch = 1
    write_checkpoint(LocalFiles(), f"{path}/checkpoint", "q", {"t": {"0": 0}}, 0)
    return lake


def test_new_query_begins_at_the_next_offsets(tmp_path: Path) -> None:
    lake = loaded(tmp_path)
    rebuilt = lake.rebuild()
    assert lake.checkpoint.query_id() == rebuilt.query_id != "q"
    assert not lake.checkpoint.has_finished_batch()
    start = LocalFiles().read_text(f"{tmp_path}/checkpoint/sources/0/0")
    assert start == '\0v1\n{"t": {"0": 20}}'
    assert rebuilt.old_checkpoint is not None
    assert Checkpoint(LocalFiles(), rebuilt.old_checkpoint).query_id() == "q"
    assert lake.read_again == []


def test_batches_of_the_new_query_follow_in_number_and_offset(tmp_path: Path) -> None:
    lake = loaded(tmp_path)
    for _ in range(2):  # the second rebuild replaces a query without batches
        query_id = lake.rebuild().query_id
    for role, sink in (("table", lake.table), ("quarantine", lake.quarantine)):
        table = open_table(sink, lake.files, role, epoch=9)
        batch = commit(0, 20, 25)
        fields = {name: getattr(batch, name) for name in ("rows", "ranges", "planned")}
        write(table, ROWS, BatchCommit(query_id, 0, **fields, cluster_id="c", topic_ids={}))
        commits = [one for one in sink.versions if isinstance(one, BatchCommit)]
        numbers = [one.number for one in commits]
        first = 0 if role == "table" else 1
        assert numbers == list(range(first, first + len(commits)))
        [partition] = table.store.state.partitions.values()
        assert partition.next_offset == 25
        assert (partition.gaps.count, partition.overlaps.count) == (0, 0)


def test_rejected_records_that_the_quarantine_lacks_are_read_again(tmp_path: Path) -> None:
    """A crash came between the commits of table and quarantine."""
    lake = loaded(tmp_path, quarantined=False)
    lake.rebuild()
    assert lake.read_again == [(PlannedRange("t", 0, 10, 20),)]
    assert lake.quarantine.rows == ["rejected again"]
    [stored] = [
        one
        for one in lake.quarantine.versions
        if isinstance(one, BatchCommit) and not one.is_rebuild
    ]
    assert (stored.query_id, stored.batch_id, stored.rows) == ("q", 1, 3)


def test_batch_that_the_old_driver_commits_late_is_refused(tmp_path: Path) -> None:
    lake = loaded(tmp_path)
    late = open_table(lake.table, lake.files)
    lake.rebuild()
    with pytest.raises(PipelineError, match="after its commit"):
        write(late, ROWS, commit(2, 20, 30))


class Crash(Exception):
    """The end of the process at a point of the test."""


class CrashingFiles(LocalFiles):
    """Local files that stop at the n-th change."""

    def __init__(self, changes: int) -> None:
        self._left = changes

    def _count(self) -> None:
        if self._left == 0:
            raise Crash
        self._left -= 1

    def make_directory(self, path: str) -> None:
        self._count()
        super().make_directory(path)

    def create_text(self, path: str, text: str) -> None:
        self._count()
        super().create_text(path, text)

    def rename_directory(self, old: str, new: str) -> None:
        self._count()
        super().rename_directory(old, new)


def test_rebuild_that_crashed_at_any_file_is_repeated(tmp_path: Path) -> None:
    changes = 0
    while True:
        lake = loaded(tmp_path / str(changes), quarantined=False)
        try:
            lake.rebuild(CrashingFiles(changes))
        except Crash:
            query_id = lake.rebuild().query_id
            assert lake.checkpoint.query_id() == query_id
            assert lake.quarantine.rows == ["rejected again"]
            start = LocalFiles().read_text(f"{lake.path}/checkpoint/sources/0/0")
            assert start == '\0v1\n{"t": {"0": 20}}'
            changes += 1
        else:
            break
    assert changes == 7


class CrashingTable(TableInMemory):
    """A table that stops before or after the n-th change of the rebuild."""

    def __init__(self, table: TableInMemory, left: list[int]) -> None:
        super().__init__()
        self.__dict__.update(table.__dict__)
        self._left = left

    def _count(self) -> None:
        self._left[0] -= 1
        if self._left[0] < 0:
            raise Crash

    def append(self, rows: Any, draft: BatchCommit, complete: Any, check: Any) -> None:
        self._count()
        super().append(rows, draft, complete, check)
        self._count()

    def fence(self, query_id: str) -> None:
        self._count()
        super().fence(query_id)
        self._count()

    def begin(self, commit: BatchCommit, check: Any) -> None:
        self._count()
        super().begin(commit, check)
        self._count()


def test_rebuild_that_crashed_at_any_commit_of_a_table_is_repeated(tmp_path: Path) -> None:
    changes = 0
    while True:
        lake = loaded(tmp_path / str(changes), quarantined=False)
        table, quarantine = lake.table, lake.quarantine
        left = [changes]
        lake.table, lake.quarantine = CrashingTable(table, left), CrashingTable(quarantine, left)
        try:
            lake.rebuild()
        except Crash:
            left[0] = 1000
            query_id = lake.rebuild().query_id
            assert lake.checkpoint.query_id() == query_id
            assert lake.quarantine.rows == ["rejected again"]
            assert open_table(lake.table, lake.files, epoch=9).store.state.query_id == query_id
            changes += 1
        else:
            break
    assert changes == 10


def test_table_that_is_older_than_its_quarantine_is_refused(tmp_path: Path) -> None:
    """The rejected records would be loaded again."""
    lake = loaded(tmp_path)
    del lake.table.versions[1:]
    lake.files.texts.clear()
    with pytest.raises(PipelineError, match="up to offset 19, and the table has it up to offset 9"):
        lake.rebuild()
    assert lake.table.fenced == set()


def test_directory_without_a_commit_needs_no_rebuilt_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no commit to continue from"):
        Lake(tmp_path).rebuild()


def test_source_reads_exactly_the_planned_offsets() -> None:
    planned = (PlannedRange("t", 0, 1, 5), PlannedRange("t", 2, 0, 3), PlannedRange("u", 0, 7, 8))
    assert range_options(planned) == {
        "assign": '{"t": [0, 2], "u": [0]}',
        "startingOffsets": '{"t": {"0": 1, "2": 0}, "u": {"0": 7}}',
        "endingOffsets": '{"t": {"0": 5, "2": 3}, "u": {"0": 8}}',
    }
