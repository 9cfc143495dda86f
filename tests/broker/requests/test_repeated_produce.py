"""Repeated produce requests get the same responses on the fast path as on the general path."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker.requests import repeated_produce
from odradek.broker.requests.apis import PRODUCE_ZSTD_FROM
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.produce_shapes import PREFIX_BYTES_MAX
from odradek.broker.requests.repeated_produce import (
    LEARN_EVERY,
    PARTITIONS_MAX,
    POSITIONS_MAX,
    SHAPES_MAX,
    RepeatedProduce,
)
from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.net.connection import CloseConnection, Connection
from odradek.protocol.framing import FRAME_SIZE_BYTES, unpack_size
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.result_tasks import wait
from odradek.results import Result
from odradek.slicing import sliced
from odradek.testing import Broker
from testkit.requests import batch, produce
from testkit.wire import WireClient, request_bytes
from tests.broker.test_call_count import running_broker
from tests.helpers.fast_path_hits import observed_hits
from tests.helpers.mock_transport import open_connection
from tests.helpers.remembered import remembered_shapes

TIMESTAMP_MS = 1_000
TOPIC_RESOURCE = 2


class Side:
    """A broker without a socket, which takes frames and returns responses."""

    def __init__(self, runner: asyncio.Runner, server: Any, remembers: bool) -> None:
        self.server = server
        self._runner = runner
        self._remembers = remembers
        self._dispatch = Dispatcher(server.services).dispatch
        self.connection: Connection = runner.run(self._connect())

    async def _connect(self) -> Connection:
        return open_connection(self._dispatch)[0]

    async def _execute(self, frame: bytes) -> Any:
        try:
            reply: Any = self._dispatch(self.connection, memoryview(bytearray(frame)))
            if isinstance(reply, Result):
                reply = await wait(reply)
        except CloseConnection as error:
            return f"closed: {error.reason}"
        if isinstance(reply, bytes):
            assert unpack_size(reply, 0) == (len(reply) - FRAME_SIZE_BYTES,)
            return reply[FRAME_SIZE_BYTES:]
        return None if reply is None else b"".join(reply)

    def execute(self, frame: bytes) -> Any:
        if not self._remembers:
            self.connection.remembered = None
        return self._runner.run(self._execute(frame))

    def end_offset(self, topic: str = "t") -> int:
        end: int = self.server.services.replica_manager.partition(topic, 0).log.log_end_offset
        return end

    def topic_id(self, topic: str = "t") -> Uuid:
        found: Uuid = self.server.services.image().topics_by_name[topic].topic_id
        return found


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """A broker that remembers shapes, and a broker without shapes that takes the general path."""
    with (
        running_broker(tmp_path_factory.mktemp("remembers")) as ours,
        running_broker(tmp_path_factory.mktemp("forgets")) as theirs,
    ):
        for runner, server in (ours, theirs):
            runner.run(server.create_topic("second", 2))
            runner.run(server.create_topic("wide", PARTITIONS_MAX + 1))
        yield Side(*ours, remembers=True), Side(*theirs, remembers=False)


def values(*sizes: int) -> bytes:
    return bytes(batch(*map(bytes, sizes), timestamp_ms=TIMESTAMP_MS))


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request of a connection with shapes, whether it matched one of them."""
    return observed_hits(monkeypatch, RepeatedProduce)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 14))
def test_repeated_requests_of_every_version_get_equal_responses(
    sides: tuple[Side, Side], hits: list[bool], version: int, acks: int
) -> None:
    sides[0].connection.remembered = None
    for sizes in ((1,), (1, 2), (200,), (100_000,), (20,) * 50):
        replies = []
        for side in sides:
            request = produce(records=values(*sizes), acks=acks, topic_id=side.topic_id())
            replies.append(side.execute(request_bytes(request, version, client_id="me")))
        first, second = (
            reply.replace(side.topic_id(), b"") for reply, side in zip(replies, sides, strict=True)
        )
        assert first == second
        assert sides[0].end_offset() == sides[1].end_offset()
    assert hits == ([] if version < PRODUCE_ZSTD_FROM else [True] * 4)


