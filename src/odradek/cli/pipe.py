"""Output whose reader went away (`| head`): that is its right, and no error of the command."""

from __future__ import annotations

import os
import select
import sys


def reader_is_gone() -> bool:
    """Whether standard output is a pipe or socket that nobody reads any more. (A BrokenPipeError
    may be of another connection, too, and then it is an error.)"""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def flush_output() -> str | None:
    """Writes what standard output has left; to nowhere when nobody reads it. At the interpreter's
    end a closed pipe would be a message and exit code 120. Why not, where the system refused it (a
    full disk).
    """
    if sys.stdout is None:  # `>&-`
        return None
    try:
        sys.stdout.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return None if isinstance(error, BrokenPipeError) else str(error)
    return None
