"""A request with many elements is executed in time slices, so other connections do not wait for it.

The tests count the slices and check the order of responses. They never measure time.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek import slicing
from odradek.broker.broker import BrokerServer
from odradek.broker.requests import dispatch
from odradek.broker.requests.dispatch import LONG_REQUESTS_MAX, Dispatcher
from odradek.collector import COLLECTIONS_POSTPONED
from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode
from odradek.metadata.store.memory import MemoryStore
from odradek.net.connection import Connection
from odradek.protocol import freeing
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode
from odradek.protocol.headers import RESPONSE_FLEXIBLE_FROM
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.registry import response_class
from odradek.slicing import ELEMENTS_PER_SLICE, ELEMENTS_UNSLICED_MAX
from testkit.many_elements import long_requests
from testkit.requests import batch, fetch
from tests.broker.test_call_count import framed, received
from tests.helpers.mock_transport import MockTransport, open_connection

ELEMENTS = 2 * ELEMENTS_UNSLICED_MAX
LONG = [(api, name, request) for api, name, request in long_requests(ELEMENTS)]
LONG_IDS = [f"{api.handler}-{name}" for api, name, _ in LONG]
ARRAYS_OF_NUMBERS = {"producer_id_filters", "resource_types"}  # read in one step
FREED = (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.PRODUCE)
PARTITIONS = 2 * ELEMENTS_PER_SLICE
# APIs whose response depends only on the request and on an empty broker.
SAME_RESPONSE = {
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_RECORDS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.PRODUCE,
}

REPEATABLE = [
    pytest.param(*case, id=name)
    for case, name in zip(LONG, LONG_IDS, strict=True)
    if case[0].key in SAME_RESPONSE
]


@contextmanager
def running(directory: Path) -> Iterator[tuple[asyncio.Runner, BrokerServer]]:
    properties = {
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "auto.create.topics.enable": "false",
    }
    server = BrokerServer(BrokerConfig.from_properties(properties), store=MemoryStore())
    with asyncio.Runner() as runner:
        runner.run(server.start())
        try:
            yield runner, server
        finally:
            runner.run(server.stop())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, BrokerServer]]:
    with running(tmp_path_factory.mktemp("slices")) as (runner, server):
        runner.run(
            response_to(server, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        )
        runner.run(
            response_to(server, FindCoordinatorRequest(key_type=1, coordinator_keys=["g"]), 4)
        )
        yield runner, server


@pytest.fixture
def ended_slices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list with the collector's last threshold at the end of each time slice."""
    times: list[int] = []
    end_slice = slicing.end_slice

    async def counted() -> None:
        times.append(gc.get_threshold()[2])
        await end_slice()

    monkeypatch.setattr(slicing, "end_slice", counted)
    return times


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110 - it becomes true in some iteration of the loop
        await asyncio.sleep(0)


async def written(transport: MockTransport) -> bytes:
    """Return the next sent frame. Wait for as many time slices as it takes."""
    written = transport.written
    await until(lambda: len(written) >= 4 and len(written) >= 4 + size_of(transport))
    end = 4 + size_of(transport)
    frame = bytes(transport.written[4:end])
    del transport.written[:end]
    return frame


def size_of(transport: MockTransport) -> int:
    return int.from_bytes(transport.written[:4], "big")


def opened(server: BrokerServer) -> tuple[Connection, MockTransport]:
    return open_connection(Dispatcher(server.services).dispatch)


async def response_to(server: BrokerServer, request: Any, version: int) -> Any:
    connection, transport = opened(server)
    received(connection, framed(request, version))()
    return decoded(request, version, await written(transport))


def decoded(request: Any, version: int, frame: bytes) -> Any:
    flexible = version >= RESPONSE_FLEXIBLE_FROM[request.API_KEY]
    return decode(response_class(request.API_KEY), version, frame, 5 if flexible else 4)