frames = st.tuples(
    st.sampled_from([7, 8, 9, 12]),
    st.lists(st.integers(0, 300), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(-4, 400), st.integers(0, 255)), max_size=2),
    st.sampled_from([b"", b"\0", b"\1", b"\0\0\0"]),
    st.integers(0, 4),
)


@given(st.lists(frames, min_size=2, max_size=6))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_frames_with_any_byte_changed_get_the_general_paths_response(
    sides: tuple[Side, Side], changed: list[Any]
) -> None:
    sides[0].connection.remembered = None
    for version, sizes, changes, more, fewer in changed:
        frame = bytearray(request_bytes(produce(records=values(*sizes)), version, client_id="me"))
        for position, value in changes:
            frame[position if position < 0 else 4 + position % (len(frame) - 4)] = value
        frame += more
        del frame[len(frame) - fewer :]
        first, second = (side.execute(bytes(frame)) for side in sides)
        assert first == second
        assert sides[0].end_offset() == sides[1].end_offset()


@pytest.mark.parametrize("version", [8, 9, 12])
def test_frames_with_one_byte_changed_get_the_general_paths_response(
    sides: tuple[Side, Side], version: int
) -> None:
    sides[0].connection.remembered = None
    frame = bytearray(request_bytes(produce(records=values(1)), version, client_id="me"))
    assert sides[0].execute(bytes(frame)) == sides[1].execute(bytes(frame))
    assert remembered_shapes(sides[0].connection).shapes
    for position in range(4, len(frame)):
        before = frame[position]
        for value in (0, 1, 2, 0x7F, 0x80, 0xFF):
            frame[position] = value
            first, second = (side.execute(bytes(frame)) for side in sides)
            assert first == second
            assert sides[0].end_offset() == sides[1].end_offset()
        frame[position] = before


@pytest.mark.parametrize(
    ("owner", "name", "value"), [("quota", "enabled", True), ("partition", "flush_due_offset", 1)]
)
def test_requests_with_a_quota_or_a_due_flush_take_the_general_path(
    sides: tuple[Side, Side], hits: list[bool], owner: str, name: str, value: Any
) -> None:
    sides[0].connection.remembered = None
    frame = request_bytes(produce(records=values(1)), 12, client_id="me")
    for _ in range(2):
        assert sides[0].execute(frame) == sides[1].execute(frame)
    for side in sides:
        services = side.server.services
        partition = services.replica_manager.partition("t", 0)
        changed = services.quotas.produce if owner == "quota" else partition
        before = getattr(changed, name)
        setattr(changed, name, value)
        try:
            side.execute(frame)
        finally:
            setattr(changed, name, before)
    assert hits == [True, False]


def test_truncated_records_are_not_accepted_as_fewer_records(
    sides: tuple[Side, Side],
) -> None:
    sides[0].connection.remembered = None
    whole = values(10)
    frames = [
        request_bytes(produce(records=records), 7, client_id="me")
        for records in (whole, whole + values(10)[:30])
    ]
    # If all bytes had arrived, the whole batch would be accepted without the torn one.
    for frame in (frames[0], frames[1], frames[1][:-5]):
        first, second = (side.execute(frame) for side in sides)
        assert first == second
    assert str(first).startswith("closed: malformed request")


