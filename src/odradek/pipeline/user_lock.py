"""Locks between the processes of one user, as files in a directory that only this user can use.

A lock file with a fixed name is not safe in a directory that several users share, such as /tmp.
Another user could create a symlink with that name and have its target overwritten, or hold the lock
indefinitely.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.environment.files import DIRECTORY_MODE, FILE_MODE
from odradek.pipeline.errors import PipelineError

CACHE_ADVICE = "Set XDG_CACHE_HOME to a directory of this user."


@contextmanager
def user_lock(name: str) -> Iterator[None]:
    """Hold the lock `name` of this user, and wait for it if another process holds it.

    The lock is the file `odradek/NAME` in $XDG_CACHE_HOME, by default ~/.cache. The directory has
    mode 0700. Symlinks are not followed, and the file is not truncated.

    Raises:
        PipelineError: The directory belongs to another user, or the file cannot be opened.
    """
    directory = _cache_directory() / "odradek"
    try:
        descriptor = _open_lock(directory, name)
    except OSError as error:
        raise PipelineError(
            f"The lock {directory / name} cannot be opened: {error.strerror}. {CACHE_ADVICE}"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open_lock(directory: Path, name: str) -> int:
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(parent).st_uid != os.geteuid():
            raise PipelineError(f"{directory} belongs to another user. {CACHE_ADVICE}")
        os.fchmod(parent, DIRECTORY_MODE)
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE, dir_fd=parent)
    finally:
        os.close(parent)


def _cache_directory() -> Path:
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if configured.startswith("/"):  # the XDG specification says to ignore relative paths
        return Path(configured)
    try:
        return Path.home() / ".cache"
    except RuntimeError as error:
        raise PipelineError(f"This user has no home directory. {CACHE_ADVICE}") from error
