"""Check of the packages that the Spark commands need."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Annotated

import typer

from odradek.cli.output import CommandError

TOO_MANY_REJECTS = 3
"""Exit code of an ingest that stopped before a batch with too many rejected records."""

EXPECTATION_FAILED = 4
"""Exit code of an ingest that stopped before a batch that does not meet an expectation."""

MasterOption = Annotated[str, typer.Option(metavar="URL", help="Master URL of Spark.")]


def need_spark(*more: str) -> None:
    """Raise CommandError if PySpark, Delta or one of the packages `more` is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "delta", *more) if find_spec(name) is None]
    if missing:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise CommandError(
            f"{', '.join(missing)} {is_or_are} missing: pip install 'odradek[spark]'."
        )


def report(text: str) -> None:
    """Print a line about the work of a Spark job on standard error."""
    print(f"odradek: {text}", file=sys.stderr, flush=True)


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set from now on."""
    stop = threading.Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, request_stop)
    signal.signal(signal.SIGINT, request_stop)
    return stop
