"""Owners of a Parquet directory: each batch is committed once, in every interleaving of two owners.

The rows of a batch are one file with the number of the epoch that wrote it.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.batch_directories import BatchDirectories
from odradek.pipeline.sinks.local_files import LocalFiles


class HookedFiles(LocalFiles):
    """Local files that call a hook before each change."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before

    def exists(self, path: str) -> bool:
        self._before()
        return super().exists(path)

    def list_names(self, path: str) -> list[str]:
        self._before()
        return super().list_names(path)

    def delete(self, path: str) -> None:
        self._before()
        super().delete(path)

    def make_directory(self, path: str) -> None:
        self._before()
        super().make_directory(path)

    def rename_directory(self, old: str, new: str) -> None:
        self._before()
        super().rename_directory(old, new)

    def move_file(self, old: str, new: str) -> None:
        self._before()
        super().move_file(old, new)

    def create_text(self, path: str, text: str) -> None:
        self._before()
        super().create_text(path, text)


class Replaced(PipelineError):
    """The check of a driver found a higher epoch."""


class Lake:
    """A table directory on which drivers of several epochs work."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch = 0

    def claim(self) -> int:
        self.epoch += 1
        return self.epoch

    def check(self, epoch: int, before: Callable[[], None] = lambda: None) -> Callable[[], None]:
        def check() -> None:
            before()
            if self.epoch > epoch:
                raise Replaced(str(epoch))

        return check

    def directories(self, before: Callable[[], None] = lambda: None) -> BatchDirectories:
        return BatchDirectories(HookedFiles(before), str(self.path))

    def write_rows(self, epoch: int, number: int) -> None:
        staging = Path(self.directories().staging(epoch, number))
        staging.mkdir(parents=True, exist_ok=True)
        (staging / "part-0.parquet").write_text(str(epoch))

    def write_batch(
        self, epoch: int, number: int, before: Callable[[], None] = lambda: None
    ) -> None:
        """Commit a batch as one driver does it: start, rows, commit. Skip it if it is committed."""
        directories = self.directories(before)
        check = self.check(epoch, before)
        directories.take_over(epoch, check)
        if number not in directories.committed():
            self.write_rows(epoch, number)
            directories.publish(epoch, number, str(epoch), check)

    def committed(self) -> dict[int, tuple[str, str]]:
        """Return the commit and the rows of each number."""
        directories = self.directories()
        return {
            number: (
                Path(directories.commit_file(number)).read_text(),
                Path(directories.directory(number), "part-0.parquet").read_text(),
            )
            for number in directories.committed()
        }

    def unread(self) -> list[str]:
        """Return the directories of batches that have no commit."""
        names = {path.name for path in self.path.glob("batch_id=*")}
        return sorted(names - {f"batch_id={number}" for number in self.committed()})


def test_batch_is_committed_with_the_rows_of_its_owner(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write_batch(lake.claim(), 0)
    assert lake.committed() == {0: ("1", "1")}
    assert list((tmp_path / "_staging" / "1").iterdir()) == []


def test_commit_whose_rows_were_removed_stops_the_next_owner(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write_batch(lake.claim(), 0)
    lake.write_batch(lake.claim(), 1)
    shutil.rmtree(tmp_path / "batch_id=0")
    with pytest.raises(PipelineError, match=r"batch_id=0 is missing, and .* has its commit"):
        lake.write_batch(lake.claim(), 2)
    assert (tmp_path / "batch_id=1").exists()


class Crash(Exception):
    """The end of a driver at a point of the test."""


def crash_at(step: int) -> Callable[[], None]:
    steps = iter(range(step))

    def before() -> None:
        if next(steps, None) is None:
            raise Crash

    return before


def steps_of_a_batch(tmp_path: Path) -> int:
    """Return how many operations a driver makes for one batch."""
    count = 0

    def before() -> None:
        nonlocal count
        count += 1

    lake = Lake(tmp_path / "count")
    lake.write_batch(lake.claim(), 0, before)
    shutil.rmtree(tmp_path / "count")
    return count


def test_crash_before_any_operation_leaves_nothing_that_is_read_or_kept(tmp_path: Path) -> None:
    for step in range(steps_of_a_batch(tmp_path)):
        lake = Lake(tmp_path / str(step))
        with pytest.raises(Crash):
            lake.write_batch(lake.claim(), 0, crash_at(step))
        lake.write_batch(lake.claim(), 0)
        lake.write_batch(lake.claim(), 1)
        assert lake.committed() in ({0: ("1", "1"), 1: ("3", "3")}, {0: ("2", "2"), 1: ("3", "3")})
        assert lake.unread() == []
        assert [path.name for path in (lake.path / "_staging").iterdir()] == ["3"]


class Driver(threading.Thread):
    """A driver that claims the directory, commits batch 0, and waits before each operation."""

    def __init__(self, lake: Lake) -> None:
        super().__init__()
        self._lake = lake
        self._permits = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self.outcome = ""

    def run(self) -> None:
        try:
            self._lake.write_batch(self._lake.claim(), 0, self._before)
            self.outcome = "done"
        except Replaced:
            self.outcome = "replaced"
        except Exception as error:  # noqa: BLE001 - the test compares it
            self.outcome = repr(error)
        finally:
            self._paused.release()

    def _before(self) -> None:
        self._paused.release()
        self._permits.acquire()

    def step(self, operations: int) -> None:
        """Let the driver perform a number of operations, or end before."""
        if not self.outcome and self.ident is None:
            self.start()
            self._paused.acquire()
        for _ in range(operations):
            if self.outcome:
                return
            self._permits.release()
            self._paused.acquire()


def test_two_owners_commit_a_batch_once_in_every_interleaving(tmp_path: Path) -> None:
    """The first driver pauses, the second one pauses, and then each of them goes on to its end."""
    steps = steps_of_a_batch(tmp_path)
    outcomes: Counter[tuple[str, str]] = Counter()
    for before, between in itertools.product(range(steps), range(steps + 4)):
        lake = Lake(tmp_path / f"{before}-{between}")
        first, second = Driver(lake), Driver(lake)
        for driver, operations in ((first, before), (second, between), (first, 99), (second, 99)):
            driver.step(operations)
        first.join()
        second.join()
        assert second.outcome == "done", (before, between)
        assert first.outcome in ("done", "replaced"), (before, between)
        commit, rows = lake.committed()[0]
        assert commit == rows, (before, between)
        outcomes[first.outcome, commit] += 1
        lake.write_batch(lake.claim(), 1)
        assert lake.committed() == {0: (commit, rows), 1: ("3", "3")}
        assert lake.unread() == []
    # The first driver commits before the second one claims, or during its start, or never.
    assert outcomes.keys() == {("done", "1"), ("replaced", "2")}
