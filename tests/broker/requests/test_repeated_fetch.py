"""Repeated fetch requests get the same responses on the fast path as on the general path."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker.handlers.fetch import ZSTD_VERSION
from odradek.broker.main import fallbacks_forced
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.fetch_sessions import (
    FetchPartition,
    FetchSession,
    FetchSessionCache,
)
from odradek.broker.requests.fetch_shapes import FRAME_BYTES_MAX
from odradek.broker.requests.repeated_fetch import LEARN_AFTER_MAX, RepeatedFetch
from odradek.environment.environment import Environment
from odradek.environment.files import PortableFiles
from odradek.errors import ErrorCode
from odradek.log.residency import NotResident
from odradek.net.connection import CloseConnection
from odradek.protocol.codec import decoder
from odradek.protocol.fetch_session import EPOCH_MAX
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.records.region import FileRegion
from odradek.results import Result
from odradek.testing import Broker
from testkit.requests import batch, fetch
from testkit.wire import WireClient, request_bytes
from tests.broker.test_call_count import running_broker
from tests.helpers.fast_path_hits import observed_hits
from tests.helpers.mock_transport import open_connection
from tests.helpers.transactions import end_transaction, produce_plain, produce_transactional

BATCHES = 20
BATCH_RECORDS = 5
END = BATCHES * BATCH_RECORDS
MAX_BYTES = 1_000
SESSION_VERSION = 7
LAST_FETCHED_EPOCH_VERSION = 12
VERSIONS = range(4, 19)
READ_COMMITTED = 1


class Side:
    """One connection to a broker without a socket, which takes frames and returns responses."""

    def __init__(self, runner: asyncio.Runner, server: Any, remembers: bool) -> None:
        self.server = server
        self.services = server.services
        self._runner = runner
        self._remembers = remembers
        self._dispatch = Dispatcher(server.services).dispatch
        self.connection = runner.run(self._connect())

    async def _connect(self) -> Any:
        return open_connection(self._dispatch)[0]

    async def _execute(self, frame: bytes) -> Any:
        try:
            reply: Any = self._dispatch(self.connection, memoryview(bytearray(frame)))
        except CloseConnection as error:
            return f"closed: {error.reason}"
        if isinstance(reply, Result):
            reply.cancel()
            return "waits"
        return b"".join([content(chunk) for chunk in reply])

    def execute(self, frame: bytes) -> Any:
        """Return the bytes of the response, or a text if there is none now."""
        if not self._remembers:
            self.connection.fetch_shape = None
        return self._runner.run(self._execute(frame))

    def fetch(self, offset: int = 0, *, version: int = 12, **options: Any) -> Any:
        return self.execute(self.frame(offset, version=version, **options))

    def frame(self, offset: int = 0, *, version: int = 12, **options: Any) -> bytes:
        options = {"partition_max_bytes": MAX_BYTES, **options}
        client_id = options.pop("client_id", "me")
        request = fetch("t", offset, topic_id=self.topic_id, **options)
        return request_bytes(request, version, client_id=client_id)

    @property
    def topic_id(self) -> Any:
        return self.services.image().topics_by_name["t"].topic_id

    @property
    def partition(self) -> Any:
        return self.services.replica_manager.partition("t", 0)

    def open_session(self, version: int = 12, **options: Any) -> int:
        """Open a fetch session for partition 0. Return its id."""
        reply = self.fetch(version=version, session_epoch=0, **options)
        pos = 5 if version >= 12 else 4
        response = decoder(FetchResponse, version)(memoryview(reply), pos)[0]
        assert response.session_id
        return response.session_id

    def without_ids(self, reply: Any) -> Any:
        """Return a response without the ids of the sessions that were used last."""
        if isinstance(reply, bytes):
            for used in [*self.services.fetch_sessions.sessions][-3:]:
                reply = reply.replace(used.to_bytes(4, "big"), b"<id>")
        return reply

    def session(self, session_id: int) -> tuple[Any, ...] | None:
        """Return the state of a session, without its id."""
        found: FetchSession | None = self.services.fetch_sessions.sessions.get(session_id)
        if found is None:
            return None
        names = [*FetchPartition.__slots__]
        known = [[getattr(each, name) for name in names] for each in found.partitions.values()]
        return found.epoch, known


def content(chunk: Any) -> bytes:
    """Return the bytes of a chunk, and close it if it is a region."""
    if isinstance(chunk, bytes):
        return chunk
    data: bytes = chunk.read()
    chunk.close()
    return data


def append(server: Any, batches: int, **options: Any) -> None:
    partition = server.services.replica_manager.partition("t", 0)
    for _ in range(batches):
        records = batch(*[bytes(60)] * BATCH_RECORDS, timestamp_ms=1_000, **options)
        partition.append(records, 1, 1_000)


def both(runner: asyncio.Runner, server: Any) -> tuple[Side, Side]:
    return Side(runner, server, True), Side(runner, server, False)


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """A connection that remembers its shape, and one that takes the general path."""
    with running_broker(tmp_path) as (runner, server):
        append(server, BATCHES)
        yield both(runner, server)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Any]]:
    """A broker for tests that do not change the topic. Its session ids are far apart."""
    with running_broker(tmp_path_factory.mktemp("shared")) as (runner, server):
        append(server, BATCHES)
        services = server.services
        numbers = count(1)
        services.fetch_sessions = FetchSessionCache(
            1_000_000, services.clock, lambda _low, _high: next(numbers) * 0x1E3779B1 % EPOCH_MAX
        )
        yield runner, server


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request of a connection with a shape, whether the fast path executed it."""
    return observed_hits(monkeypatch, RepeatedFetch)


