"""Errors of the conversion between bytes and messages."""

from __future__ import annotations


class MalformedMessage(ValueError):
    """The bytes are no message of this kind and version: truncated, or with a wrong length.

    Kafka closes the connection on such a request. So does the broker, with this text in its log.
    """


class TooManyElements(MalformedMessage):
    """The message is well-formed so far, but has more elements than the reader allows."""


class UnencodableMessage(ValueError):
    """The message cannot be written in this version.

    A field that the version does not have is set and must not be dropped, a value is null although
    the field is not nullable, or a value is out of its type's range.
    """


class UnknownVersion(ValueError):
    """The message has no such version."""
