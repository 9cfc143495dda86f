"""A file system that loses what was not synced, tears writes, fills up and fails to sync.

It works on real files, so that descriptors, regions and sendfile are real; what a power cut would
leave is kept beside: of each file its content at its last fsync. `crash` puts the files into a
state that a power cut may leave: all that was synced, and of the rest a part, with holes.

With `loses_names` the names of files and directories are lost like the content of files: of what
was created, renamed and removed since the last `fsync_dir` of its directory any part may be undone,
in whatever order it was done, for a file system may write down metadata as it likes. Two rules
bound it: a rename happens whole or not at all, and what builds on a lost change, for it is about
the same name, is lost too. A new directory whose name is lost takes along all that is in it,
however well that was synced. A removed directory may come back with any part of its files.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from odradek.environment.files import RealFiles

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Removed:
    """A file that lost its name: its content, and what of it was synced."""

    content: bytes
    synced: bytes | None


@dataclass(frozen=True, slots=True)
class NameChange:
    """A change of a directory that is not on the disk yet, with the data that undoes it."""

    path: str
    """The name that was created or removed, or the one that a file got."""
    source: str | None = None
    """The name that the file had before, when it was renamed."""
    removed: Removed | None = None
    """What had the name `path` before."""
    tree: tuple[tuple[str, Removed], ...] | None = None
    """The files of the directory that had the name `path` before, with their relative paths."""

    def names(self) -> set[str]:
        return {self.path} if self.source is None else {self.path, self.source}

    def moved(self, source: str, target: str) -> NameChange:
        """The change after the directory `source` was renamed to `target`."""
        if not self.path.startswith(source + "/"):
            return self
        old = self.source
        return replace(
            self,
            path=target + self.path[len(source) :],
            source=None if old is None else target + old[len(source) :],
        )

    def created(self) -> bool:
        return self.source is None and self.removed is None and self.tree is None


class FaultyFiles:
    """See the module. Fault settings are plain attributes; each is used up when it strikes."""

    def __init__(self, *, loses_names: bool = False) -> None:
        self._real = RealFiles()
        self._loses_names = loses_names
        self._unsynced_names: list[NameChange] = []
        self._paths: dict[int, str] = {}
        self._synced: dict[str, bytes] = {}
        self.space_left: int | None = None
        """Bytes that may still be written before ENOSPC; None without limit."""
        self.fail_fsync: OSError | None = None
        self.fail_pwrite: OSError | None = None
        self.fsyncs = 0
        self.writes = 0

    # -- what the log calls ------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        if self.space_left == 0 and flags & os.O_CREAT and not Path(path).exists():
            raise OSError(errno.ENOSPC, "no space for a file", path)
        if self._loses_names and flags & os.O_CREAT and not Path(path).exists():
            self._unsynced_names.append(NameChange(path))
        fd = self._real.open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        os.close(fd)

    nowait = RealFiles.nowait
    sends_files = RealFiles.sends_files
    preadv = staticmethod(RealFiles.preadv)
    sendfile = staticmethod(RealFiles.sendfile)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        return os.pread(fd, length, position)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        self.writes += 1
        if self.fail_pwrite is not None:
            error, self.fail_pwrite = self.fail_pwrite, None
            raise error
        if self.space_left is None:
            return os.pwrite(fd, data, position)
        if self.space_left == 0 and len(data):
            raise OSError(errno.ENOSPC, "no space left")
        written = os.pwrite(fd, memoryview(data)[: self.space_left], position)
        self.space_left -= written
        return written

    def ftruncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def allocate(self, fd: int, position: int, length: int) -> bool:
        return self.space_left is None and self._real.allocate(fd, position, length)

    def fsync(self, fd: int) -> None:
        self.fsyncs += 1
        if self.fail_fsync is not None:
            error, self.fail_fsync = self.fail_fsync, None
            raise error
        path = self._paths[fd]
        if Path(path).exists():
            self._synced[path] = Path(path).read_bytes()

    def fsync_dir(self, path: str) -> None:
        if self.fail_fsync is not None:
            error, self.fail_fsync = self.fail_fsync, None
            raise error
        self._unsynced_names = [
            change for change in self._unsynced_names if Path(change.path).parent != Path(path)
        ]

    def replace(self, source: str, target: str) -> None:
        """Moves a file, or a directory with all in it; descriptors follow."""
        change = None
        if self._loses_names:
            change = NameChange(target, source, self._about_to_go(target))
        self._move(source, target)
        if change is not None:
            self._unsynced_names.append(change)

    def _move(self, source: str, target: str) -> None:
        self._real.replace(source, target)
        for path in list(self._synced):
            if path == source or path.startswith(source + "/"):
                self._synced[target + path[len(source) :]] = self._synced.pop(path)
            elif path == target:
                del self._synced[path]
        for fd, path in self._paths.items():
            if path == source or path.startswith(source + "/"):
                self._paths[fd] = target + path[len(source) :]
        self._unsynced_names = [each.moved(source, target) for each in self._unsynced_names]

    def unlink(self, path: str) -> None:
        removed = self._about_to_go(path) if self._loses_names else None
        self._real.unlink(path)
        self._synced.pop(path, None)
        if removed is not None:
            self._unsynced_names.append(NameChange(path, removed=removed))

    def _about_to_go(self, path: str) -> Removed | None:
        """What is kept of a file whose name is about to go; None when there is no such file."""
        if not Path(path).is_file():
            return None
        return Removed(Path(path).read_bytes(), self._synced.get(path))

    def mkdir(self, path: str) -> None:
        self._real.mkdir(path)
        if self._loses_names:
            self._unsynced_names.append(NameChange(path))

    def listdir(self, path: str) -> list[str]:
        return self._real.listdir(path)

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def modified_ms(self, path: str) -> int:
        return self._real.modified_ms(path)

    def remove_tree(self, path: str) -> None:
        change = NameChange(path, tree=self._tree(path)) if self._loses_names else None
        self._remove_tree(path)
        below = path + "/"
        self._unsynced_names = [
            each for each in self._unsynced_names if not each.path.startswith(below)
        ]
        if change is not None:
            self._unsynced_names.append(change)

    def _remove_tree(self, path: str) -> None:
        shutil.rmtree(path)
        self._synced = {p: c for p, c in self._synced.items() if not p.startswith(path + "/")}

    def _tree(self, path: str) -> tuple[tuple[str, Removed], ...]:
        files = sorted(each for each in Path(path).rglob("*") if each.is_file())
        return tuple(
            (str(each.relative_to(path)), Removed(each.read_bytes(), self._synced.get(str(each))))
            for each in files
        )

    # -- what a test calls -------------------------------------------------------------------------

    def crash(self, root: Path, rng: random.Random) -> None:
        """A power cut: every file below `root` is left as far as it was synced, and by chance more.

        What was not synced survives whole, up to some byte, or with zeros where pages were lost.
        Names come first: a file that has its old name back may be torn as any other.
        """
        self._lose_names(rng)
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            current, synced = path.read_bytes(), self._synced.get(str(path), b"")
            if current != synced:
                left = _after_power_cut(current, synced, rng)
                path.write_bytes(left)
                self._synced[str(path)] = left
        self.space_left = self.fail_fsync = self.fail_pwrite = None

    def _lose_names(self, rng: random.Random) -> None:
        """Undoes a part of what no `fsync_dir` covers, the last change first."""
        lost: list[NameChange] = []
        lost_names: set[str] = set()
        for change in self._unsynced_names:
            if lost_names & change.names() or rng.random() < 0.5:
                lost.append(change)
                lost_names |= change.names()
        while lost:
            change = lost.pop()
            self._undo(change, rng)
            if change.source is not None:  # what is in a renamed directory moves back with it
                lost = [each.moved(change.path, change.source) for each in lost]
        self._unsynced_names = []

    def _undo(self, change: NameChange, rng: random.Random) -> None:
        if change.created() and Path(change.path).is_dir():
            self._remove_tree(change.path)
        elif change.created():
            self._real.unlink(change.path)
            self._synced.pop(change.path, None)
        if change.source is not None:
            self._move(change.path, change.source)
        if change.removed is not None:
            self._bring_back(change.path, change.removed)
        if change.tree is not None:
            Path(change.path).mkdir()
            for name, removed in change.tree:
                if rng.random() < 0.5:
                    path = Path(change.path) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self._bring_back(str(path), removed)

    def _bring_back(self, path: str, removed: Removed) -> None:
        Path(path).write_bytes(removed.content)
        if removed.synced is not None:
            self._synced[path] = removed.synced


def _after_power_cut(current: bytes, synced: bytes, rng: random.Random) -> bytes:
    """What may be left of a file: where both agree nothing is lost."""
    pairs = enumerate(zip(current, synced, strict=False))
    agreed = next((at for at, (a, b) in pairs if a != b), min(len(current), len(synced)))
    kept = rng.randint(agreed, len(current))
    outcome = rng.choice(["all", "none", "cut", "hole"])
    if outcome == "all":
        return current
    if outcome == "none":
        return synced
    if outcome == "cut":
        return current[:kept]
    return current[:kept] + bytes(len(current) - kept)
