"""A follower's fetch of one partition, packed and unpacked without the objects of the codec. Pure.

A follower with steady traffic repeats one request: the fetch of a partition that has just been
appended to. Its bytes differ in the session epoch, the offset and the last epoch, and the response
has one partition with records. The codec and its six objects take a third of the follower's time
for such a response (measured at 029a7d12). This module has the same bytes, and the codec serves
each request and response of another form. Tests compare both.

Fetch version 17: the body of the request, and of the response::

    head 13 | session id, epoch | 2 | topic id | 2 | partition ... max bytes | tail
    throttle, error, session id | 2 | topic id | 2 | partition ... preferred replica | records | 000
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, ClassVar

from odradek.client.connection import PackedRequest
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message, decoder
from odradek.protocol.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.wire import uvarint_rest

if TYPE_CHECKING:
    from odradek.ids import BrokerId, Uuid
    from odradek.replication.fetch_session_handler import SentPartition

FETCH_VERSION = 17
"""The version of Fetch: topic ids, replica state and diverging epochs."""

_HEAD = struct.Struct(">iiib")
_TAIL = struct.Struct(">7siqx")
_REQUEST = struct.Struct(f">{_HEAD.size}siib16sbiiqiqi{_TAIL.size}s")
_RESPONSE = struct.Struct(">ihiB16sBihqqqBiB")
_ONE = 2
"""The size of an array of one element, as it is encoded."""
_NO_TAGS_OF_ALL = bytes(3)
_REPLICA_STATE = bytes((0, 0, 1, 1, 1, 1, 13))
"""No tags of partition and topic, nothing forgotten, no rack, and tag 1 of 13 bytes."""


class SinglePartitionResponse(FetchResponse):
    """A response with records of one partition. Its topics are made on demand."""

    __slots__ = ("data", "session", "topic_id")

    throttle_time_ms = 0
    error_code = 0

    def __init__(self, session_id: int, topic_id: Uuid, data: PartitionData) -> None:
        self.session = session_id
        self.topic_id = topic_id
        self.data = data

    @property
    def session_id(self) -> int:  # type: ignore[override]  # a field of the base
        return self.session

    @property
    def responses(self) -> list[FetchableTopicResponse]:  # type: ignore[override]
        return [FetchableTopicResponse(topic_id=self.topic_id, partitions=[self.data])]


def decode_response(frame: memoryview, pos: int) -> tuple[Message, int]:
    """Return the response in a frame, a `SinglePartitionResponse` if it has that form.

    Raises:
        MalformedMessage: As the codec does.
    """
    if len(frame) - pos > _RESPONSE.size:
        _, error, session_id, topics, topic_id, partitions, *data, n = _RESPONSE.unpack_from(
            frame, pos
        )
        index, code, high_watermark, last_stable_offset, log_start_offset, aborted, preferred = data
        if topics == partitions == _ONE and not (error or code) and aborted <= 1 < n:
            begin = pos + _RESPONSE.size
            if n > 127:
                n, begin = uvarint_rest(frame, begin, n)
            end = begin + n - 1
            if frame[end:] == _NO_TAGS_OF_ALL:
                found = PartitionData(
                    index,
                    0,
                    high_watermark,
                    last_stable_offset,
                    log_start_offset,
                    aborted_transactions=[] if aborted else None,
                    preferred_read_replica=preferred,
                    records=frame[begin:end],
                )
                return SinglePartitionResponse(session_id, topic_id, found), len(frame)
    return decoder(FetchResponse, FETCH_VERSION)(frame, pos)


class SinglePartitionFetch(PackedRequest):
    """A packed fetch of one partition."""

    API_KEY: ClassVar[int] = int(ApiKey.FETCH)
    SPEC: ClassVar[str] = "api/FetchRequest"
    MIN_VERSION: ClassVar[int] = FETCH_VERSION
    MAX_VERSION: ClassVar[int] = FETCH_VERSION

    __slots__ = ()

    decode_response = staticmethod(decode_response)


class SinglePartitionPacker:
    """The constant bytes of the requests of one follower. Owned by its fetcher.

    Args:
        broker_id: The follower.
        wait_ms, min_bytes, max_bytes: As in the request.
        partition_max_bytes: Maximum size of the records.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: int,
    ) -> None:
        self._broker_id = broker_id
        self._head = _HEAD.pack(wait_ms, min_bytes, max_bytes, 0)
        self._partition_max_bytes = partition_max_bytes
        self._broker_epoch = -1
        self._tail = b""

    def pack(
        self, session_id: int, session_epoch: int, sent: SentPartition, broker_epoch: int
    ) -> SinglePartitionFetch:
        """Return the request that names one partition of a session."""
        if broker_epoch != self._broker_epoch or not self._tail:
            self._broker_epoch = broker_epoch
            self._tail = _TAIL.pack(_REPLICA_STATE, self._broker_id, broker_epoch)
        topic_id, number = sent.replica.key
        leader_epoch, offset, last_epoch = sent.position
        return SinglePartitionFetch(
            _REQUEST.pack(
                self._head,
                session_id,
                session_epoch,
                _ONE,
                topic_id,
                _ONE,
                number,
                leader_epoch,
                offset,
                last_epoch,
                sent.log_start_offset,
                self._partition_max_bytes,
                self._tail,
            )
        )
