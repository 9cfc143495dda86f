"""The records of one long commit, made and applied to the shard in time slices.

A commit of 10,000 partitions is one batch, so that readers and a restart see all of its offsets or
none. One call for each record would take 30 ms. An `OffsetBlock` has the bytes of the records and
their fields as columns. The store applies columns by a few calls in C, in some 3 to 9 ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any

from odradek.coordinator.coordinator_result import CoordinatorRecord
from odradek.coordinator.encoded_records import EncodedRecords
from odradek.coordinator.group.group_records import encode
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue

OffsetKey = tuple[str, str, int]
"""Group, topic and partition of a committed offset."""
Fields = tuple[int, int, str, int, int, int]
"""The fields of a `CommittedOffset`."""

_TOPIC = itemgetter(1)
_PARTITION = itemgetter(2)


class OffsetBlock:
    """The records of a commit of one group, in the order of the request.

    Attributes:
        group_id: The group.
        encoded: The bytes of the records.
        keys: The key of each record.
        topics: Topic and partitions of the records. A topic may occur more than once. The store
            removes the topics that it has applied.
        before: The value that each applied record has replaced. None when the values are not kept,
            because the records are committed with their append.
    """

    __slots__ = (
        "_expire_timestamps",
        "_leader_epochs",
        "_metadata",
        "_offsets",
        "_timestamps",
        "before",
        "encoded",
        "group_id",
        "keys",
        "topics",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.encoded = EncodedRecords()
        self.keys: list[OffsetKey] = []
        self.topics: list[tuple[str, list[int]]] = []
        self._offsets: list[int] = []
        self._leader_epochs: list[int] = []
        self._metadata: list[str] = []
        self._timestamps: list[int] = []
        self._expire_timestamps: list[int] = []
        self.before: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, records: Iterable[CoordinatorRecord]) -> None:
        """Add committed offsets of the group. They are no tombstones."""
        records = list(records)
        self.encoded.add(list(map(encode, records)))
        keys: list[OffsetKey] = []
        for key, value, _ in records:
            assert type(key) is OffsetCommitKey
            assert type(value) is OffsetCommitValue
            keys.append((key.group, key.topic, key.partition))
            self._offsets.append(value.offset)
            self._leader_epochs.append(value.leader_epoch)
            self._metadata.append(value.metadata)
            self._timestamps.append(value.commit_timestamp)
            self._expire_timestamps.append(value.expire_timestamp)
        self.keys += keys
        for topic, of_topic in groupby(keys, _TOPIC):
            self.topics.append((topic, list(map(_PARTITION, of_topic))))

    def fields(self, first_offset: int) -> Iterable[Fields]:
        """Return the fields of each committed offset.

        Args:
            first_offset: The offset of the first record in the log.
        """
        return zip(
            self._offsets,
            self._leader_epochs,
            self._metadata,
            self._timestamps,
            self._expire_timestamps,
            range(first_offset, first_offset + len(self.keys)),
            strict=True,
        )