def hits_of_a_client(*hits: bool) -> list[bool]:
    """Return the hits that requests to a whole broker have.

    If the broker works without RWF_NOWAIT, each read runs in a thread, and no shape is learnt.
    """
    return [] if fallbacks_forced() else [*hits]


@pytest.mark.parametrize("isolation_level", [0, READ_COMMITTED])
@pytest.mark.parametrize("version", VERSIONS)
def test_repeated_requests_of_every_version_get_equal_responses(
    sides: tuple[Side, Side], hits: list[bool], version: int, isolation_level: int
) -> None:
    for offset in (0, 7, END - 1, 5, 50):
        first, second = (
            side.fetch(offset, version=version, isolation_level=isolation_level) for side in sides
        )
        assert first == second
        assert len(first) > 300
    assert hits == ([True] * 4 if version >= ZSTD_VERSION else [])


@pytest.mark.parametrize("version", range(SESSION_VERSION, 19))
def test_repeated_requests_of_a_session_get_equal_responses(
    sides: tuple[Side, Side], hits: list[bool], version: int
) -> None:
    opened = [side.open_session(version) for side in sides]
    for number, offset in enumerate((3, 7, END - 1, 5, 50)):
        replies = []
        for side, session_id in zip(sides, opened, strict=True):
            reply = side.fetch(
                offset, version=version, session_id=session_id, session_epoch=number + 1
            )
            replies.append(side.without_ids(reply))
        assert replies[0] == replies[1]
        assert len(replies[0]) > 300
        states = [side.session(each) for side, each in zip(sides, opened, strict=True)]
        assert states[0] == states[1]
        assert states[0] is not None
        assert states[0][0] == number + 2
    assert hits == ([True] * 4 if version >= ZSTD_VERSION else [])


def test_a_session_is_the_most_recently_used_one_after_a_repeated_fetch(
    sides: tuple[Side, Side],
) -> None:
    side, other = sides
    session_id = side.open_session()
    for epoch in (1, 2):
        other_id = other.open_session()
        assert [*side.services.fetch_sessions.sessions][-1] == other_id
        side.fetch(session_id=session_id, session_epoch=epoch)
        assert [*side.services.fetch_sessions.sessions][-1] == session_id


