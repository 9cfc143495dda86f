"""Check of the packages that the Spark commands need."""

from __future__ import annotations

from odradek.cli.output import CommandError


def need_spark(*more: str) -> None:
    """Raise CommandError if PySpark, Delta or one of the packages `more` is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "delta", *more) if find_spec(name) is None]
    if missing:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise CommandError(
            f"{', '.join(missing)} {is_or_are} missing: pip install 'odradek[spark]'."
        )
