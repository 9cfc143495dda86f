"""Properties of the compiled codec beyond reading back the messages that it wrote."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from odradek.ids import Uuid
from odradek.protocol import interpret, show
from odradek.protocol.codec import Message, decode, decoder, encode, encoder
from odradek.protocol.errors import MalformedMessage, UnencodableMessage, UnknownVersion
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from odradek.protocol.messages.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.helpers.call_count import count_calls


class Region:
    """Represents bytes in a file: it has a length, and nothing that can be read."""

    def __len__(self) -> int:
        return 1_000_000

    def close(self) -> None:
        raise AssertionError("an encoder must not close the file")


def produce_request(records: Any) -> ProduceRequest:
    partition = PartitionProduceData(index=1, records=records)
    return ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )


def fetch_response(records: Any) -> FetchResponse:
    partition = PartitionData(partition_index=1, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_are_appended_by_reference_behind_their_length(version: int) -> None:
    chunks: list[Any] = []
    region = Region()
    encoder(FetchResponse, version)(fetch_response(region), chunks.append)
    assert sum(chunk is region for chunk in chunks) == 1
    size = sum(map(len, chunks))
    assert size == len(encode(fetch_response(bytes(1_000_000)), version))


@pytest.mark.parametrize("version", [3, 9])
def test_decoded_records_are_a_view_into_the_frame(version: int) -> None:
    frame = bytearray(encode(produce_request(b"batch"), version))
    message = decoder(ProduceRequest, version)(memoryview(frame), 0)[0]
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"batch")] = ord("B")
    assert records == b"Batch"


def test_decoded_bytes_are_a_copy() -> None:
    message = JoinGroupRequest(group_id="g", member_id="")
    frame = bytearray(encode(message, 0))
    assert decode(JoinGroupRequest, 0, bytes(frame)) == message


@pytest.mark.parametrize("encode_one", [encode, interpret.encode])
@pytest.mark.parametrize(
    ("message", "version", "text"),
    [
        (CreateTopicsRequest(topics=[CreatableTopic(name=None)]), 5, "."),  # type: ignore[arg-type]
        (CreateTopicsRequest(timeout_ms=1 << 31), 5, "."),
        (SaslHandshakeRequest("x" * 32_768), 1, "."),
        (FetchRequest(cluster_id="x" * 32_768), 12, "."),
        (FindCoordinatorRequest(key="g", coordinator_keys=["a"]), 3, "CoordinatorKeys"),
        (FetchRequest(forgotten_topics_data=[ForgottenTopic("t")]), 6, "ForgottenTopicsData"),
        (SaslHandshakeRequest("\ud800"), 1, "."),
        (MetadataRequest(topics=[MetadataRequestTopic(topic_id=Uuid(b"short"))]), 12, "TopicId"),
        (JoinGroupRequest(group_instance_id="static"), 4, "GroupInstanceId"),
    ],
)
def test_values_that_a_version_cannot_hold_are_not_written(
    encode_one: Callable[[Message, int], bytes], message: Message, version: int, text: str
) -> None:
    with pytest.raises(UnencodableMessage, match=text):
        encode_one(message, version)


def test_an_ignorable_field_is_dropped_where_the_version_has_none() -> None:
    partition = FetchPartition(partition=1, log_start_offset=7, current_leader_epoch=3)
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[partition])], rack_id="r")
    decoded = decode(FetchRequest, 4, encode(request, 4))
    assert decoded.topics[0].partitions == [FetchPartition(partition=1)]
    assert decoded.rack_id == ""


def test_a_tagged_struct_of_defaults_is_not_sent() -> None:
    plain, explicit = fetch_response(b"r"), fetch_response(b"r")
    explicit.responses[0].partitions[0].diverging_epoch = EpochEndOffset()
    assert encode(explicit, 12) == encode(plain, 12)
    explicit.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=3)
    assert decode(FetchResponse, 12, encode(explicit, 12)) == explicit


def test_bytes_behind_the_message_are_ignored_as_in_kafka() -> None:
    data = encode(SaslHandshakeRequest("PLAIN"), 1)
    assert decode(SaslHandshakeRequest, 1, data + b"more") == SaslHandshakeRequest("PLAIN")


@pytest.mark.parametrize("version", [2, 14, -1])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(UnknownVersion, match="3 to 13"):
        decoder(ProduceRequest, version)
    with pytest.raises(UnknownVersion, match="3 to 13"):
        encoder(ProduceRequest, version)


def test_a_codec_is_compiled_once() -> None:
    assert decoder(ProduceRequest, 9) is decoder(ProduceRequest, 9)
    assert encoder(ProduceRequest, 9) is encoder(ProduceRequest, 9)


def test_tracebacks_show_the_compiled_source() -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode(ProduceRequest, 9, b"\0\0\1\0\0\0\0\0\0")
    assert "raise null('TopicData')" in "".join(traceback.format_exception(caught.value))
    assert linecache.getlines("<odradek api/ProduceRequest v9 decode>")


def test_the_compiled_source_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show.main(["FetchResponse", "12"])
    shown = capsys.readouterr().out
    assert "def decode(view, pos):" in shown
    assert "def encode(message_0, append):" in shown


@pytest.mark.parametrize("arguments", [[], ["FetchResponse"]])
def test_show_requires_a_message_and_a_version(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="usage"):
        show.main(arguments)


@pytest.mark.parametrize("size", [100, 10_000, 1_000_000])
def test_calls_of_a_produce_and_a_fetch_do_not_grow_with_the_batch(size: int) -> None:
    produce = memoryview(encode(produce_request(bytes(size)), 9))
    decode_produce = decoder(ProduceRequest, 9)
    # len, 4 structs, 1 varint, 2 strings and views, 3 constructors, 2 appends
    assert count_calls(lambda: decode_produce(produce, 0)).total <= 12
    fetch = fetch_response(bytes(size))
    encode_fetch = encoder(FetchResponse, 12)
    chunks: list[Any] = []
    # 9 chunks, 3 packs, 4 lengths, 1 varint, 1 encode
    assert count_calls(lambda: encode_fetch(fetch, chunks.append)).total <= 21
