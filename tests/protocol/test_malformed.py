"""Bytes that are no message raise `MalformedMessage` and allocate at most a few times the frame."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from odradek.protocol.codec import Message, decode, decoder, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.helpers.fuzzing import rounds
from tests.protocol import fuzz
from tests.protocol.building import golden_classes
from tests.protocol.golden import golden_messages

FUZZ_S = 5.0
HUGE = b"\x7f\xff\xff\xff"
HUGE_VARINT = b"\xff\xff\xff\xff\x07"


def peak_bytes(function: Callable[[], object]) -> int:
    """Return the peak memory of `function`.

    It is the least of several runs, because other threads of this process allocate too.
    """
    peaks = []
    for _ in range(5):
        tracemalloc.start()
        try:
            function()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)


@pytest.mark.parametrize("cls", golden_classes(), ids=lambda cls: cls.__name__)
def test_a_message_truncated_anywhere_is_malformed(cls: type[Message]) -> None:
    for version, _full, data in golden_messages()[cls]:
        decode_one = decoder(cls, version)
        for size in range(len(data)):
            with pytest.raises(MalformedMessage):
                decode_one(memoryview(data)[:size], 0)


def test_mutated_messages_are_malformed_or_read_as_by_the_slow_codec(
    seed: int,
) -> None:
    outcomes = {True: 0, False: 0}
    for case, _ in zip(fuzz.cases(Random(seed)), rounds(FUZZ_S), strict=False):
        outcomes[fuzz.check(case)] += 1
    assert outcomes[True] and outcomes[False]


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        pytest.param(MetadataRequest, 0, HUGE, id="array of strings"),
        pytest.param(MetadataRequest, 12, HUGE_VARINT, id="compact array of structs"),
        pytest.param(OffsetFetchRequest, 1, b"\0\1g" + b"\0\0\0\1\0\1t" + HUGE, id="nested array"),
        pytest.param(ProduceRequest, 3, b"\xff\xff\0\1\0\0\0\0" + HUGE, id="produce's topics"),
        pytest.param(
            ProduceRequest, 9, b"\0\0\1\0\0\0\0\2\2t\2\0\0\0\0" + HUGE_VARINT, id="records"
        ),
        pytest.param(SaslHandshakeRequest, 0, b"\x7f\xff", id="string"),
        pytest.param(ApiVersionsRequest, 3, HUGE_VARINT, id="compact string"),
        pytest.param(ApiVersionsRequest, 3, b"\1\1" + HUGE_VARINT, id="tag count"),
        pytest.param(ApiVersionsRequest, 3, b"\1\1\1\5" + HUGE_VARINT, id="size of a tag"),
    ],
)
def test_a_length_beyond_the_frame_is_malformed_and_allocates_nothing(
    cls: type[Message], version: int, data: bytes
) -> None:
    decode_one = decoder(cls, version)
    view = memoryview(data + bytes(50))

    def refuse() -> None:
        with pytest.raises(MalformedMessage):
            decode_one(view, 0)

    assert peak_bytes(refuse) < 100_000


def test_the_largest_count_that_fits_allocates_a_few_times_the_frame() -> None:
    # Each topic is three bytes: an empty name, no partitions, no tags.
    count = 5_000
    size = (count + 1) & 0x7F | 0x80, (count + 1) >> 7
    data = b"\0\0\1\0\0\0\0" + bytes(size) + b"\1\1\0" * count + b"\0"
    decode_one = decoder(ProduceRequest, 9)
    message, end = decode_one(memoryview(data), 0)
    assert (len(message.topic_data), end) == (count, len(data))
    assert peak_bytes(lambda: decode_one(memoryview(data), 0)) < 60 * len(data)


def test_a_varint_of_more_than_five_bytes_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="more than five bytes"):
        decode(ApiVersionsRequest, 3, b"\x80\x80\x80\x80\x80\x01" + bytes(20))


def test_a_varint_above_an_int32_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match=r"above 2\^31"):
        decode(ApiVersionsRequest, 3, b"\xff\xff\xff\xff\x0f" + bytes(20))


def test_a_compact_string_above_kafkas_limit_is_malformed() -> None:
    longest = b"\x80\x80\x02" + b"x" * 32_767
    assert len(decode(ApiVersionsRequest, 3, longest + b"\1\0").client_software_name) == 32_767
    with pytest.raises(MalformedMessage, match="32768 bytes"):
        decode(ApiVersionsRequest, 3, b"\x81\x80\x02" + b"x" * 32_768 + b"\1\0")


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        pytest.param(SaslHandshakeRequest, 0, b"\xff\xff", id="string"),
        pytest.param(ApiVersionsRequest, 3, b"\0\1\0", id="compact string"),
        pytest.param(MetadataRequest, 0, b"\xff\xff\xff\xff", id="array"),
        pytest.param(ProduceRequest, 9, b"\0\0\1\0\0\0\0\0\0", id="compact array"),
    ],
)
def test_null_in_a_field_that_is_not_nullable_is_malformed(
    cls: type[Message], version: int, data: bytes
) -> None:
    with pytest.raises(MalformedMessage, match="null"):
        decode(cls, version, data)


def test_any_negative_length_is_null_in_a_nullable_field_as_in_kafka() -> None:
    message = decode(InitProducerIdRequest, 0, b"\xff\xfe\0\0\0\1")
    assert message == InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)


def test_bad_utf_8_reads_as_replacement_characters_as_in_kafka() -> None:
    message = decode(SaslHandshakeRequest, 0, b"\0\4\xc3\x28\xff!")
    assert message.mechanism == "\ufffd(\ufffd!"


def test_a_known_tag_with_a_wrong_size_is_malformed() -> None:
    data = bytearray(encode(FetchRequest(cluster_id="c"), 12))
    assert data.endswith(b"\1\0\2\2c")
    data[-3] = 1
    with pytest.raises(MalformedMessage, match="ClusterId"):
        decode(FetchRequest, 12, bytes(data) + bytes(10))


def test_unknown_tags_are_skipped_by_their_size() -> None:
    message = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=9)
    data = encode(message, 2)[:-1] + b"\2" + b"\5\3abc" + b"\xc8\1\0"
    assert decoder(InitProducerIdRequest, 2)(memoryview(data), 0) == (message, len(data))
