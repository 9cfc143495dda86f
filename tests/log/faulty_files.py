"""A file system that loses what was not synced, tears writes, fills up and fails to sync.

It works on real files, so that descriptors, regions and sendfile are real; what a power cut would
leave is kept beside: of each file its content at its last fsync. `crash` puts the files into a
state that a power cut may leave: all that was synced, and of the rest a part, with holes.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

from odradek.log.files import RealFiles

Buffer = bytes | bytearray | memoryview


class FaultyFiles:
    """See the module. Fault settings are plain attributes; each is used up when it strikes."""

    def __init__(self) -> None:
        self._real = RealFiles()
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
        fd = self._real.open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        os.close(fd)

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

    def replace(self, source: str, target: str) -> None:
        """Moves a file, or a directory with all in it; descriptors follow."""
        self._real.replace(source, target)
        for path in list(self._synced):
            if path == source or path.startswith(source + "/"):
                self._synced[target + path[len(source) :]] = self._synced.pop(path)
            elif path == target:
                del self._synced[path]
        for fd, path in self._paths.items():
            if path == source or path.startswith(source + "/"):
                self._paths[fd] = target + path[len(source) :]

    def unlink(self, path: str) -> None:
        self._real.unlink(path)
        self._synced.pop(path, None)

    def mkdir(self, path: str) -> None:
        self._real.mkdir(path)

    def listdir(self, path: str) -> list[str]:
        return self._real.listdir(path)

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def modified_ms(self, path: str) -> int:
        return self._real.modified_ms(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)
        self._synced = {p: c for p, c in self._synced.items() if not p.startswith(path + "/")}

    # -- what a test calls -------------------------------------------------------------------------

    def crash(self, root: Path, rng: random.Random) -> None:
        """A power cut: every file below `root` is left as far as it was synced, and by chance more.

        What was not synced survives whole, up to some byte, or with zeros where pages were lost.
        """
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            current, synced = path.read_bytes(), self._synced.get(str(path), b"")
            if current != synced:
                left = _after_power_cut(current, synced, rng)
                path.write_bytes(left)
                self._synced[str(path)] = left
        self.space_left = self.fail_fsync = self.fail_pwrite = None


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
