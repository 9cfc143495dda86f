"""A file system in which the process dies at a change of a file or a name."""

from __future__ import annotations

import os

from tests.helpers.faulty_files import Buffer, FaultyFiles


class Crashed(BaseException):
    """The process has died. Not an Exception, so that the broker does not handle it."""


class CrashingFiles(FaultyFiles):
    """The process dies before change number `crash_at`; None: it does not. Names may be lost."""

    def __init__(self) -> None:
        super().__init__(loses_names=True)
        self.crash_at: int | None = None

    def _change(self) -> None:
        if self.crash_at is not None:
            if self.crash_at <= 0:
                raise Crashed
            self.crash_at -= 1

    def open(self, path: str, flags: int) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            self._change()
        return super().open(path, flags)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        self._change()
        return super().pwrite(fd, data, position)

    def ftruncate(self, fd: int, length: int) -> None:
        self._change()
        super().ftruncate(fd, length)

    def fsync(self, fd: int) -> None:
        self._change()
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self._change()
        super().fsync_dir(path)

    def sync(self, path: str) -> None:
        self._change()
        super().sync(path)

    def replace(self, source: str, target: str) -> None:
        self._change()
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        self._change()
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._change()
        super().mkdir(path)
