"""Whole frames with invalid content: lengths, nulls, text, tags, keys, versions, duplicates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from odradek.broker.requests.apis import API_BY_KEY
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.wire import REQUEST_ELEMENTS_MAX, uvarint
from testkit.requests import batch, produce
from testkit.wire import TIMEOUT_S, ConnectionClosed, WireClient, request_bytes
from tests.helpers.fuzzing import rounds
from tests.hostile.attacks import Attacker, header, reason, responses_until_closed
from tests.hostile.process import BrokerProcess
from tests.protocol.fuzz import mutate
from tests.protocol.golden import golden_messages

pytestmark = pytest.mark.usefixtures("canary")

HUGE = b"\x7f\xff\xff\xff"
HUGE_VARINT = b"\xff\xff\xff\xff\x07"
LONG_VARINT = b"\x80\x80\x80\x80\x80\x00"
KEYS = [-1, *range(100), 127, 2**15 - 1, -(2**15)]
VERSIONS = [-1, 0, 1, 2, 5, 10, 13, 18, 19, 99, 2**15 - 1]
FUZZ_S = 15.0
MAY_WAIT = {ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
"""APIs whose responses may wait for records or for other members."""
WAIT_S = 0.3
"""Time to wait for those responses. Later ones are not awaited."""
PROBE_ID = 0x70726F62

PRODUCE_9 = header(0, 9, flexible=True) + b"\0\0\1\0\0\0\0"
PRODUCE_3 = header(0, 3, flexible=False) + b"\xff\xff\0\1\0\0\0\0"
FETCH_12 = header(1, 12, flexible=True) + bytes(25)
METADATA_9 = header(3, 9, flexible=True)
METADATA_1 = header(3, 1, flexible=False)
VERSIONS_3 = header(18, 3, flexible=True)

MALFORMED = {
    "an array of 2^31 - 1 strings": METADATA_1 + HUGE,
    "an array of less than null": METADATA_9 + b"\xff\xff\xff\xff\x0f",
    "a compact array of 2^31 - 2 structs": METADATA_9 + HUGE_VARINT,
    "a varint of six bytes": METADATA_9 + LONG_VARINT,
    "a nested array of 2^31 - 1": PRODUCE_3 + b"\0\0\0\1\0\1t" + HUGE,
    "a nested compact array": PRODUCE_9 + b"\2\2t" + HUGE_VARINT,
    "records of 2^31 - 2 bytes": PRODUCE_9 + b"\2\2t\2\0\0\0\0" + HUGE_VARINT,
    "a string longer than the frame": METADATA_1 + b"\0\0\0\1\x7f\xff",
    "a string of more than 32767 bytes": METADATA_9 + b"\2" + uvarint(40_001) + bytes(50_000),
    "a null where none may be": METADATA_1 + b"\0\0\0\1\xff\xff",
    "a null array where none may be": PRODUCE_3 + b"\xff\xff\xff\xff",
    "2^31 - 1 tags in the header": header(0, 9, flexible=False) + HUGE_VARINT,
    "2^31 - 1 tags": VERSIONS_3 + b"\2a\2b" + HUGE_VARINT,
    "a tag of 2^31 - 1 bytes": VERSIONS_3 + b"\2a\2b\1\5" + HUGE_VARINT,
    "tags in a long varint": VERSIONS_3 + b"\2a\2b" + LONG_VARINT,
    "a known tag that is too short": FETCH_12 + b"\1\1\1\1\0\1\5",
    "a client id longer than the frame": b"\0\3\0\1\0\0\0\1\x7f\xff",
    "too many elements": METADATA_9
    + uvarint(REQUEST_ELEMENTS_MAX + 2)
    + b"\2a\0" * (REQUEST_ELEMENTS_MAX + 1)
    + bytes(4),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_wrong_length_closes_the_connection(
    process: BrokerProcess, attacker: Attacker, what: str
) -> None:
    attacker.send_frame(MALFORMED[what])
    assert responses_until_closed(attacker) == []
    assert reason(attacker).startswith("malformed request: ")


def is_served(api_key: int, version: int) -> bool:
    api = API_BY_KEY.get(api_key)
    return api is not None and api.min_version <= version <= api.max_version


@pytest.mark.parametrize("version", VERSIONS)
def test_keys_and_versions_that_are_not_served_close_the_connection(
    process: BrokerProcess, version: int
) -> None:
    for api_key in KEYS:
        if is_served(api_key, version) or api_key == ApiKey.API_VERSIONS:
            continue
        with Attacker(process) as attacker:
            flexible = version >= FLEXIBLE_FROM.get(api_key, 2**15)
            attacker.send_frame(header(api_key, version, flexible=flexible) + bytes(20))
            assert responses_until_closed(attacker) == []
            assert reason(attacker).startswith(
                ("unknown or unsupported API key", "unsupported version")
            )


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_only_api_versions_has_a_response_for_any_version(attacker: Attacker, version: int) -> None:
    attacker.send_frame(header(18, version, flexible=version > 2) + b"\1\1\0")
    assert attacker.receive_frame().hex() == "00000007" + "002300000001001200000004"
    assert attacker.call(ApiVersionsRequest("still", "here"), 3).error_code == 0


def test_text_that_is_no_utf_8_is_read_as_kafka_reads_it(attacker: Attacker) -> None:
    attacker.send_frame(header(3, 4, flexible=False) + b"\0\0\0\1\0\3a\xc3\x28" + b"\0")
    assert b"a\xef\xbf\xbd(" in attacker.receive_frame()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "x" * 250, "a\nb", "\0", "é"])
def test_a_topic_name_is_never_a_path(attacker: Attacker, name: str) -> None:
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1, [], [])], 1000, False)
    assert attacker.call(request, 7).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_nulls_where_they_may_be(attacker: Attacker) -> None:
    assert attacker.call(MetadataRequest(None), 1).topics
    partition = PartitionProduceData(0, None)
    request = ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=[partition])])
    response = attacker.call(request, 9).responses[0].partition_responses[0]
    assert response.error_code == ErrorCode.INVALID_RECORD
    nothing = MetadataRequestTopic(name=None)
    assert attacker.call(MetadataRequest([nothing]), 12).topics[0].error_code


# Kafka's response to the same topic or partition named twice differs from API to API.


def test_the_same_partition_twice_in_a_produce_is_appended_once(attacker: Attacker) -> None:
    before = attacker.call(produce("t"), 9).responses[0].partition_responses[0].base_offset
    request = produce("t", batch(b"first"))
    (data,) = request.topic_data[0].partition_data
    last = PartitionProduceData(0, batch(b"last", b"last"))
    for topics in (
        [TopicProduceData("t", partition_data=[data, data, last])],
        [TopicProduceData("t", partition_data=[each]) for each in (data, data, last)],
    ):
        request.topic_data = topics
        (topic,) = attacker.call(request, 9).responses
        (response,) = topic.partition_responses
        assert (response.error_code, response.base_offset) == (0, before + 1)
        before += 2


def test_the_same_partition_twice_in_a_fetch_is_read_once(attacker: Attacker) -> None:
    attacker.call(produce("t", batch(b"x")), 9)
    part = FetchPartition(0, -1, 0, partition_max_bytes=1000)
    for topics in (
        [FetchTopic("t", partitions=[part] * 3)],
        [FetchTopic("t", partitions=[part])] * 3,
    ):
        response = attacker.call(FetchRequest(topics=topics, max_wait_ms=0), 12)
        assert sum(len(topic.partitions) for topic in response.responses) == 1


TWICE: dict[str, tuple[Any, int, Callable[[Any], list[int]], set[ErrorCode]]] = {
    "ListOffsets": (
        ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)] * 2)]),
        6,
        lambda response: [p.error_code for t in response.topics for p in t.partitions],
        {ErrorCode.INVALID_REQUEST},
    ),
    "CreateTopics": (
        CreateTopicsRequest([CreatableTopic("twice", 1, 1, [], [])] * 2, 1000, False),
        7,
        lambda response: [topic.error_code for topic in response.topics],
        {ErrorCode.INVALID_REQUEST},
    ),
    "DeleteTopics": (
        DeleteTopicsRequest(topic_names=["missing", "missing"], timeout_ms=1000),
        5,
        lambda response: [topic.error_code for topic in response.responses],
        {ErrorCode.INVALID_REQUEST},
    ),
    "CreatePartitions": (
        CreatePartitionsRequest([CreatePartitionsTopic("t", 9, None)] * 2, 1000, False),
        3,
        lambda response: [result.error_code for result in response.results],
        {ErrorCode.INVALID_REQUEST},
    ),
    "DeleteRecords": (
        DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)] * 2)], 1000),
        2,
        lambda response: [p.error_code for t in response.topics for p in t.partitions],
        {ErrorCode.NONE},
    ),
}


@pytest.mark.parametrize("api", TWICE)
def test_the_same_twice_in_one_request(attacker: Attacker, api: str) -> None:
    request, version, codes_of, expected = TWICE[api]
    assert set(codes_of(attacker.call(request, version))) == expected


def requests_of_kafka() -> list[bytes]:
    """Return every supported request as Kafka's classes wrote it, in every version."""
    return [
        header(cls.API_KEY, version, flexible=version >= cls.FLEXIBLE_FROM >= 0) + body
        for cls, entries in golden_messages().items()
        if is_request(cls)
        for version, _, body in entries
        if is_served(cls.API_KEY, version)
    ]


