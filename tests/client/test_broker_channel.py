"""A channel on a network in memory that a test controls, and on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.client.broker_channel import (
    APART_MS,
    LARGE_READ_BYTES,
    UNREACHABLE_MS,
    BrokerChannel,
)
from odradek.client.channel_state import ChannelSettings
from odradek.client.connection import ConnectionClosed, InvalidResponse, UnsupportedRequest
from odradek.environment.clock import ManualClock
from odradek.environment.environment import Environment
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.envelope_request import EnvelopeRequest
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.result_tasks import wait
from odradek.results import Result
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from tests.client.peer_broker import MiddleNumbers, PeerNetwork, PeerTransport
from tests.helpers.manual_timers import SteppedTimers

SETTINGS = ChannelSettings(request_timeout_ms=1_000, setup_timeout_ms=500)


class Fixture:
    def __init__(self) -> None:
        self.network = PeerNetwork({int(ApiKey.HEARTBEAT): (0, 4), int(ApiKey.SYNC_GROUP): (0, 5)})
        self.timers = SteppedTimers(ManualClock())
        environment = Environment(
            clock=self.timers._clock,
            timers=self.timers,
            network=self.network,  # type: ignore[arg-type]  # a channel only connects
            randomness=MiddleNumbers(),
        )
        self.channel = BrokerChannel("peer", 9092, environment, settings=SETTINGS)

    def send(self, number: int, **others: Any) -> Result[HeartbeatResponse]:
        return self.channel.send(HeartbeatRequest("g", number, "m"), HeartbeatResponse, **others)

    async def ready(self) -> PeerTransport:
        """Return the connection when it has no request in flight and is ready."""
        self.send(0)
        await asyncio.sleep(0)
        connection = self.network.connections[-1]
        connection.respond()
        connection.respond(HeartbeatResponse())
        return connection


def run(test: Callable[[Fixture], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Fixture())

    asyncio.run(main())


def test_a_request_is_written_as_a_view_of_which_a_transport_copies_no_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[type] = []
    write = PeerTransport.write

    def record(self: PeerTransport, data: Any) -> None:
        written.append(type(data))
        write(self, data)

    async def test(it: Fixture) -> None:
        await it.ready()
        monkeypatch.setattr(PeerTransport, "write", record)
        it.send(1)

    run(test)
    assert written == [memoryview]


def test_responses_complete_their_requests_in_order() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        results = [it.send(number) for number in (1, 2)]
        connection.respond(HeartbeatResponse(1))
        assert [result.done for result in results] == [True, False]
        connection.respond(HeartbeatResponse(2))
        assert [result.get().throttle_time_ms for result in results] == [1, 2]
        assert it.timers.armed <= 1

    run(test)


def test_a_callback_sends_the_next_request_in_the_same_step() -> None:
    """A follower appends in the callback and fetches again, without a task in between."""

    async def test(it: Fixture) -> None:
        connection = await it.ready()
        seen = []

        def next_request(result: Result[HeartbeatResponse]) -> None:
            seen.append(result.get().throttle_time_ms)
            it.send(len(seen)).on_done(next_request)

        it.send(0).on_done(next_request)
        for number in range(5):
            assert len(connection.requests) == 1
            connection.respond(HeartbeatResponse(number))
        assert seen == [0, 1, 2, 3, 4]

    run(test)


def test_several_responses_in_one_read_complete_even_if_a_callback_closes_the_channel() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        first, second, third = (it.send(number) for number in range(3))
        first.on_done(lambda _: it.channel.close())
        data = b"".join(
            connection.peer.respond(request, HeartbeatResponse())
            for request in list(connection.requests)[:2]
        )
        connection.send(data)
        assert first.get() == second.get() == HeartbeatResponse()
        assert isinstance(third.error, ConnectionClosed)
        assert connection.aborted

    run(test)


def test_a_callback_may_cancel_a_request_whose_response_is_in_the_same_read() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        first, second = it.send(1), it.send(2)
        first.on_done(lambda _: second.cancel())
        data = b"".join(
            connection.peer.respond(request, HeartbeatResponse()) for request in connection.requests
        )
        connection.send(data)
        assert first.done and not second.done

    run(test)


def test_a_malformed_response_costs_the_connection_and_the_next_request_a_new_one() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        result = it.send(1)
        connection.send(b"\0\0\0\5\0\0\0\0\0")
        assert isinstance(result.error, InvalidResponse)
        assert connection.aborted
        connection.lose()
        connection.send(b"late bytes of the old connection")
        again = it.send(2)
        it.timers.advance(SETTINGS.backoff_ms)
        await asyncio.sleep(0)
        second = it.network.connections[1]
        second.respond()
        connection.protocol.resume_writing()
        second.respond(HeartbeatResponse(2))
        assert again.get().throttle_time_ms == 2

    run(test)


def test_endless_frames_without_a_request_cost_the_connection() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        connection.send(b"\0\0\0\4\0\0\0\1" * 20_000)
        assert connection.aborted
        assert it.channel.waiting == 0

    run(test)


@pytest.mark.parametrize("cut", [0, 3, 10, 70_000, 200_000])
def test_a_large_response_is_received_in_place_also_if_the_connection_ends_in_it(cut: int) -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        request = SyncGroupRequest("g", 1, "m")
        first = it.channel.send(request, SyncGroupResponse)
        second = it.channel.send(request, SyncGroupResponse)
        value = bytes(range(256)) * 1_200
        data = b"".join(
            connection.peer.respond(each, SyncGroupResponse(assignment=value))
            for each in connection.requests
        )
        half = len(data) // 2
        connection.send(data[: half + cut])
        assert first.get().assignment == value
        if cut:
            connection.lose()
            assert isinstance(second.error, ConnectionResetError)
        else:
            connection.send(data[half:])
            assert second.get().assignment == value

    run(test)


def test_one_read_of_a_large_response_is_bounded() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        response = it.channel.send(SyncGroupRequest("g", 1, "m"), SyncGroupResponse)
        value = bytes(range(256)) * 20_000
        whole = SyncGroupResponse(assignment=value)
        data = connection.peer.respond(connection.requests[0], whole)
        rooms = []
        while data:
            rooms.append(len(connection.protocol.get_buffer(-1)))
            connection.send(data[: rooms[-1]])
            data = data[rooms[-1] :]
        assert response.get().assignment == value
        assert max(rooms) == LARGE_READ_BYTES

    run(test)


def test_a_refused_connection_fails_the_requests_and_is_tried_again_for_new_ones() -> None:
    async def test(it: Fixture) -> None:
        it.network.errors += [ConnectionRefusedError("refused"), UnicodeError("host")]
        for kind in (ConnectionRefusedError, UnicodeError):
            result = it.send(1)
            it.timers.advance(100)
            await asyncio.sleep(0)
            assert isinstance(result.error, kind)
        last = it.send(3)
        it.timers.advance(200)
        await asyncio.sleep(0)
        (connection,) = it.network.connections
        connection.respond()
        connection.respond(HeartbeatResponse(3))
        assert last.get().throttle_time_ms == 3

    run(test)


def test_a_connection_that_opens_too_late_is_dropped() -> None:
    async def test(it: Fixture) -> None:
        it.network.hold = asyncio.Event()
        result = it.send(1)
        await asyncio.sleep(0)
        it.timers.advance(SETTINGS.setup_timeout_ms)
        assert isinstance(result.error, TimeoutError)
        it.network.hold.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not it.network.connections

    run(test)


async def refused(it: Fixture, after_ms: float) -> None:
    """Let one attempt to connect fail, so much later."""
    it.timers.advance(after_ms)
    it.network.errors.append(ConnectionRefusedError("refused"))
    result = it.send(1)
    it.timers.advance(100)
    await asyncio.sleep(0)
    assert isinstance(result.error, ConnectionRefusedError)


def test_a_broker_without_a_connection_for_a_long_time_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(it: Fixture) -> None:
        for expected in (1, 2):
            for _ in range(10):
                await refused(it, UNREACHABLE_MS / 5)
            lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
            assert len(lines) == expected
            assert lines[0].startswith(
                "this broker cannot connect to the broker at peer:9092 for 30 s (refused). If that"
                " broker runs, correct its advertised.listeners"
            )
            it.timers.advance(UNREACHABLE_MS / 5)
            (await it.ready()).lose()

    run(test)


@pytest.mark.parametrize("after_ms", [UNREACHABLE_MS / 20, APART_MS + 1])
def test_a_few_failures_or_failures_far_apart_are_not_reported(
    after_ms: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(it: Fixture) -> None:
        for _ in range(10):
            await refused(it, after_ms)
        assert not [each for each in caplog.records if each.levelname == "WARNING"]

    run(test)


def test_a_broker_whose_host_does_not_respond_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(it: Fixture) -> None:
        it.network.hold = asyncio.Event()
        for _ in range(100):
            if not it.channel.waiting:
                it.send(1)
            await asyncio.sleep(0)
            it.timers.advance(SETTINGS.request_timeout_ms)
        (line,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert "for 30 s (no response)" in line

    run(test)


def test_a_response_that_does_not_arrive_in_time_costs_the_connection() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        result = it.send(1, timeout_ms=200)
        it.timers.advance(199)
        assert not result.done
        it.timers.advance(1)
        assert isinstance(result.error, TimeoutError)
        assert connection.aborted

    run(test)


def test_a_paused_transport_stops_the_requests() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        connection.protocol.pause_writing()
        it.send(1)
        assert not connection.requests
        connection.protocol.resume_writing()
        assert len(connection.requests) == 1

    run(test)


def test_a_cancelled_request_in_the_queue_is_not_sent() -> None:
    async def test(it: Fixture) -> None:
        first, second = it.send(1), it.send(2)
        first.cancel()
        await asyncio.sleep(0)
        (connection,) = it.network.connections
        connection.respond()
        assert [each.body for each in connection.requests] == [HeartbeatRequest("g", 2, "m")]
        connection.respond(HeartbeatResponse(2))
        assert second.done and not first.done

    run(test)


def test_the_wrong_response_class_is_an_error_of_the_caller() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        result = it.channel.send(HeartbeatRequest("g", 1, "m"), SyncGroupResponse)
        connection.respond(HeartbeatResponse())
        with pytest.raises(TypeError, match="HeartbeatResponse instead of SyncGroupResponse"):
            result.get()

    run(test)


def test_a_closed_channel_leaves_no_timer_and_no_connection() -> None:
    async def test(it: Fixture) -> None:
        connection = await it.ready()
        it.send(1)
        it.channel.close()
        assert connection.aborted and it.timers.armed == 0
        assert "closed" in repr(it.channel)
        connection.lose()
        assert isinstance(it.send(2).error, ConnectionClosed)

    run(test)


def on_a_real_broker(test: Callable[[Broker, BrokerChannel, int], Awaitable[None]]) -> None:
    """Run `test` with a broker, a channel to it, and the port of the broker."""

    async def main(broker: Broker, port: int) -> None:
        channel = BrokerChannel("127.0.0.1", port, Environment(), client_id="peer")
        await test(broker, channel, port)
        channel.close()

    with Broker() as broker:
        broker.create_topic("t")
        asyncio.run(main(broker, int(broker.bootstrap_servers.rpartition(":")[2])))


def metadata(name: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name)], False)


def test_many_requests_to_a_real_broker_get_their_own_responses_until_it_stops() -> None:
    async def test(broker: Broker, channel: BrokerChannel, port: int) -> None:
        names = [f"absent-{number}" for number in range(300)]
        results = [channel.send(metadata(name), MetadataResponse) for name in names]
        for name, result in zip(names, results, strict=True):
            response = await wait(result)
            assert [each.name for each in response.topics] == [name]
            assert [each.port for each in response.brokers] == [port]
        assert channel.versions(ApiKey.METADATA) == (0, 13)
        assert channel.versions(ApiKey.ENVELOPE) is None
        with pytest.raises(UnsupportedRequest):
            await wait(channel.send(EnvelopeRequest(), EnvelopeResponse))
        await asyncio.to_thread(broker.close)
        with pytest.raises(OSError):
            await wait(channel.send(metadata("t"), MetadataResponse))

    on_a_real_broker(test)


def test_large_requests_and_responses_pass_through_a_full_socket() -> None:
    async def test(broker: Broker, channel: BrokerChannel, port: int) -> None:
        data = bytes(batch(b"x" * 900_000))
        results = [channel.send(produce("t", data), ProduceResponse, version=9) for _ in range(20)]
        responses = [await wait(result) for result in results]
        offsets = [each.responses[0].partition_responses[0].base_offset for each in responses]
        assert offsets == list(range(20))
        fetched = await wait(channel.send(fetch("t"), FetchResponse, version=12))
        records = fetched.responses[0].partitions[0].records
        assert records is not None and len(records) >= len(data)

    on_a_real_broker(test)


def test_a_cancelled_long_poll_does_not_affect_the_requests_behind_it() -> None:
    async def test(broker: Broker, channel: BrokerChannel, port: int) -> None:
        long_poll = FetchRequest(
            topics=fetch("t").topics, max_wait_ms=200, min_bytes=1, max_bytes=1 << 20
        )
        waiting = channel.send(long_poll, FetchResponse, version=12)
        behind = channel.send(metadata("t"), MetadataResponse)
        waiting.cancel()
        assert (await wait(behind)).topics[0].name == "t"
        assert not waiting.done

    on_a_real_broker(test)