@pytest.mark.parametrize(("api", "name", "request_"), LONG, ids=LONG_IDS)
def test_another_connection_gets_its_response_before_a_long_request(
    broker: tuple[asyncio.Runner, BrokerServer],
    ended_slices: list[int],
    api: Any,
    name: str,
    request_: Any,
) -> None:
    runner, server = broker

    async def run() -> None:
        connection, transport = opened(server)
        other, other_transport = opened(server)
        received(connection, framed(request_, api.max_version))()
        received(other, framed(ApiVersionsRequest("other", "1"), 3))()
        assert other_transport.written
        assert not transport.written
        await written(transport)

    runner.run(run())
    if not name.endswith("[0]") and name not in ARRAYS_OF_NUMBERS:
        assert len(ended_slices) >= ELEMENTS // ELEMENTS_PER_SLICE - 1


@pytest.mark.parametrize(
    ("api", "name", "request_"),
    [
        each
        for each in LONG
        if each[0].key in (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.PRODUCE)
    ],
)
def test_a_long_request_and_its_response_are_freed_in_slices(
    broker: tuple[asyncio.Runner, BrokerServer],
    monkeypatch: pytest.MonkeyPatch,
    api: Any,
    name: str,
    request_: Any,
) -> None:
    """Nothing else refers to their arrays then."""
    runner, server = broker
    freed: Counter[str] = Counter()
    free_last = freeing._free_last

    def counted(arrays: list[list[Any]], left: int) -> int:
        is_response = any("Response" in each.__class__.__name__ for each in arrays[-1][:1])
        left_after = free_last(arrays, left)
        freed["response" if is_response else "request"] += left - left_after
        return left_after

    monkeypatch.setattr(freeing, "_free_last", counted)
    runner.run(response_to(server, request_, api.max_version))
    assert freed["request"] >= ELEMENTS, name
    assert freed["response"] >= ELEMENTS, name


@pytest.mark.parametrize(("api", "name", "request_"), REPEATABLE)
def test_a_sliced_response_equals_the_unsliced_one(
    broker: tuple[asyncio.Runner, BrokerServer],
    monkeypatch: pytest.MonkeyPatch,
    api: Any,
    name: str,
    request_: Any,
) -> None:
    runner, server = broker
    sliced = runner.run(response_to(server, request_, api.max_version))
    monkeypatch.setattr(dispatch, "ELEMENTS_UNSLICED_MAX", 10 * ELEMENTS)
    assert runner.run(response_to(server, request_, api.max_version)) == sliced


def test_each_pass_over_the_topics_of_a_creation_is_sliced(
    broker: tuple[asyncio.Runner, BrokerServer], ended_slices: list[int]
) -> None:
    runner, server = broker
    names = [f"t{number}" for number in range(ELEMENTS)]
    topics = [CreatableTopic(name, 0, 1) for name in names]  # refused: no partitions
    response = runner.run(response_to(server, CreateTopicsRequest(topics), 7))
    assert [each.name for each in response.topics] == names
    assert {each.error_code for each in response.topics} == {ErrorCode.INVALID_PARTITIONS}
    passes = ["decode", "count", "accept", "place", "end", "result_of", "encode"]
    assert len(ended_slices) >= len(passes) * (ELEMENTS // ELEMENTS_PER_SLICE - 1)


def test_the_records_of_a_long_offset_commit_are_made_in_slices(
    broker: tuple[asyncio.Runner, BrokerServer], ended_slices: list[int]
) -> None:
    runner, server = broker
    partitions = [OffsetCommitRequestPartition(number) for number in range(ELEMENTS)]
    topic = OffsetCommitRequestTopic("t", partitions=partitions)
    request = OffsetCommitRequest("g", topics=[topic])
    response = runner.run(response_to(server, request, 8))
    assert len(response.topics[0].partitions) == ELEMENTS
    passes = ["decode", "make", "encode"]
    assert len(ended_slices) >= len(passes) * (ELEMENTS // ELEMENTS_PER_SLICE - 1)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_offset_commit_that_is_decoded_in_one_slice_makes_its_records_in_several(
    broker: tuple[asyncio.Runner, BrokerServer], ended_slices: list[int], in_transaction: bool
) -> None:
    runner, server = broker
    numbers = range(3 * ELEMENTS_PER_SLICE)
    request: Any
    if in_transaction:
        pending = [TxnOffsetCommitRequestPartition(number) for number in numbers]
        topics = [TxnOffsetCommitRequestTopic("t", pending)]
        # The empty group id is refused without a verification of the transaction.
        request = TxnOffsetCommitRequest("x", "", 1, 0, topics=topics)
    else:
        plain = [OffsetCommitRequestPartition(number) for number in numbers]
        request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=plain)])
    response = runner.run(response_to(server, request, 3 if in_transaction else 8))
    assert len(response.topics[0].partitions) == len(numbers)
    assert len(ended_slices) >= 2