def is_request(cls: type[Message]) -> bool:
    return cls.__name__.endswith("Request")


def exchange(process: BrokerProcess, data: bytes) -> str:
    """Send `data` and a probe behind it on one connection. Return the outcome of `data`.

    The probe distinguishes a request without a response (Produce with acks=0) from a slow one, even
    on a busy machine. Only an API that may wait for other clients may be silent.
    """
    api_key = int.from_bytes(data[:2], "big")
    with WireClient(process.bootstrap_servers) as client:
        if api_key in MAY_WAIT:
            client.socket.settimeout(WAIT_S)
        try:
            client.send_frame(data)
            client.send_frame(request_bytes(ApiVersionsRequest("probe", "1"), 3, PROBE_ID))
            if client.receive_frame()[:4] != PROBE_ID.to_bytes(4, "big"):
                client.receive_frame()
                return "response"
        except ConnectionClosed as error:
            if not isinstance(error.__cause__, TimeoutError):
                return "closed"
            assert api_key in MAY_WAIT, f"no response in {TIMEOUT_S} s to {data.hex()}"
            return "waits"
    assert api_key == ApiKey.PRODUCE, f"a response is missing to {data.hex()}"
    return "no response"


def test_requests_of_kafka_with_flipped_bits_and_moved_bytes(
    process: BrokerProcess, seed: int
) -> None:
    random = Random(seed)
    seeds = requests_of_kafka()
    outcomes: Counter[str] = Counter()
    for _ in rounds(FUZZ_S):
        data = random.choice(seeds)
        outcomes[exchange(process, data[:8] + mutate(data[8:], random))] += 1
    assert outcomes["response"] and outcomes["closed"], outcomes


def test_unchanged_requests_of_kafka(process: BrokerProcess) -> None:
    """Their names and numbers mean nothing here: a response, a wait, or a closed connection."""
    outcomes = Counter(exchange(process, data) for data in requests_of_kafka())
    assert outcomes["response"] > sum(outcomes.values()) / 2, outcomes


def test_a_request_with_trailing_bytes_is_answered(attacker: Attacker) -> None:
    attacker.send_frame(request_bytes(ApiVersionsRequest("x", "1"), 3) + bytes(100))
    assert attacker.receive_frame()


def test_a_name_does_not_forge_a_line_of_the_log(
    process: BrokerProcess, attacker: Attacker
) -> None:
    since = len(process.lines)
    protocol = JoinGroupRequestProtocol("range", b"")
    request = JoinGroupRequest(
        "forger\nFORGED \x1b[2J\u2028FORGED", 10_000, 10_000, "", None, "consumer", [protocol]
    )
    assert attacker.call(FindCoordinatorRequest("forger", 0), 2).error_code == 0
    assert attacker.call(request, 3).error_code == 0
    process.wait_for_line(re.compile(r"forger\\x0aFORGED \\x1b\[2J").search, since=since)
    assert not any(line.startswith("FORGED") for line in process.lines)
