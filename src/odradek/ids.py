"""Types for the identifiers of the protocol. They cost nothing at run time, and mypy checks them.

A uuid is its 16 raw bytes, as on the wire: hashable, comparable, and never parsed on the hot path.
Kafka prints a uuid as URL-safe base64 without padding (``Uuid.toString``), and so does
`uuid_to_string`.
"""

from __future__ import annotations

import base64
from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
TopicName = NewType("TopicName", str)
GroupId = NewType("GroupId", str)
TransactionalId = NewType("TransactionalId", str)
ProducerId = NewType("ProducerId", int)
Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))

LOST_DIRECTORY = Uuid(bytes(15) + b"\x01")
"""A log directory that does not work, and whose id is not known (Kafka's ``DirectoryId.LOST``)."""


class TopicPartition(NamedTuple):
    """One partition of a topic. Its text is Kafka's, and its directory's name: ``topic-0``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_string(uuid: Uuid) -> str:
    """Return URL-safe base64 without padding, 22 characters, as ``kafka.common.Uuid`` prints it."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_string(text: str) -> Uuid:
    """Parse the result of `uuid_to_string`.

    Raises:
        ValueError: The text is not 16 bytes of base64.
    """
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"not a uuid: {text!r} has {len(raw)} bytes instead of 16")
    return Uuid(raw)


NO_OFFSET = -1
"""Represents an offset that is not known or does not exist."""