def test_the_epoch_of_a_session_continues_with_1_after_the_greatest(
    sides: tuple[Side, Side], hits: list[bool]
) -> None:
    side = sides[0]
    session_id = side.open_session()
    side.fetch(session_id=session_id, session_epoch=1)
    side.services.fetch_sessions.sessions[session_id].epoch = EPOCH_MAX
    for epoch in (EPOCH_MAX, 1, 2):
        assert len(side.fetch(session_id=session_id, session_epoch=epoch)) > 300
    assert hits == [True] * 3


DIFFERENCES = (1, 2, 0x7F, 0x80, 0xFF)


@pytest.mark.parametrize("version", [10, 11, 12, 17, 18])
@pytest.mark.parametrize("in_session", [False, True])
def test_frames_with_one_byte_changed_get_the_general_paths_response(
    shared: tuple[asyncio.Runner, Any], hits: list[bool], version: int, in_session: bool
) -> None:
    sides = both(*shared)
    length = len(sides[0].frame(version=version))
    for position in range(4, length):
        for difference in DIFFERENCES:
            outcomes = []
            for side in sides:
                session_id = side.open_session(version) if in_session else 0
                options = {"version": version, "session_id": session_id}
                side.fetch(3, session_epoch=1 if in_session else -1, **options)
                frame = side.frame(8, session_epoch=2 if in_session else -1, **options)
                changed = bytearray(frame)
                changed[position] ^= difference
                reply = side.execute(bytes(changed))
                outcomes.append((side.without_ids(reply), side.session(session_id)))
            assert outcomes[0] == outcomes[1], (position, difference)
    assert any(hits)


steps = st.one_of(
    st.tuples(st.just("fetch"), st.integers(-2, END + 2)),
    st.tuples(st.just("fetch"), st.integers(0, 3).map(lambda batches: batches * BATCH_RECORDS)),
    st.tuples(st.just("limit"), st.sampled_from([-1, 0, 1, 500, 1_000, 100_000])),
    st.tuples(st.just("max_bytes"), st.sampled_from([-2, 0, 600, 100_000_000])),
    st.tuples(st.just("max_wait_ms"), st.sampled_from([0, 60_000])),
    st.tuples(st.just("min_bytes"), st.sampled_from([0, 1, 600, 1_001])),
    st.tuples(st.just("leader_epoch"), st.sampled_from([-1, 0, 1])),
    st.tuples(st.just("last_fetched_epoch"), st.sampled_from([-1, 0, 1])),
    st.tuples(st.just("isolation_level"), st.sampled_from([0, READ_COMMITTED])),
    st.tuples(st.just("partitions"), st.sampled_from([(0,), (0, 1), (1,), ()])),
    st.tuples(st.just("open"), st.none()),
    st.tuples(st.just("close"), st.none()),
    st.tuples(st.just("wrong epoch"), st.sampled_from([-1, 1])),
)


@given(st.lists(steps, min_size=4, max_size=30), st.sampled_from([10, 12, 15, 17, 18]))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_sequence_of_requests_gets_the_general_paths_responses(
    shared: tuple[asyncio.Runner, Any], sequence: list[Any], version: int
) -> None:
    sides = both(*shared)
    outcomes = [replies(side, sequence, version) for side in sides]
    assert outcomes[0] == outcomes[1]


def replies(side: Side, sequence: list[Any], version: int) -> list[Any]:
    """Return the responses to a sequence of requests, and the state of the session after each."""
    options: dict[str, Any] = {"version": version, "max_wait_ms": 60_000}
    found: list[Any] = []
    session_id, epoch = 0, -1
    for name, value in sequence:
        if name == "open":
            session_id, epoch = side.open_session(version), 1
        elif name == "close":
            session_id, epoch = 0, -1
        elif name == "limit":
            options["partition_max_bytes"] = value
        elif name == "wrong epoch":
            epoch = max(epoch + value, -1)
        elif name == "last_fetched_epoch" and version < LAST_FETCHED_EPOCH_VERSION:
            continue
        elif name != "fetch":
            options[name] = value
        else:
            reply = side.fetch(value, session_id=session_id, session_epoch=epoch, **options)
            found.append((side.without_ids(reply), side.session(session_id)))
            epoch = epoch + 1 if epoch > 0 else epoch
    return found


