"""Directories of the batches of a Parquet table, each committed by one owner.

    table/
      batch_id=0/part-*.parquet       the rows of commit 0
      _commits/0.json                 the commit, written after the rows
      _staging/3/batch_id=2/...       rows that the owner of epoch 3 is writing
      _staging/3/2.json               their commit
      _moves/3                        directories that the owner of epoch 3 is removing

A batch is committed when its commit file exists. The owner writes rows and commit under its own
staging directory, checks that it still owns the table, moves the rows to `batch_id=N`, and then
moves the commit to `_commits/N.json`. Neither move overwrites anything. A committed batch is never
changed or moved again.

A new owner first renames `_staging` and `_moves` of lower epochs and removes them. That rename is
the fence: each change that an owner makes outside of these two directories is a move out of the
first or into the second, which fails without it. A driver that creates its staging directory again,
later, finds the higher epoch in its check. `_moves` is created at the start of an owner only. The
new owner then removes directories without a commit, which no other owner can commit.

States after a crash:

- before the first move: rows in `_staging`, which no reader reads,
- between the moves: a directory without a commit. `ParquetSink.read` does not read it.

The next owner removes both, and Spark repeats the batch. On an object store a rename is not atomic
and neither is the fence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek.pipeline.errors import PipelineError

PREFIX = "batch_id="
ORPHANS_MAX = 3
"""Largest number of directories that are moved away before one commit."""


class TableFiles(Protocol):
    """The file operations of a table (`sinks.files.HadoopFiles`, `sinks.local_files`)."""

    def exists(self, path: str) -> bool: ...

    def list_names(self, path: str) -> list[str]: ...

    def delete(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None: ...

    def rename_directory(self, old: str, new: str) -> None: ...

    def move_file(self, old: str, new: str) -> None: ...

    def create_text(self, path: str, text: str) -> None: ...


class BatchDirectories:
    """The directories of the Parquet table at `path`."""

    def __init__(self, files: TableFiles, path: str) -> None:
        self._files = files
        self._path = path

    def committed(self) -> list[int]:
        """Return the numbers of the commits, in order."""
        names = self._files.list_names(f"{self._path}/_commits")
        numbers = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return sorted(int(one) for one in numbers if one.isdigit())

    def directory(self, number: int) -> str:
        return f"{self._path}/{PREFIX}{number}"

    def commit_file(self, number: int) -> str:
        return f"{self._path}/_commits/{number}.json"

    def staging(self, epoch: int, number: int) -> str:
        """Return the directory to which the owner of an epoch writes the rows of a commit."""
        return f"{self._staging(epoch)}/{PREFIX}{number}"

    def _staging(self, epoch: int) -> str:
        return f"{self._path}/_staging/{epoch}"

    def _moves(self, epoch: int) -> str:
        return f"{self._path}/_moves/{epoch}"

    def take_over(self, epoch: int, check: Callable[[], None]) -> None:
        """Fence earlier owners, and remove the batches that they did not commit.

        Args:
            epoch: The epoch that this driver has claimed.
            check: Raises PipelineError if there is a higher epoch.

        Raises:
            PipelineError: There is a higher epoch, or a commit has no rows.
        """
        self._files.make_directory(f"{self._path}/_commits")
        self._files.make_directory(self._staging(epoch))
        self._files.make_directory(self._moves(epoch))
        check()
        for parent in ("_staging", "_moves"):
            self._fence(f"{self._path}/{parent}", epoch)
        committed, directories = set(self.committed()), self._directories()
        if missing := committed - directories:
            raise PipelineError(
                f"{self.directory(min(missing))} is missing, and {self._path} has its commit."
                " Another program removed its rows. Bring the directory back, or ingest into"
                " another table directory."
            )
        for number in sorted(directories - committed):
            self._move_away(epoch, number, check)

    def _directories(self) -> set[int]:
        names = self._files.list_names(self._path)
        numbers = (name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX))
        return {int(one) for one in numbers if one.isdigit()}

    def _fence(self, parent: str, epoch: int) -> None:
        for name in self._files.list_names(parent):
            if name.isdigit() and int(name) >= epoch:
                continue
            fenced = f"{parent}/removed-by-{epoch}-{name}"
            try:
                self._files.rename_directory(f"{parent}/{name}", fenced)
            except FileNotFoundError:
                continue
            self._files.delete(fenced)

    def _move_away(self, epoch: int, number: int, check: Callable[[], None]) -> None:
        """Remove a directory without a commit, unless this driver has been replaced."""
        orphan = f"{self._moves(epoch)}/{PREFIX}{number}"
        self._files.delete(orphan)
        try:
            self._files.rename_directory(self.directory(number), orphan)
        except FileNotFoundError:
            check()
            raise
        self._files.delete(orphan)

    def publish(self, epoch: int, number: int, commit: str, check: Callable[[], None]) -> None:
        """Commit the rows in `staging`.

        Args:
            epoch: The epoch of this driver.
            number: The number of the commit.
            commit: The content of the commit file.
            check: Raises PipelineError if there is a higher epoch.

        Raises:
            PipelineError: Another driver owns the table, or has committed this number.
        """
        staged = f"{self._staging(epoch)}/{number}.json"
        self._files.delete(staged)
        self._files.create_text(staged, commit)
        check()
        try:
            self._move_rows(epoch, number, check)
            self._files.move_file(staged, self.commit_file(number))
        except (FileExistsError, FileNotFoundError) as error:
            check()
            raise PipelineError(
                f"{self._path} was changed by another program during commit {number}: {error}."
                " Run one ingest for each directory, and start this one again."
            ) from error

    def _move_rows(self, epoch: int, number: int, check: Callable[[], None]) -> None:
        for _ in range(ORPHANS_MAX):
            try:
                self._files.rename_directory(self.staging(epoch, number), self.directory(number))
                return
            except FileExistsError:
                if self._files.exists(self.commit_file(number)):
                    raise
                self._move_away(epoch, number, check)
        self._files.rename_directory(self.staging(epoch, number), self.directory(number))
