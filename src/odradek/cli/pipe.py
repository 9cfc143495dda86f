"""Standard output whose reader has exited (`| head`), which is not an error of the command."""

from __future__ import annotations

import os
import select
import sys


def reader_is_gone() -> bool:
    """Return whether standard output is a pipe or socket without a reader.

    A BrokenPipeError may also come from another connection, and then it is an error.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def flush_output() -> str | None:
    """Flush standard output, and return the error's text if that failed, such as on a full disk.

    If the flush fails, standard output is redirected to /dev/null. Otherwise the interpreter would
    flush again at exit, print a message and exit with 120. Output without a reader is not an error.
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
