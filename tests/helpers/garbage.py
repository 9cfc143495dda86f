"""Collection of the garbage of tests whose objects report something at their end."""

from __future__ import annotations

import gc
import sys
import warnings

COLLECTIONS = 3
"""Collections until the objects are gone whose coroutines refer to each other."""


def collect_quietly() -> None:
    """Collect all garbage, and ignore what it reports.

    Killed brokers leave coroutines that never ran. Otherwise pytest reports them as errors of the
    test in which the interpreter happens to collect them.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(COLLECTIONS):
                gc.collect()
    finally:
        sys.unraisablehook = hook
