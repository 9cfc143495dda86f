"""Bytes of torn frames and of requests that may not start are bounded over all connections."""

from __future__ import annotations

import logging
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.net.budget import SECOND_CHANCES_MAX, ReceivedAhead
from odradek.net.connection import Chunks, Connection
from odradek.net.limits import (
    BACKLOG_BYTES,
    KEPT_FREE_BYTES,
    SCRATCH_BYTES,
    TAIL_BYTES,
    NetLimits,
)
from odradek.results import PendingResult
from tests.helpers.mock_transport import MockTransport, feed, open_connection
from tests.net.support import body, frame, iterations, run, silent

Opened = tuple[Connection, MockTransport]

EXECUTING, LONG_POLL, SILENT = b"e", b"p", b"s"
LIMITS = NetLimits(requests_in_flight_max=2)


class Requests:
    """A dispatcher whose responses the test completes. The first byte of a frame is its kind."""

    def __init__(self) -> None:
        self.pending: dict[Connection, list[PendingResult[Chunks]]] = {}
        self.seen: dict[Connection, list[bytes]] = {}

    def dispatch(self, connection: Connection, view: memoryview) -> Any:
        self.seen.setdefault(connection, []).append(bytes(view))
        kind = bytes(view[:1])
        if kind == SILENT:
            return []
        result: PendingResult[Chunks] = PendingResult(executed=kind != EXECUTING)
        self.pending.setdefault(connection, []).append(result)
        return result

    def respond(self, connection: Connection) -> None:
        for result in self.pending.pop(connection, []):
            if not result.done:
                result.complete([b"response"])


