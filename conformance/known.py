"""Failures of Odradek that are known, with their cause. A test that passes must leave the list."""

from __future__ import annotations

KNOWN: dict[tuple[str, str], str] = {}
"""(suite, name of the case) to the cause. There are none."""
