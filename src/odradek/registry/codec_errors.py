"""Errors of encoding and decoding values by a schema. Pure."""

from __future__ import annotations


class UnusableSchema(Exception):
    """A schema cannot be used for encoding or decoding. The message says why."""


class UndecodableValue(Exception):
    """Bytes are not a value of their schema. The message says why."""


class InvalidValue(Exception):
    """A JSON value does not fit a schema.

    The text begins with the path of the value, such as ``lines.2.price``.
    """

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(f"{'.'.join(path)}: {reason}" if path else reason)
        self.reason = reason
        self.path = path

    def below(self, name: str) -> InvalidValue:
        """Return the same error for the field or item `name` of an enclosing value."""
        return InvalidValue(self.reason, (name, *self.path))
