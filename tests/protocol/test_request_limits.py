"""The number of elements of a request is bounded, however small they are. A response's is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.protocol import interpret
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.wire import REQUEST_ELEMENTS_MAX, TAGS_MAX, uvarint

Decode = Callable[[type[Message], int, bytes], Any]
BOTH = pytest.mark.parametrize(
    "read", [decode, lambda *args: interpret.decode(*args)[0]], ids=["compiled", "interpretive"]
)


@BOTH
def test_a_request_may_have_the_limit_of_elements_but_no_further_one(read: Decode) -> None:
    topics = [MetadataRequestTopic(name="t")] * REQUEST_ELEMENTS_MAX
    for version in (4, 12):
        data = encode(MetadataRequest(topics), version)
        assert len(read(MetadataRequest, version, data).topics) == REQUEST_ELEMENTS_MAX
        data = encode(MetadataRequest([*topics, topics[0]]), version)
        with pytest.raises(MalformedMessage, match="elements"):
            read(MetadataRequest, version, data)


@BOTH
def test_elements_of_nested_arrays_count_together(read: Decode) -> None:
    topics = [OffsetForLeaderTopic("t", [])] * (REQUEST_ELEMENTS_MAX // 2)
    data = encode(OffsetForLeaderEpochRequest(-1, topics), 4)
    assert read(OffsetForLeaderEpochRequest, 4, data)
    one = b"\x02t" + uvarint(2) + bytes(13)  # topic t with one partition: two elements
    data = bytes(4) + uvarint(REQUEST_ELEMENTS_MAX // 2 + 2)
    data += (one + b"\0") * (REQUEST_ELEMENTS_MAX // 2 + 1) + b"\0"
    with pytest.raises(MalformedMessage, match="elements"):
        read(OffsetForLeaderEpochRequest, 4, data)


@BOTH
@pytest.mark.parametrize("count", [TAGS_MAX + 1, 300, 2**31 - 1])
def test_the_tags_of_a_section_are_limited(read: Decode, count: int) -> None:
    body = encode(ProduceRequest(None, 1, 0, []), 9)[:-1]
    tags = b"".join(uvarint(tag) + b"\0" for tag in range(TAGS_MAX))
    assert read(ProduceRequest, 9, body + uvarint(TAGS_MAX) + tags) == ProduceRequest(None, 1)
    with pytest.raises(MalformedMessage, match="tagged fields"):
        read(ProduceRequest, 9, body + uvarint(count) + tags * 4)


@BOTH
def test_tags_count_as_elements(read: Decode) -> None:
    topic = b"\x02t" + uvarint(1) + uvarint(TAGS_MAX) + b"\x05\0" * TAGS_MAX
    count = REQUEST_ELEMENTS_MAX // TAGS_MAX
    data = bytes(4) + uvarint(count + 1) + topic * count + b"\0"
    with pytest.raises(MalformedMessage, match="elements"):
        read(OffsetForLeaderEpochRequest, 4, data)


def test_a_response_has_no_limit_of_elements() -> None:
    topics = [MetadataResponseTopic(name="t")] * (REQUEST_ELEMENTS_MAX + 1)
    data = encode(MetadataResponse(topics=topics), 4)
    assert len(decode(MetadataResponse, 4, data).topics) == REQUEST_ELEMENTS_MAX + 1