def torn(size: int) -> bytes:
    """Return the first `size` bytes of a frame that is larger."""
    return frame(SILENT + body(1, 2 * TAIL_BYTES))[:size]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["feed", "feed", "feed", "respond", "take", "close"]),
        st.one_of(
            st.integers(1, 9),
            st.integers(1, 3 * KEPT_FREE_BYTES),
            st.integers(1, 2 * SCRATCH_BYTES),
        ),
    ),
    max_size=60,
)
FRAMES = st.lists(
    st.tuples(
        st.sampled_from([EXECUTING, LONG_POLL, SILENT, SILENT]),
        st.one_of(
            st.integers(0, 100),
            st.integers(0, 2 * KEPT_FREE_BYTES),
            st.integers(0, 2 * SCRATCH_BYTES),
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, frames=FRAMES, bytes_max=st.integers(10_000, 400_000))
def test_the_charged_bytes_are_the_bytes_that_connections_keep(
    steps: list[tuple[int, str, int]], frames: list[tuple[bytes, int]], bytes_max: int
) -> None:
    bodies = [kind + body(number, size) for number, (kind, size) in enumerate(frames)]
    stream = b"".join(map(frame, bodies)) * 4

    async def main() -> None:
        requests = Requests()
        ahead = ReceivedAhead(bytes_max)
        opened: dict[int, Opened] = {}
        sent: dict[int, int] = {}
        everyone: list[Opened] = []
        for number, what, size in steps:
            if number not in opened or opened[number][0].closed:
                opened[number] = open_connection(
                    requests.dispatch, limits=LIMITS, ahead=ahead, room=20
                )
                everyone.append(opened[number])
                sent[number] = 0
            connection, transport = opened[number]
            if what == "feed":
                at = sent[number]
                sent[number] += feed(connection, memoryview(stream)[at : at + size])
            elif what == "respond":
                requests.respond(connection)
            elif what == "take":
                transport.take(1_000_000)
            else:
                transport.abort()
            await iterations(4)
            still_open = [each for each, _ in everyone if not each.closed]
            assert ahead.used == sum(each._receive.ahead for each in still_open)
            assert ahead.used <= ahead.bytes_max
            for each in still_open:
                kept = each._receive.kept
                assert kept <= KEPT_FREE_BYTES or each._receive.apart >= kept
        for connection, transport in everyone:
            seen = requests.seen.get(connection, [])
            assert seen == (bodies * 4)[: len(seen)]
            requests.respond(connection)
            transport.abort()
        await iterations(6)
        assert ahead.used == 0
        assert not ahead._kept

    run(main())


def test_requests_continue_after_reading_has_stopped_for_lack_of_memory() -> None:
    async def main() -> None:
        requests = Requests()
        ahead = ReceivedAhead(10 * SCRATCH_BYTES)
        other, _ = open_connection(requests.dispatch, ahead=ahead)
        feed(other, frame(EXECUTING) + bytes(SCRATCH_BYTES))  # holds 129 KiB of backlog
        ahead.scarce_above = 0
        connection, transport = open_connection(requests.dispatch, ahead=ahead)
        bodies = [EXECUTING, SILENT + body(1, 5_000), SILENT + body(2, 9)]
        stream = b"".join(map(frame, bodies))
        taken = feed(connection, stream[:3_000])
        assert taken == 3_000
        assert not transport.reading
        assert connection._receive.ahead == connection._receive.kept == 3_000 - 5
        requests.respond(connection)
        await iterations()
        assert transport.reading
        feed(connection, stream[taken:])
        assert requests.seen[connection] == bodies
        assert ahead.used == other._receive.ahead

    run(main())


def test_a_connection_on_hold_stops_reading_immediately_when_memory_is_scarce() -> None:
    async def main() -> None:
        requests = Requests()
        ahead = ReceivedAhead(100_000)
        ahead.scarce_above = -1
        connection, transport = open_connection(requests.dispatch, ahead=ahead)
        feed(connection, frame(EXECUTING))
        assert not transport.reading
        requests.respond(connection)
        await iterations()
        assert transport.reading
        assert ahead.used == 0

    run(main())


def test_at_the_limit_the_oldest_torn_frame_closes_its_connection(caplog: Any) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        requests = Requests()
        ahead = ReceivedAhead(100_000)
        idle, idle_transport = open_connection(requests.dispatch, ahead=ahead)
        feed(idle, torn(TAIL_BYTES))
        busy, busy_transport = open_connection(requests.dispatch, ahead=ahead)
        feed(busy, torn(TAIL_BYTES))
        others: list[Opened] = []
        for _ in range(10):
            feed(idle, torn(TAIL_BYTES)[idle._receive.kept :][:1])  # a byte does not make it young
            feed(busy, frame(SILENT + body(1, 2 * TAIL_BYTES))[busy._receive.kept :])
            feed(busy, torn(TAIL_BYTES))
            others.append(open_connection(requests.dispatch, ahead=ahead))
            feed(others[-1][0], torn(TAIL_BYTES))
            assert ahead.used <= ahead.bytes_max
            await iterations()
            if idle_transport.aborted:
                break
        assert idle_transport.aborted
        assert not busy_transport.aborted
        assert not any(transport.aborted for _, transport in others)

    run(main())
    assert len(caplog.records) == 1
    assert "received_ahead_bytes_max) is used up" in caplog.text


def test_a_request_behind_a_long_poll_is_not_counted() -> None:
    async def main() -> None:
        requests = Requests()
        ahead = ReceivedAhead(100_000)
        limits = NetLimits(requests_in_flight_max=1)
        good, good_transport = open_connection(requests.dispatch, ahead=ahead, limits=limits)
        feed(good, frame(LONG_POLL) + frame(SILENT + bytes(KEPT_FREE_BYTES - 5)))
        assert good._receive.kept == KEPT_FREE_BYTES
        assert ahead.used == 0
        for _ in range(50):
            feed(open_connection(requests.dispatch, ahead=ahead)[0], torn(TAIL_BYTES))
        await iterations()
        assert not good_transport.aborted
        requests.respond(good)
        await iterations()
        assert len(requests.seen[good]) == 2

    run(main())


def test_connections_that_the_broker_holds_are_closed_last() -> None:
    async def main() -> None:
        requests = Requests()
        ahead = ReceivedAhead(10 * BACKLOG_BYTES)
        held = [open_connection(requests.dispatch, ahead=ahead) for _ in range(4)]
        for connection, _ in held:
            feed(connection, frame(EXECUTING) + bytes(3_000))
        left = [open_connection(requests.dispatch, ahead=ahead) for _ in range(40)]
        for connection, _ in left:
            feed(connection, torn(TAIL_BYTES))
        await iterations()
        assert not any(transport.aborted for _, transport in held)
        assert any(transport.aborted for _, transport in left)
        # If the broker holds nearly all of them, they are closed as well.
        many = [open_connection(requests.dispatch, ahead=ahead) for _ in range(200)]
        for connection, _ in many:
            feed(connection, frame(EXECUTING) + bytes(3_000))
            feed(connection, bytes(SCRATCH_BYTES))
            assert ahead.used <= ahead.bytes_max
        await iterations()
        assert any(transport.aborted for _, transport in many)

    assert SECOND_CHANCES_MAX < 40
    run(main())


def test_a_connection_that_has_no_torn_frame_is_not_counted() -> None:
    async def main() -> None:
        ahead = ReceivedAhead(100_000)
        connection, _ = open_connection(lambda _, view: silent(view), ahead=ahead)
        whole = frame(SILENT + body(1, 2 * TAIL_BYTES))
        feed(connection, whole[:TAIL_BYTES])
        assert ahead.used == TAIL_BYTES
        feed(connection, whole[TAIL_BYTES:])
        assert ahead.used == 0
        assert not connection._receive.kept

    run(main())
