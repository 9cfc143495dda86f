"""What can go wrong between bytes and messages."""

from __future__ import annotations


class MalformedMessage(ValueError):
    """The bytes are no message of this kind and version: truncated, or with a length that lies.

    Kafka closes the connection on such a request; so does the broker, with this text in its log.
    """


class TooManyElements(MalformedMessage):
    """The message is well-formed so far, and has more elements than its reader wants of one."""


class UnencodableMessage(ValueError):
    """The message cannot be written in this version: a field that the version does not have is set
    and must not be dropped, a value is null where it may not be, or out of its type's range."""


class UnknownVersion(ValueError):
    """The message has no such version."""
