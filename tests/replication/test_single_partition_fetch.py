"""The packed fetch of one partition has the bytes of the codec, and its response reads the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.ids import BrokerId, Uuid
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from odradek.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.replication.single_partition_fetch import (
    FETCH_VERSION,
    SinglePartitionPacker,
    SinglePartitionResponse,
    decode_response,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
TOPIC = Uuid(bytes(range(16)))


@given(
    st.integers(0, 2**31 - 1).map(BrokerId),
    st.lists(INT32, min_size=9, max_size=9),
    st.lists(INT64, min_size=3, max_size=3),
    UUIDS,
)
def test_request_has_the_bytes_of_the_codec(
    broker: BrokerId, small: list[int], large: list[int], topic: Uuid
) -> None:
    wait, least, most, session, epoch, number, leader_epoch, last_epoch, limit = small
    offset, start, broker_epoch = large
    packer = SinglePartitionPacker(broker, wait, least, most, limit)
    sent: Any = SimpleNamespace(
        replica=SimpleNamespace(key=(topic, number)),
        position=(leader_epoch, offset, last_epoch),
        log_start_offset=start,
    )
    packer.pack(1, 2, sent, 7)  # the broker epoch may change
    packed = packer.pack(session, epoch, sent, broker_epoch)
    named = FetchPartition(number, leader_epoch, offset, last_epoch, start, limit)
    request = FetchRequest(
        replica_state=ReplicaState(broker, broker_epoch),
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=most,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic("", topic, [named])],
    )
    assert packed.body == bytes(encode(request, FETCH_VERSION))


def partitions() -> st.SearchStrategy[PartitionData]:
    usual = st.builds(
        PartitionData,
        st.integers(0, 3),
        st.just(0),
        INT64,
        INT64,
        INT64,
        aborted_transactions=st.sampled_from([None, []]),
        records=st.binary(max_size=400).map(memoryview) | st.none(),
    )
    other = st.builds(
        PartitionData,
        st.integers(0, 3),
        st.sampled_from([0, 1, 6]),
        diverging_epoch=st.sampled_from([None, EpochEndOffset(3, 9)]),
        current_leader=st.sampled_from([None, LeaderIdAndEpoch(1, 2)]),
        aborted_transactions=st.sampled_from([None, [], [AbortedTransaction(1, 2)]]),
        records=st.binary(max_size=9).map(memoryview),
    )
    return usual | usual | other


RESPONSES = st.builds(
    FetchResponse,
    st.sampled_from([0, 5]),
    st.sampled_from([0, 0, 0, 70]),
    INT32,
    st.lists(
        st.builds(
            FetchableTopicResponse,
            topic_id=UUIDS,
            partitions=st.lists(partitions(), min_size=1, max_size=2),
        ),
        max_size=2,
    )
    | st.builds(
        lambda each: [FetchableTopicResponse(topic_id=TOPIC, partitions=[each])], partitions()
    ),
    st.sampled_from([[], [NodeEndpoint(1, "host", 9)]]),
)


def seen(response: Any) -> tuple[Any, ...]:
    """Everything that a fetcher reads of a response."""
    return (
        response.error_code,
        response.session_id,
        [(topic.topic_id, topic.partitions) for topic in response.responses],
    )


def decoded(function: Any, frame: memoryview) -> tuple[Any, ...] | type[Exception]:
    try:
        return seen(function(frame))
    except MalformedMessage as error:
        return type(error)


def by_codec(frame: memoryview) -> Any:
    return decode(FetchResponse, FETCH_VERSION, frame, 0)


@given(RESPONSES)
def test_response_is_read_as_by_the_codec(response: FetchResponse) -> None:
    frame = memoryview(bytes(encode(response, FETCH_VERSION)))
    found, end = decode_response(frame, 0)
    assert (seen(found), end) == (seen(by_codec(frame)), len(frame))


@given(partitions(), st.integers(0, 200), st.integers(0, 255), st.integers(0, 200))
def test_changed_and_cut_responses_are_read_as_by_the_codec(
    data: PartitionData, at: int, value: int, cut: int
) -> None:
    topics = [FetchableTopicResponse(topic_id=TOPIC, partitions=[data])]
    frame = bytearray(encode(FetchResponse(0, 0, 7, topics), FETCH_VERSION))
    frame[at % len(frame)] = value
    whole = memoryview(bytes(frame))
    cut_off = whole[: len(whole) - min(cut, len(whole))]
    for each in (whole, cut_off):
        assert decoded(lambda view: decode_response(view, 0)[0], each) == decoded(by_codec, each)


def test_usual_response_needs_no_objects_of_the_codec() -> None:
    data = PartitionData(4, 0, 9, 9, 1, aborted_transactions=None, records=b"r" * 200)
    topics = [FetchableTopicResponse(topic_id=TOPIC, partitions=[data])]
    frame = memoryview(bytes(encode(FetchResponse(0, 0, 7, topics), FETCH_VERSION)))
    found, _ = decode_response(frame, 0)
    assert isinstance(found, SinglePartitionResponse)
    assert (found.session_id, found.topic_id, found.data.records) == (7, TOPIC, b"r" * 200)