def test_an_idempotent_duplicate_gets_the_offset_of_the_first_append(
    sides: tuple[Side, Side], hits: list[bool]
) -> None:
    sides[0].connection.remembered = None
    for sequence in (0, 1, 1, 0, 5, 2):
        records = batch(
            b"v", timestamp_ms=TIMESTAMP_MS, producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        frame = request_bytes(produce(records=records, acks=-1), 9, client_id="me")
        first, second = (side.execute(frame) for side in sides)
        assert first == second
    assert hits == [True] * 5


def test_memory_is_bounded(tmp_path: Path) -> None:
    with running_broker(tmp_path) as (runner, server):
        side = Side(runner, server, remembers=True)
        for number in range(SHAPES_MAX + 5):
            side.execute(request_bytes(produce(records=values(1)), 9, client_id=f"me {number:4d}"))
        assert len(remembered_shapes(side.connection).shapes) == SHAPES_MAX
        side.connection.remembered = None
        for length in range(POSITIONS_MAX + 2):
            side.execute(request_bytes(produce(records=values(1)), 9, client_id="m" * length))
        assert len(remembered_shapes(side.connection).positions) == POSITIONS_MAX
        side.connection.remembered = None
        long_id = "m" * PREFIX_BYTES_MAX
        side.execute(request_bytes(produce(records=values(1)), 9, client_id=long_id))
        assert not remembered_shapes(side.connection).shapes


def test_unused_shapes_are_evicted(tmp_path: Path, hits: list[bool]) -> None:
    with running_broker(tmp_path) as (runner, server):
        side = Side(runner, server, remembers=True)

        def execute(number: int) -> bool:
            side.execute(request_bytes(produce(records=values(1)), 9, client_id=f"{number:6d}"))
            return bool(hits) and hits[-1]

        for number in range(SHAPES_MAX):
            execute(number)
        memory = remembered_shapes(side.connection)
        used = memory.shapes.copy()
        for shape in used.values():
            shape.used = False
        assert execute(0)
        # For a client with more kinds of requests, the broker does not learn from each request.
        for _ in range(LEARN_EVERY - 1):
            assert not execute(999_998)
        assert not execute(999_999)
        assert execute(999_999)
        assert execute(0)
        assert len(memory.shapes) == SHAPES_MAX
        assert len(used.keys() - memory.shapes.keys()) == 1


def several(
    side: Side, *topics: tuple[str, tuple[int, ...]], acks: int = 1, sizes: tuple[int, ...] = (1,)
) -> ProduceRequest:
    data = [
        TopicProduceData(
            name,
            side.topic_id(name),
            [PartitionProduceData(index, values(*sizes)) for index in indexes],
        )
        for name, indexes in topics
    ]
    return ProduceRequest(None, acks, 1_000, data)


THREE = (("t", (0, 2)), ("second", (1,)))


def ends(side: Side) -> list[int]:
    manager = side.server.services.replica_manager
    return [
        manager.partition(*key).log.log_end_offset for key in (("t", 0), ("t", 2), ("second", 1))
    ]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 14))
def test_repeated_requests_of_several_partitions_get_equal_responses(
    sides: tuple[Side, Side], hits: list[bool], version: int, acks: int
) -> None:
    sides[0].connection.remembered = None
    for sizes in ((1,), (1, 2), (200,), (100_000,), (20,) * 50):
        replies = []
        for side in sides:
            request = several(side, *THREE, acks=acks, sizes=sizes)
            reply = side.execute(request_bytes(request, version, client_id="me"))
            for name in ("t", "second"):
                reply = reply.replace(side.topic_id(name), b"")
            replies.append(reply)
        assert replies[0] == replies[1]
        assert ends(sides[0]) == ends(sides[1])
    assert hits == ([] if version < PRODUCE_ZSTD_FROM else [True] * 4)


@pytest.mark.parametrize("version", [8, 9, 12])
def test_changed_frames_of_several_partitions_get_the_general_paths_response(
    sides: tuple[Side, Side], version: int
) -> None:
    sides[0].connection.remembered = None
    frame = bytearray(request_bytes(several(sides[0], *THREE), version, client_id="me"))
    assert sides[0].execute(bytes(frame)) == sides[1].execute(bytes(frame))
    assert remembered_shapes(sides[0].connection).shapes
    for position in range(4, len(frame)):
        before = frame[position]
        for value in (0, 1, 2, 0x10, 0x7F, 0x80, 0xFF):
            frame[position] = value
            first, second = (side.execute(bytes(frame)) for side in sides)
            assert first == second
            assert ends(sides[0]) == ends(sides[1])
        frame[position] = before