def test_full_collections_are_postponed_during_long_requests(
    broker: tuple[asyncio.Runner, BrokerServer], ended_slices: list[int]
) -> None:
    runner, server = broker
    usual = gc.get_threshold()
    names = [f"g{number}" for number in range(ELEMENTS)]
    runner.run(response_to(server, DescribeGroupsRequest(names), 5))
    assert set(ended_slices) == {COLLECTIONS_POSTPONED}
    assert gc.get_threshold() == usual


def test_the_requests_of_a_connection_keep_their_order(
    broker: tuple[asyncio.Runner, BrokerServer],
) -> None:
    runner, server = broker

    async def run() -> None:
        connection, transport = opened(server)
        request = DescribeGroupsRequest([f"g{number}" for number in range(ELEMENTS)])
        versions = ApiVersionsRequest("behind", "1")
        received(connection, framed(request, 5) + framed(versions, 3))()
        assert not transport.written
        first = decoded(request, 5, await written(transport))
        assert [group.group_id for group in first.groups] == request.groups
        assert decoded(versions, 3, await written(transport)).error_code == 0

    runner.run(run())


def test_a_connection_lost_during_a_long_request_affects_no_other(
    broker: tuple[asyncio.Runner, BrokerServer], ended_slices: list[int]
) -> None:
    runner, server = broker

    async def run() -> None:
        connection, transport = opened(server)
        names = [f"g{number}" for number in range(ELEMENTS)]
        received(connection, framed(DescribeGroupsRequest(names), 5))()
        await until(lambda: bool(ended_slices))
        connection.connection_lost(None)
        await until(lambda: not connection._shared.executing)
        assert not transport.written

    runner.run(run())
    assert gc.get_threshold()[2] != COLLECTIONS_POSTPONED


def test_work_cancelled_between_two_slices_is_closed() -> None:
    closed: list[bool] = []

    def endless() -> Generator[None, None, None]:
        try:
            while True:
                yield
        finally:
            closed.append(True)

    async def run() -> None:
        work = endless()
        task = asyncio.get_running_loop().create_task(slicing.in_slices(work))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed

    asyncio.run(run())


