"""Known failures of Odradek with their causes. Remove an entry when its case passes."""

from __future__ import annotations

KNOWN: dict[tuple[str, str], str] = {}
"""The cause of each known failure by (suite, name of the case). Empty: none is known."""
