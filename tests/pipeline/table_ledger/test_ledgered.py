"""A table with its ledger: written once, skipped, or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.store import SEGMENT_COMMITS, TableChange
from tests.pipeline.commits import append, write
from tests.pipeline.table_ledger.files import FilesInMemory
from tests.pipeline.table_ledger.tables import TableInMemory, open_table
from tests.pipeline.table_ledger.test_state import commit

ROWS: Any = "rows"


def test_batch_is_written_once_also_by_the_next_owner() -> None:
    sink, files = TableInMemory(), FilesInMemory()
    table = open_table(sink, files)
    assert [write(table, ROWS, commit(0, 0, 10)) for _ in range(2)] == [True, False]
    later = open_table(sink, files, epoch=2)
    assert not write(later, ROWS, commit(0, 0, 10))
    assert write(later, ROWS, commit(1, 10, 15))
    assert (len(sink.rows), sink.epochs) == (2, [1, 2])


def test_old_batch_is_found_in_an_old_segment() -> None:
    sink, files = TableInMemory(), FilesInMemory()
    table = open_table(sink, files)
    for n in range(2 * SEGMENT_COMMITS + 5):
        write(table, ROWS, commit(n, n, n + 1))
    assert len(files.list_names("/lake/ledger/table")) == 2
    later = open_table(sink, files, epoch=2)
    assert not write(later, ROWS, commit(3, 3, 4))
    with pytest.raises(PipelineError, match="t-0 had offsets 3 to 3 and now has offsets 3 to 8"):
        write(later, ROWS, commit(3, 3, 9))


def test_old_versions_are_removed_only_when_the_ledger_has_saved_their_commits() -> None:
    sink, files = TableInMemory(), FilesInMemory()
    table = open_table(sink, files)
    unsaved: list[int] = []

    def expire() -> None:
        saved = sum(len(json.loads(text)["commits"]) for text in files.texts.values())
        unsaved.append(len(sink.versions) - saved)

    sink.on_expire = expire
    for n in range(SEGMENT_COMMITS + 5):
        write(table, ROWS, commit(n, n, n + 1))
    open_table(sink, files, epoch=2)
    assert unsaved == [0, 0]


@pytest.mark.parametrize(
    ("start", "end", "match"), [(12, 20, "leave a gap after"), (5, 20, "would repeat")]
)
def test_batch_that_does_not_continue_the_ledger_is_refused(
    start: int, end: int, match: str
) -> None:
    sink = TableInMemory()
    table = open_table(sink, FilesInMemory())
    write(table, ROWS, commit(0, 0, 10))
    with pytest.raises(PipelineError, match=match) as refused:
        write(table, ROWS, commit(1, start, end))
    is_gap = start > 10
    assert ("The table is an older copy" in str(refused.value)) == is_gap
    assert ("The checkpoint was restored" in str(refused.value)) != is_gap
    assert len(sink.rows) == 1


def test_quarantine_has_only_some_batches() -> None:
    quarantine = open_table(TableInMemory(), FilesInMemory(), "quarantine")
    assert write(quarantine, ROWS, commit(0, 0, 10))
    assert write(quarantine, ROWS, commit(5, 50, 60))


def test_driver_that_was_replaced_stops_before_it_writes() -> None:
    sink = TableInMemory()
    is_replaced = False

    def check() -> None:
        if is_replaced:
            raise PipelineError("replaced")

    table = open_table(sink, FilesInMemory(), check=check)
    write(table, ROWS, commit(0, 0, 10))
    is_replaced = True
    with pytest.raises(PipelineError, match="replaced"):
        write(table, ROWS, commit(1, 10, 20))
    assert len(sink.rows) == 1


def test_batch_that_another_driver_wrote_in_the_meantime_is_skipped_if_it_is_the_same() -> None:
    sink = TableInMemory()
    table = open_table(sink, FilesInMemory())
    append(sink, ROWS, commit(0, 0, 10), lambda: None)
    assert not write(table, ROWS, commit(0, 0, 10))
    append(sink, ROWS, commit(1, 10, 12), lambda: None)
    with pytest.raises(PipelineError, match="had offsets 10 to 11 and now has offsets 10 to 19"):
        write(table, ROWS, commit(1, 10, 20))


def test_batch_that_the_table_skips_without_an_error_stops_the_job() -> None:
    sink = TableInMemory()
    table = open_table(sink, FilesInMemory())
    sink.fence("q")
    with pytest.raises(PipelineError, match="Batch 0 is not in /lake/table after its commit"):
        write(table, ROWS, commit(0, 0, 10))


def test_change_by_another_program_stops_the_job_until_it_is_accepted() -> None:
    sink, files = TableInMemory(), FilesInMemory()
    table = open_table(sink, files)
    write(table, ROWS, commit(0, 0, 10))
    sink.versions.append(TableChange(1, "DELETE"))
    with pytest.raises(PipelineError, match=r"changed /lake/table since .*: DELETE in version 1"):
        write(table, ROWS, commit(1, 10, 20))
    with pytest.raises(PipelineError, match="DELETE in version 1") as refused:
        open_table(sink, files, epoch=2)
    assert "\n" not in str(refused.value)
    table = open_table(sink, files, epoch=3, accept_changes=True)
    write(table, ROWS, commit(1, 10, 20))
    assert table.store.state.accepted_changes == ("DELETE in version 1",)
    write(open_table(sink, files, epoch=4), ROWS, replace(commit(2, 20, 30), epoch=4))