def test_the_number_of_concurrent_long_requests_is_limited(
    broker: tuple[asyncio.Runner, BrokerServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, server = broker
    executing: list[int] = [0]
    execute = Dispatcher._execute_sliced

    async def counted(*args: Any) -> Any:
        executing.append(executing[-1] + 1)
        try:
            return await execute(*args)
        finally:
            executing.append(executing[-1] - 1)

    async def run() -> None:
        dispatcher = Dispatcher(server.services)
        request = DescribeGroupsRequest([f"g{number}" for number in range(ELEMENTS)])
        opened = [open_connection(dispatcher.dispatch) for _ in range(2 * LONG_REQUESTS_MAX)]
        for connection, _ in opened:
            received(connection, framed(request, 5))()
        for _, transport in opened:
            response = decoded(request, 5, await written(transport))
            assert len(response.groups) == ELEMENTS

    monkeypatch.setattr(Dispatcher, "_execute_sliced", counted)
    runner.run(run())
    assert max(executing) == LONG_REQUESTS_MAX


def test_a_change_between_the_slices_of_a_fetch_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as (runner, server):
        runner.run(created(server, "t"))
        partition = server.services.replica_manager.partition("t", 0)
        now_ms = server.services.clock.time_ms()
        records = memoryview(batch(b"x"))
        at_slice_end(monkeypatch, lambda: partition.append(records, 1, now_ms))
        response = runner.run(response_to(server, endless_fetch("t"), 12))
        assert response.responses[0].partitions[0].records
        assert not server.services.replica_manager.fetches.waiting


def test_the_fetch_of_a_connection_lost_between_slices_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(server: BrokerServer) -> None:
        connection, transport = opened(server)
        at_slice_end(monkeypatch, lambda: connection.connection_lost(None))
        received(connection, framed(endless_fetch("t"), 12))()
        await until(lambda: connection.closed and not connection._shared.executing)
        await until(lambda: not server.services.replica_manager.fetches.waiting)
        assert not transport.written

    with running(tmp_path) as (runner, server):
        runner.run(created(server, "t"))
        runner.run(run(server))


def at_slice_end(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Run `action` at the end of the first time slice."""
    end_slice = slicing.end_slice

    async def acting() -> None:
        monkeypatch.setattr(slicing, "end_slice", end_slice)
        action()
        await end_slice()

    monkeypatch.setattr(slicing, "end_slice", acting)


async def created(server: BrokerServer, name: str) -> None:
    create = CreateTopicsRequest([CreatableTopic(name, PARTITIONS, 1, [], [])], 1000, False)
    assert (await response_to(server, create, 7)).topics[0].error_code == 0


def endless_fetch(name: str) -> Any:
    request = fetch(name, partitions=tuple(range(PARTITIONS)))
    request.max_wait_ms = 2**31 - 1
    return request


def test_topics_are_created_written_read_and_deleted_in_slices(
    tmp_path: Path, ended_slices: list[int]
) -> None:
    with running(tmp_path) as (runner, server):
        create = CreateTopicsRequest([CreatableTopic("t", PARTITIONS, 1, [], [])], 1000, False)
        assert runner.run(response_to(server, create, 7)).topics[0].error_code == 0
        assert len(ended_slices) >= PARTITIONS // ELEMENTS_PER_SLICE
        ended_slices.clear()
        runner.run(check_produce(server))
        assert len(ended_slices) >= PARTITIONS // ELEMENTS_PER_SLICE
        ended_slices.clear()
        runner.run(check_session(server))
        assert len(ended_slices) >= 2 * (PARTITIONS // ELEMENTS_PER_SLICE)
        ended_slices.clear()
        for request in (MetadataRequest(None), MetadataRequest([MetadataRequestTopic(name="t")])):
            ended_slices.clear()
            (topic,) = runner.run(response_to(server, request, 12)).topics
            assert [each.partition_index for each in topic.partitions] == list(range(PARTITIONS))
            assert len(ended_slices) >= 2 * (PARTITIONS // ELEMENTS_PER_SLICE)
        ended_slices.clear()
        delete = DeleteTopicsRequest([DeleteTopicState("t")], [], 1000)
        assert runner.run(response_to(server, delete, 6)).responses[0].error_code == 0
        assert len(ended_slices) >= PARTITIONS // ELEMENTS_PER_SLICE
        find = server.services.replica_manager.find
        assert not any(find("t", number) for number in range(PARTITIONS))


async def check_produce(server: BrokerServer) -> None:
    data = [PartitionProduceData(number, batch(b"x")) for number in range(PARTITIONS)]
    request = ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=data)])
    (topic,) = (await response_to(server, request, 9)).responses
    assert [each.index for each in topic.partition_responses] == list(range(PARTITIONS))
    assert {(p.error_code, p.base_offset) for p in topic.partition_responses} == {(0, 0)}


async def check_session(server: BrokerServer) -> None:
    """Open a session by a full fetch. A later request without partitions then means all of them."""
    numbers = tuple(range(PARTITIONS))
    full = fetch("t", partitions=numbers, session_id=0, session_epoch=0)
    first = await response_to(server, full, 12)
    (topic,) = first.responses
    assert [each.partition_index for each in topic.partitions] == list(numbers)
    assert all(each.records for each in topic.partitions)
    waiting = fetch("t", partitions=(), session_id=first.session_id, session_epoch=1)
    waiting.max_bytes = 1
    second = await response_to(server, waiting, 12)
    assert isinstance(second, FetchResponse)
    assert (second.error_code, len(second.responses[0].partitions)) == (ErrorCode.NONE, 1)