def test_a_shape_is_composed_of_the_parts_of_others(
    sides: tuple[Side, Side], hits: list[bool]
) -> None:
    sides[0].connection.remembered = None
    learnt = [(0, 1, 2, 3, 4), (0, 2), (1, 3, 4), (2, 3)]
    composed = [(0, 4, 1, 3, 2), (0, 3), (1, 2, 4), (1, 4, 3), (2, 4), (0, 1, 3, 2, 4)]
    repeated = [(0, 0), (1, 3, 1), (1, 3, 3)]
    for indexes in (*learnt, *composed, *repeated):
        request = several(sides[0], ("wide", indexes), sizes=(len(indexes), 3))
        frame = request_bytes(request, 9, client_id="me")
        first, second = (side.execute(frame) for side in sides)
        assert first == second
    assert hits == [False] * 3 + [True] * len(composed) + [False] * len(repeated)


selections = st.lists(
    st.tuples(
        st.sampled_from([("t", 3), ("second", 2), ("wide", 12)]),
        st.lists(st.integers(0, 11), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=3,
)


@given(st.lists(st.tuples(st.sampled_from([8, 9, 12]), selections), min_size=2, max_size=12))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_selection_of_partitions_gets_the_general_paths_response(
    sides: tuple[Side, Side], requests: list[tuple[int, list[tuple[tuple[str, int], list[int]]]]]
) -> None:
    sides[0].connection.remembered = None
    for version, selected in requests:
        topics = [
            (name, tuple(index % partitions for index in indexes))
            for (name, partitions), indexes in selected
        ]
        frame = request_bytes(several(sides[0], *topics), version, client_id="me")
        first, second = (side.execute(frame) for side in sides)
        assert first == second


def test_links_between_partitions_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_produce, "LINKS_MAX", 8)
    with running_broker(tmp_path) as (runner, server):
        runner.run(server.create_topic("wide", 20))
        side = Side(runner, server, remembers=True)
        for index in range(1, 20):
            request = several(side, ("wide", (0, index)))
            side.execute(request_bytes(request, 9, client_id="me"))
            memory = remembered_shapes(side.connection)
            assert memory.link_count == sum(map(len, memory.links.values()))
            assert 0 < memory.link_count <= 8


def test_a_refused_batch_does_not_stop_the_appends_of_the_others(
    sides: tuple[Side, Side], hits: list[bool]
) -> None:
    sides[0].connection.remembered = None
    good = request_bytes(several(sides[0], *THREE), 9, client_id="me")
    assert sides[0].execute(good) == sides[1].execute(good)
    for at in range(3):
        request = several(sides[0], *THREE)
        torn = [data for topic in request.topic_data for data in topic.partition_data][at]
        torn.records = torn.records[:-1] + b"?"  # type: ignore[operator,index]
        frame = request_bytes(request, 9, client_id="me")
        first, second = (side.execute(frame) for side in sides)
        assert first == second
        assert ends(sides[0]) == ends(sides[1])
    assert hits == [True] * 3


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [8, 9, 12, 13])
def test_slow_appends_of_a_repeated_request_are_continued_in_time_slices(
    sides: tuple[Side, Side],
    hits: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    acks: int,
) -> None:
    """For example appends that roll the segments of their logs. A refused batch changes nothing."""
    sides[0].connection.remembered = None
    continued: list[None] = []

    def observed(work: Any) -> Any:
        continued.append(None)  # no count of ended slices, because tasks of the broker end some too
        return sliced(work)

    monkeypatch.setattr(repeated_produce, "sliced", observed)
    partitions = tuple(range(10))
    for torn_at in (None, None, 1, 7):
        replies, ends = [], []
        for side in sides:
            request = several(side, ("wide", partitions), acks=acks)
            if torn_at is not None:
                torn = request.topic_data[0].partition_data[torn_at]
                torn.records = torn.records[:-1] + b"?"  # type: ignore[operator,index]
            reply = side.execute(request_bytes(request, version, client_id="me"))
            replies.append(reply.replace(side.topic_id("wide"), b""))
            manager = side.server.services.replica_manager
            ends.append([manager.partition("wide", at).log.log_end_offset for at in partitions])
        assert replies[0] == replies[1]
        assert ends[0] == ends[1]
        monkeypatch.setattr(repeated_produce, "SLICE_MS", -1)
    assert hits == [True] * 3
    assert len(continued) == 3


