"""Log directories that can become full."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

SIZE_MB = 512
BALLAST = "ballast"
FILE_BYTES_MAX = 64 * 1024
"""No file grows beyond it while the disk of a broker counts as full. Checkpoints are smaller."""


class Disk(ABC):
    """The disk of one broker.

    Attributes:
        kind: The text for the report.
    """

    kind: str

    @abstractmethod
    def fill(self, pid: int) -> None:
        """Let the broker with this pid find no space."""

    @abstractmethod
    def free(self, pid: int) -> None:
        """End `fill`. The process may have ended."""

    @abstractmethod
    def close(self) -> None:
        """Release the disk. The broker has ended."""


class SmallDisk(Disk):
    """A tmpfs, which a ballast file fills."""

    kind = "tmpfs"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True)
        size = f"size={SIZE_MB}m,mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(directory)], check=True)

    def fill(self, pid: int) -> None:
        with (self._directory / BALLAST).open("wb") as file:
            space = os.fstatvfs(file.fileno())
            with contextlib.suppress(OSError):  # it was full a moment before
                os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize)
            with contextlib.suppress(OSError):
                while True:
                    os.write(file.fileno(), bytes(4096))

    def free(self, pid: int) -> None:
        (self._directory / BALLAST).unlink()

    def close(self) -> None:
        subprocess.run(["umount", str(self._directory)], check=True)


class LimitedFiles(Disk):
    """A directory of the machine. A limit of the file size lets the writes of a broker fail."""

    kind = "file size limit"

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)

    def fill(self, pid: int) -> None:
        self._limit(pid, FILE_BYTES_MAX)

    def free(self, pid: int) -> None:
        self._limit(pid, resource.RLIM_INFINITY)

    def close(self) -> None:
        """The directory belongs to the run."""

    @staticmethod
    def _limit(pid: int, soft: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
