"""Segments of the ledger: the cost of a start, lost history, and tables that do not belong."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.ledger.state import fold
from odradek.pipeline.ledger.store import SEGMENT_COMMITS, LedgerStore, TableChange, Tail
from tests.pipeline.table_ledger.files import FilesInMemory
from tests.pipeline.table_ledger.test_state import commit

PATH = "/lake/ledger/table"


class Table:
    """A table's history: one commit or change for each version. `reads` counts read versions."""

    def __init__(self) -> None:
        self.versions: list[BatchCommit | TableChange] = []
        self.removed = 0
        self.reads = 0
        self.table_id = "a"

    def append(self, batch_id: int) -> None:
        self.versions.append(commit(batch_id, 10 * batch_id, 10 * batch_id + 10))

    def tail(self, position: int) -> Tail:
        commits: list[BatchCommit] = []
        changes: list[TableChange] = []
        for version in range(max(position + 1, self.removed), len(self.versions)):
            self.reads += 1
            one = self.versions[version]
            if isinstance(one, BatchCommit):
                commits.append(one)
                changes = []
            else:
                changes.append(one)
        return Tail(len(self.versions) - 1, tuple(commits), tuple(changes), self.table_id)


def open_store(files: FilesInMemory, table: Table) -> LedgerStore:
    store = LedgerStore(files, PATH, "/lake/table", table.tail)
    store.load()
    return store


def run(files: FilesInMemory, table: Table, batches: range) -> None:
    """Commit batches as a driver does it, which ends without a segment."""
    store = open_store(files, table)
    store.save()
    for batch_id in batches:
        table.append(batch_id)
        store.refresh()
        store.save(at_least=SEGMENT_COMMITS)


@pytest.mark.parametrize("batches", [SEGMENT_COMMITS, 20 * SEGMENT_COMMITS])
def test_start_reads_one_segment_and_the_tail_after_few_and_after_many_commits(
    batches: int,
) -> None:
    files, table = FilesInMemory(), Table()
    run(files, table, range(batches + 30))
    table.reads = files.reads = 0
    store = open_store(files, table)
    assert (table.reads, files.reads) == (30, 1)
    assert store.state == fold(one for one in table.versions if isinstance(one, BatchCommit))
    assert store.commits() == table.versions
    assert store.find("q", batches + 29) == table.versions[-1]
    assert store.find("q", 3) == table.versions[3]
    assert store.find("q", batches + 30) is None


def test_size_of_a_segment_does_not_grow_with_the_number_of_commits() -> None:
    files, table = FilesInMemory(), Table()
    run(files, table, range(20 * SEGMENT_COMMITS))
    sizes = [len(files.texts[f"{PATH}/{number}.json"]) for number in (2, 20)]
    assert sizes[1] < 1.1 * sizes[0]


def test_ledger_outlives_the_history_of_the_table() -> None:
    files, table = FilesInMemory(), Table()
    run(files, table, range(250))
    open_store(files, table).save()
    table.removed = 240
    store = open_store(files, table)
    assert store.state.commits == 250
    assert next(iter(store.state.partitions.values())).gaps.count == 0
    assert store.commits() == table.versions
    files.texts.clear()
    store = open_store(files, table)
    assert store.state.commits == 10


def test_segments_are_a_pure_function_of_the_commits() -> None:
    """A second driver that finds its number taken changes nothing and stays right."""
    files, table = FilesInMemory(), Table()
    stores = [open_store(files, table) for _ in range(2)]
    for batch_id in range(5):
        table.append(batch_id)
    for store in stores:
        store.refresh()
    assert [store.save() for store in stores] == [True, False]
    assert stores[1].commits()[-5:] == table.versions
    assert open_store(files, table).state == stores[1].state


def test_changes_by_others_are_named_until_the_next_commit() -> None:
    files, table = FilesInMemory(), Table()
    run(files, table, range(3))
    table.versions.append(TableChange(3, "DELETE"))
    store = open_store(files, table)
    assert store.changes == (TableChange(3, "DELETE"),)
    store.save()
    table.versions.append(TableChange(4, "RESTORE"))
    store = open_store(files, table)
    assert [one.text() for one in store.changes] == ["DELETE in version 3", "RESTORE in version 4"]
    table.append(3)
    store.refresh()
    assert store.changes == ()


def test_older_copy_of_the_table_is_refused() -> None:
    files, table = FilesInMemory(), Table()
    run(files, table, range(5))
    open_store(files, table).save()
    del table.versions[3:]
    with pytest.raises(PipelineError, match=r"has version 2, and .* recorded version 4"):
        open_store(files, table)


def test_another_table_at_the_path_is_refused() -> None:
    files, table = FilesInMemory(), Table()
    run(files, table, range(5))
    open_store(files, table).save()
    table.table_id = "b"
    with pytest.raises(PipelineError, match="replaced by another one"):
        open_store(files, table)


@pytest.mark.parametrize("text", ["{", "{}", '{"format": 2}', "[]"])
def test_segment_that_cannot_be_read_is_an_error_that_names_it(text: str) -> None:
    files, table = FilesInMemory(), Table()
    files.texts[f"{PATH}/1.json"] = text
    with pytest.raises(PipelineError, match=f"{PATH}/1.json cannot be read") as refused:
        open_store(files, table)
    assert "\n" not in str(refused.value)


def test_segment_keeps_whole_commits() -> None:
    files, table = FilesInMemory(), Table()
    whole = replace(commit(0, 0, 10, rejected=3), topic_ids={"t": "id-of-t"}, epoch=7)
    table.versions.append(whole)
    open_store(files, table).save()
    assert json.loads(files.texts[f"{PATH}/1.json"])["position"] == 0
    assert open_store(files, table).commits() == [whole]
