"""A file system that loses unsynced data, tears writes, runs out of space and fails to sync.

It works on real files, so that descriptors, regions and sendfile are real. It also keeps the
content of each file at its last fsync. `crash` puts the files into a state that a power cut may
leave. They have all synced data and a part of the unsynced data, with holes.

With `loses_names`, changes of names are lost like the content of files. Any subset of the created,
renamed and removed names since the last `fsync_dir` of a directory may be undone, because a file
system may write metadata in any order. Two rules limit this. A rename happens completely or not at
all. If a change is lost, later changes of the same name are lost, too. If the name of a new
directory is lost, all files in it are lost, even synced ones. A removed directory may come back
with any subset of its files.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from odradek.environment.files import READ_WRITE, FileLock, RealFiles, sync_once

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Removed:
    """The content of a removed file, and its content at the last fsync."""

    content: bytes
    synced: bytes | None


@dataclass(frozen=True, slots=True)
class NameChange:
    """A change of a directory that is not on the disk yet, with the data to undo it."""

    path: str
    """The created or removed name, or the new name of a renamed file."""
    source: str | None = None
    """The old name of a renamed file."""
    removed: Removed | None = None
    """The file that had the name `path` before."""
    tree: tuple[tuple[str, Removed], ...] | None = None
    """The files of the directory that had the name `path` before, with their relative paths."""

    def names(self) -> set[str]:
        return {self.path} if self.source is None else {self.path, self.source}

    def moved(self, source: str, target: str) -> NameChange:
        """Return the change with its paths after the directory `source` was renamed to `target`."""
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
    """The file system; see the module docstring. Tests set faults as attributes.

    `fail_fsync` and `fail_pwrite` are reset when they have occurred.
    """

    def __init__(self, *, loses_names: bool = False) -> None:
        self._real = RealFiles()
        self._loses_names = loses_names
        self._unsynced_names: list[NameChange] = []
        self._paths: dict[int, str] = {}
        self._synced: dict[str, bytes] = {}
        self.space_left: int | None = None
        """Bytes that may be written before ENOSPC. None means no limit."""
        self.fail_fsync: OSError | None = None
        self.fail_pwrite: OSError | None = None
        self.fsyncs = 0
        self.syncs = 0
        self.replaced: Counter[str] = Counter()
        """How often a file of that name was replaced."""
        self.writes = 0

    # -- interface of the log ----------------------------------------------------------------------

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
    is_dir = staticmethod(RealFiles.is_dir)
    copy_modified = RealFiles().copy_modified
    space = RealFiles().space
    open_files_max = RealFiles().open_files_max
    boot_id = RealFiles().boot_id
    boot_note = RealFiles().boot_note
    write_boot_note = RealFiles().write_boot_note
    remove_boot_note = RealFiles().remove_boot_note

    def lock(self, path: str) -> FileLock:
        self.close(self.open(path, READ_WRITE))
        return self._real.lock(path)

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

    def _fail_sync(self, _fd: int) -> None:
        if self.fail_fsync is not None:
            error, self.fail_fsync = self.fail_fsync, None
            raise error

    def fsync(self, fd: int) -> None:
        self.fsyncs += 1
        sync_once(self._fail_sync, 0)
        path = self._paths[fd]
        if Path(path).exists():
            self._synced[path] = Path(path).read_bytes()

    def fsync_dir(self, path: str) -> None:
        sync_once(self._fail_sync, 0)
        self._unsynced_names = [
            change for change in self._unsynced_names if Path(change.path).parent != Path(path)
        ]

    def sync(self, path: str) -> None:
        """Sync all files and names below the directory."""
        self.syncs += 1
        sync_once(self._fail_sync, 0)
        below = path + "/"
        for each in (each for each in Path(path).rglob("*") if each.is_file()):
            self._synced[str(each)] = each.read_bytes()
        self._unsynced_names = [
            change for change in self._unsynced_names if not change.path.startswith(below)
        ]

    def replace(self, source: str, target: str) -> None:
        """Move a file, or a directory with its files. Open descriptors stay valid."""
        change = None
        self.replaced[Path(target).name] += 1
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
        """Return the content of a file that is about to be removed, or None if there is no file."""
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

    # -- interface of tests ------------------------------------------------------------------------

    def crash(self, root: Path, rng: random.Random) -> None:
        """Simulate a power cut for all files below `root`.

        Synced data survives. The unsynced data of a file survives completely, up to some byte, with
        zeros in place of lost pages, or not at all. Changes of names are undone first, so that a
        file with its old name may be torn like any other.
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
        """Undo a random subset of the changes that no `fsync_dir` covers, the last change first."""
        lost: list[NameChange] = []
        lost_names: set[str] = set()
        for change in self._unsynced_names:
            if lost_names & change.names() or rng.random() < 0.5:
                lost.append(change)
                lost_names |= change.names()
        while lost:
            change = lost.pop()
            self._undo(change, rng)
            if change.source is not None:  # the files of a renamed directory move back with it
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
    """Return the content of a file after a power cut. Bytes that equal the synced ones survive."""
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
