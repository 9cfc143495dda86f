"""Files of a local file system, created and renamed without overwriting anything.

Hadoop's local file system looks whether a file exists, and then creates or renames it. Two
processes can both succeed, and a directory is moved into an existing one. This module uses the
system calls that decide atomically: link for files, and rename for directories, which fails if the
target has content.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


class LocalFiles:
    """Files of this host. Each method raises OSError if the file system fails."""

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def list_names(self, path: str) -> list[str]:
        """Return the names in the directory `path`, or an empty list if it does not exist."""
        try:
            return [one.name for one in Path(path).iterdir()]
        except FileNotFoundError:
            return []

    def delete(self, path: str) -> None:
        """Remove `path` and its content. Do nothing if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            if Path(path).is_dir():
                shutil.rmtree(path)
            else:
                Path(path).unlink()

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents. Do nothing if it exists."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def rename_directory(self, old: str, new: str) -> None:
        """Rename a directory. The parent of `new` must exist.

        Raises:
            FileExistsError: `new` exists and is not an empty directory.
            FileNotFoundError: `old` or the parent of `new` does not exist.
        """
        try:
            Path(old).rename(new)
        except (FileExistsError, NotADirectoryError) as error:
            raise FileExistsError(new) from error
        except OSError as error:
            if self.exists(new) and self.list_names(new):  # ENOTEMPTY
                raise FileExistsError(new) from error
            raise

    def move_file(self, old: str, new: str) -> None:
        """Move a file. The parent of `new` must exist.

        Raises:
            FileExistsError: `new` exists.
            FileNotFoundError: `old` or the parent of `new` does not exist.
        """
        os.link(old, new)
        Path(old).unlink(missing_ok=True)
        _sync_directory(new)

    def read_text(self, path: str) -> str:
        return Path(path).read_text(encoding="utf-8")

    def create_text(self, path: str, text: str) -> None:
        """Create a file with its whole content.

        Raises:
            FileExistsError: The file exists.
        """
        staged = _write_beside(path, text)
        try:
            os.link(staged, path)
        finally:
            staged.unlink()
        _sync_directory(path)

    def replace_text(self, path: str, text: str) -> None:
        """Write a file atomically, whether it exists or not."""
        _write_beside(path, text).replace(path)
        _sync_directory(path)


def _write_beside(path: str, text: str) -> Path:
    """Write a file with a name of its own into the directory of `path`, and sync it."""
    parent = Path(path).parent
    parent.mkdir(parents=True, exist_ok=True)
    descriptor, staged = tempfile.mkstemp(dir=parent, prefix=".", suffix=".tmp")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(staged).chmod(0o666 & ~_umask())
    return Path(staged)


def _umask() -> int:
    """Return the umask, without changing it for other threads."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077


def _sync_directory(path: str) -> None:
    descriptor = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
