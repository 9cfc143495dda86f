"""Modes of subjects and contexts: which writes the registry accepts. Pure."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """A mode, by its name in requests and records."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"

    @classmethod
    def parse(cls, name: str) -> Mode | None:
        """Return the mode of a name in any case, or None for another name."""
        try:
            return cls(name.upper())
        except ValueError:
            return None

    @property
    def is_read_only(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)

    @property
    def is_import(self) -> bool:
        """Whether schemas keep their ids and versions, and are not checked for compatibility."""
        return self in (Mode.IMPORT, Mode.FORWARD)