def test_changes_of_the_log_are_seen(sides: tuple[Side, Side], hits: list[bool]) -> None:
    def check(offset: int, **options: Any) -> Any:
        first, second = (side.fetch(offset, **options) for side in sides)
        assert first == second
        return first

    server = sides[0].server
    for _ in range(2):
        check(0)
    assert check(END, max_wait_ms=60_000) == "waits"
    append(server, 1)
    assert len(check(END)) > 300
    sides[0].partition.log.delete_records(10)
    assert len(check(10)) > 300
    assert check(9) != check(10)
    assert hits == [True, False, True, True, False, True]


def test_committed_reads_end_at_an_open_transaction_and_list_aborted_ones(
    broker: Broker, client: WireClient, hits: list[bool]
) -> None:
    def read(offset: int) -> tuple[int, Any]:
        request = fetch("t", offset, isolation_level=READ_COMMITTED, partition_max_bytes=1)
        data = client.call(request, 12).responses[0].partitions[0]
        return len(data.records), data.aborted_transactions

    broker.create_topic("t")
    for _ in range(3):
        produce_plain(broker, b"v")
    size, _ = read(0)
    produce_transactional(broker, 7, 0, b"v")
    assert read(1) == (size, [])
    assert read(3) == (0, [])
    end_transaction(broker, 7, committed=False)
    records, aborted = read(2)
    assert records == size
    assert [(each.producer_id, each.first_offset) for each in aborted] == [(7, 3)]
    assert hits == hits_of_a_client(True, False, False)