def test_too_many_or_repeated_partitions_take_the_general_path(
    sides: tuple[Side, Side], hits: list[bool]
) -> None:
    for topics in (
        [("wide", tuple(range(PARTITIONS_MAX + 1)))],
        [("t", (0, 0))],
        [("t", (0,)), ("t", (1,))],
    ):
        sides[0].connection.remembered = None
        for _ in range(3):
            for side in sides:  # both, because other tests compare their logs
                side.execute(request_bytes(several(side, *topics), 9, client_id="me"))
    assert not any(hits)


def set_config(client: WireClient, name: str, value: str) -> None:
    resource = AlterConfigsResource(TOPIC_RESOURCE, "t", [AlterableConfig(name, 0, value)])
    response = client.call(IncrementalAlterConfigsRequest([resource]), 1)
    assert not response.responses[0].error_code


@pytest.mark.parametrize(
    ("name", "value", "code", "again"),
    [
        (
            "cleanup.policy",
            "compact",
            ErrorCode.INVALID_RECORD,
            False,
        ),  # records without keys are refused
        ("max.message.bytes", "50", ErrorCode.MESSAGE_TOO_LARGE, False),
        ("compression.type", "gzip", ErrorCode.NONE, False),
        ("flush.messages", "1", ErrorCode.NONE, False),
        (
            "min.insync.replicas",
            "2",
            ErrorCode.NONE,
            True,
        ),  # the effective value is at most the number of replicas
    ],
)
def test_a_config_change_of_a_topic_changes_the_response(
    broker: Broker,
    client: WireClient,
    hits: list[bool],
    name: str,
    value: str,
    code: ErrorCode,
    again: bool,
) -> None:
    """The next request takes the general path. The one after it may match its shape."""
    broker.create_topic("t")
    for _ in range(2):
        client.call(produce(records=batch(b"v"), acks=-1), 12)
    assert hits == [True]
    set_config(client, name, value)
    for _ in range(2):
        response = client.call(produce(records=batch(b"v"), acks=-1), 12)
        assert response.responses[0].partition_responses[0].error_code == code
    assert hits == [True, False, False, again]  # the second request is the change


def test_a_recreated_topic_gets_the_records_and_a_deleted_one_does_not(
    broker: Broker, client: WireClient, hits: list[bool]
) -> None:
    broker.create_topic("t")
    for _ in range(2):
        client.call(produce(records=batch(b"v")), 12)
    deleted = client.call(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert not deleted.responses[0].error_code
    gone = client.call(produce(records=batch(b"v")), 12).responses[0].partition_responses[0]
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic("t")
    for offset in range(2):
        again = client.call(produce(records=batch(b"v")), 12).responses[0].partition_responses[0]
        assert (again.error_code, again.base_offset) == (0, offset)
    assert hits == [True, False, False, False, True]


def test_responses_have_their_own_correlation_ids(sides: tuple[Side, Side]) -> None:
    frame = bytearray(request_bytes(produce(records=values(1)), 12, client_id="me"))
    for correlation_id in (0, 5, -1, 2**31 - 1):
        struct.pack_into(">i", frame, 4, correlation_id)
        for side in sides:
            assert struct.unpack_from(">i", side.execute(bytes(frame))) == (correlation_id,)