def test_requests_with_a_quota_take_the_general_path(
    sides: tuple[Side, Side], hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = sides[0]
    for _ in range(2):
        side.fetch()
    monkeypatch.setattr(side.services.quotas.fetch, "enabled", True)
    side.fetch()
    assert hits == [True, False]


def test_a_deleted_topic_is_unknown_and_a_recreated_one_is_read(
    broker: Broker, client: WireClient, hits: list[bool]
) -> None:
    def read() -> tuple[int, bytes]:
        data = client.call(fetch("t"), 12).responses[0].partitions[0]
        return data.error_code, bytes(data.records)

    broker.create_topic("t")
    produce_plain(broker, b"old")
    assert [b"old" in read()[1] for _ in range(2)] == [True, True]
    client.call(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert read() == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")
    broker.create_topic("t")
    produce_plain(broker, b"new")
    assert [b"new" in read()[1] for _ in range(2)] == [True, True]
    # The request to delete the topic has no shape either, and ends the use of the old one.
    assert hits == hits_of_a_client(True, False, False, True)


def test_reads_from_the_disk_take_the_general_path(tmp_path: Path, hits: list[bool]) -> None:
    """Without RWF_NOWAIT each read may wait for the disk, so a thread executes it."""
    with Broker(data_dir=tmp_path, environment=Environment(files=PortableFiles())) as broker:
        broker.create_topic("t")
        for _ in range(3):
            produce_plain(broker, b"v")
        with WireClient(broker.bootstrap_servers) as client:
            for offset in range(3):
                request = fetch("t", offset, partition_max_bytes=1)
                data = client.call(request, 12).responses[0].partitions[0]
                assert b"v" in bytes(data.records)
    assert not any(hits)


def test_a_read_that_becomes_cold_takes_the_general_path(
    sides: tuple[Side, Side], hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = sides[0]
    for _ in range(2):
        side.fetch()
    monkeypatch.setattr(type(side.partition.log), "read_resident", not_resident)
    assert side.fetch() == "waits"
    assert hits == [True, False]


def not_resident(*_: Any, **__: Any) -> Any:
    raise NotResident


def test_regions_of_refused_reads_are_closed(
    sides: tuple[Side, Side], hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = sides[0]
    for _ in range(2):
        side.fetch(min_bytes=MAX_BYTES, max_wait_ms=60_000)
    regions: list[FileRegion] = []
    create = FileRegion.__init__

    def watched(self: FileRegion, *args: Any, **options: Any) -> None:
        regions.append(self)
        create(self, *args, **options)

    monkeypatch.setattr(FileRegion, "__init__", watched)
    assert side.fetch(END - 1, min_bytes=MAX_BYTES, max_wait_ms=60_000) == "waits"
    assert hits == [True, False]
    assert len(regions) == 2
    for region in regions:
        with pytest.raises(ValueError, match="closed"):
            region.sendfile(0, 0, 1)


def test_a_connection_learns_less_often_from_changing_requests(sides: tuple[Side, Side]) -> None:
    side = sides[0]
    shapes = []
    for number in range(4 * LEARN_AFTER_MAX):
        side.fetch(client_id=f"{number:4d}")
        shape = side.connection.fetch_shape
        if not shapes or shapes[-1] is not shape:
            shapes.append(shape)
    # One request, then after 1, 2, 4, ..., 64, 64 others.
    assert len(shapes) == 1 + 7 + 2
    assert shapes[-1].learn_after == LEARN_AFTER_MAX
    side.fetch(client_id="long" * FRAME_BYTES_MAX)
    assert side.connection.fetch_shape is shapes[-1]


@pytest.mark.parametrize(
    "options",
    [
        {"client_id": "long" * FRAME_BYTES_MAX},
        {"partitions": (0, 1)},
        {"session_epoch": 0},
        {"replica_id": 3},
        {"offset": END, "min_bytes": 0},
        {"offset": END + 1},
    ],
)
def test_other_requests_have_no_shape(sides: tuple[Side, Side], options: dict[str, Any]) -> None:
    sides[0].fetch(options.pop("offset", 0), **options)
    assert sides[0].connection.fetch_shape is None


@pytest.mark.parametrize(
    "options",
    [
        {"offset": END, "min_bytes": 0},
        {"offset": END + 1},
        {"offset": 0, "isolation_level": READ_COMMITTED},
    ],
)
def test_responses_that_have_no_shape_are_not_encoded_twice(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """A consumer without wait, or one that reads aborted records, may send many of them."""
    side = sides[0]
    side.fetch(END + 1)  # the general path has its encoder
    monkeypatch.setattr("odradek.log.unified_log.aborted_in", lambda *_, **__: [(7, 0)])
    monkeypatch.setattr("odradek.broker.requests.fetch_shapes.encoder", not_used)
    assert isinstance(side.fetch(options.pop("offset"), **options), bytes)


def not_used(*_: Any) -> Any:
    raise AssertionError


def test_a_session_with_two_partitions_has_no_shape(sides: tuple[Side, Side]) -> None:
    side = sides[0]
    session_id = side.open_session(partitions=(0, 1))
    side.fetch(session_id=session_id, session_epoch=1)
    assert side.connection.fetch_shape is None


def test_a_shape_does_not_keep_a_closed_session_in_memory(sides: tuple[Side, Side]) -> None:
    """The session may have had up to `PARTITIONS_MAX` partitions since the shape was learnt."""
    side = sides[0]
    session_id = side.open_session()
    side.fetch(session_id=session_id, session_epoch=1)
    session = side.services.fetch_sessions.sessions[session_id]
    shape = side.connection.fetch_shape
    side.fetch(session_id=session_id, session_epoch=-1, partitions=(0, 1))
    assert side.session(session_id) is None
    assert shape is side.connection.fetch_shape
    assert shape not in gc.get_referrers(session)


def test_any_request_after_a_change_of_topics_forgets_the_shape(sides: tuple[Side, Side]) -> None:
    """Otherwise the connection would keep the log of a deleted topic in memory."""
    side = sides[0]
    side.fetch()
    assert side.connection.fetch_shape is not None
    side.services.replica_manager.generation += 1
    side.fetch(partitions=(0, 1))
    assert side.connection.fetch_shape is None


def test_responses_have_their_own_correlation_ids(sides: tuple[Side, Side]) -> None:
    frame = bytearray(sides[0].frame())
    for number in (7, -1, 1 << 30):
        frame[4:8] = number.to_bytes(4, "big", signed=True)
        reply = sides[0].execute(bytes(frame))
        assert reply[:4] == frame[4:8]
