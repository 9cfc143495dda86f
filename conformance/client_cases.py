"""The common cases. Every client library that has an adapter must pass them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from conformance.adapters.base import Client, Rec
from conformance.harness import Case, Context
from testkit.topics import create_topic

CASE_TIMEOUT_S = 420.0
GROUP_DEADLINE_S = 240.0
LEAVE_S = 120.0
BASE_MS = 1_700_000_000_000


def client_cases(client: Client) -> tuple[Case, ...]:
    """Return the common cases of one client."""

    def bound(run: Callable[[Client, Context], None]) -> Callable[[Context], None]:
        return lambda context: run(client, context)

    def case(name: str, run: Callable[[Client, Context], None], *, ci: bool = True) -> Case:
        return Case(name, bound(run), ci=ci, timeout_s=CASE_TIMEOUT_S)

    return (
        case("round trip by assignment", _round_trip),
        case("auto-creation on the first send", _auto_creation),
        case("reading from the middle of a batch", _middle),
        case("idempotent producer", _idempotent),
        case("headers, with null and repeated names", _headers),
        case("tombstones, null keys and empty values", _tombstones),
        case("large messages", _large),
        case("a message above max.message.bytes is refused", _too_large, ci=False),
        case("seek by time", _seek_by_time),
        case("a group of two: share, leave, take over, resume", _group),
    )


def _values(count: int, prefix: str = "v") -> list[Rec]:
    return [Rec(f"{prefix}{n}".encode(), f"k{n}".encode()) for n in range(count)]


def _contents(records: list[Rec]) -> list[object]:
    return [rec.content() for rec in records]


def _round_trip(client: Client, context: Context) -> None:
    topic = context.topic("round-trip")
    create_topic(context.bootstrap, topic, partitions=2)
    for partition in (0, 1):
        sent = [Rec(r.value, r.key, partition=partition) for r in _values(500, f"{partition}-")]
        offsets = client.produce(context.bootstrap, topic, sent)
        assert offsets == list(range(500)), offsets[:5]
        got = client.consume(context.bootstrap, topic, 500, partition=partition)
        assert _contents(got) == _contents(sent)
        assert [r.offset for r in got] == offsets


def _auto_creation(client: Client, context: Context) -> None:
    topic = context.topic("auto")
    assert client.produce(context.bootstrap, topic, _values(3)) == [0, 1, 2]
    assert _contents(client.consume(context.bootstrap, topic, 3)) == _contents(_values(3))


def _middle(client: Client, context: Context) -> None:
    topic = context.topic("middle")
    create_topic(context.bootstrap, topic)
    client.produce(context.bootstrap, topic, _values(100))
    got = client.consume(context.bootstrap, topic, 10, offset=55)
    assert [r.offset for r in got] == list(range(55, 65))
    assert got[0].value == b"v55"


def _idempotent(client: Client, context: Context) -> None:
    topic = context.topic("idempotent")
    create_topic(context.bootstrap, topic)
    assert client.produce(context.bootstrap, topic, _values(300), idempotent=True) == list(
        range(300)
    )
    assert _contents(client.consume(context.bootstrap, topic, 300)) == _contents(_values(300))


def _headers(client: Client, context: Context) -> None:
    topic = context.topic("headers")
    create_topic(context.bootstrap, topic)
    null = ("null", None if client.null_headers else b"")
    headers = (("a", b"1"), ("a", b"2"), ("empty", b""), null, ("bin", b"\x00\xff"))
    sent = [Rec(b"with", b"k", headers), Rec(b"without", b"k")]
    client.produce(context.bootstrap, topic, sent)
    assert _contents(client.consume(context.bootstrap, topic, 2)) == _contents(sent)


def _tombstones(client: Client, context: Context) -> None:
    topic = context.topic("tombstones")
    create_topic(context.bootstrap, topic)
    sent = [Rec(b"x", b"k"), Rec(None, b"k"), Rec(b"", b"k"), Rec(b"no key"), Rec(b"x", b"")]
    client.produce(context.bootstrap, topic, sent)
    got = client.consume(context.bootstrap, topic, len(sent))
    assert _contents(got) == _contents(sent), _contents(got)


def _large(client: Client, context: Context) -> None:
    topic = context.topic("large")
    create_topic(context.bootstrap, topic, max_message_bytes="9000000")
    sent = [Rec(os.urandom(n), b"k") for n in (1, 900_000, 8_000_000, 1)]
    client.produce(context.bootstrap, topic, sent, max_bytes=9_000_000)
    got = client.consume(context.bootstrap, topic, len(sent))
    assert [r.value == s.value for r, s in zip(got, sent, strict=True)] == [True] * 4


def _too_large(client: Client, context: Context) -> None:
    topic = context.topic("too-large")
    create_topic(context.bootstrap, topic, max_message_bytes="10000")
    try:
        client.produce(context.bootstrap, topic, [Rec(os.urandom(20_000))])
    except Exception as error:  # noqa: BLE001 - each client has a class of its own for it
        assert "large" in f"{type(error).__name__} {error}".lower(), repr(error)
    else:
        raise AssertionError("20 kB were taken by a topic with max.message.bytes=10000")
    assert client.produce(context.bootstrap, topic, [Rec(b"fits")]) == [0]


def _seek_by_time(client: Client, context: Context) -> None:
    topic = context.topic("time")
    create_topic(context.bootstrap, topic, retention_ms="-1")
    sent = [Rec(b"%d" % n, timestamp_ms=BASE_MS + 10 * n) for n in range(1000)]
    client.produce(context.bootstrap, topic, sent)
    for asked, expected in (
        (BASE_MS - 1, 0),
        (BASE_MS, 0),
        (BASE_MS + 5001, 501),
        (BASE_MS + 5010, 501),
        (BASE_MS + 9990, 999),
        (BASE_MS + 9991, None),
    ):
        found = client.offset_for_time(context.bootstrap, topic, asked)
        assert found == expected, f"{asked - BASE_MS} ms: {found}, not {expected}"
    (first,) = client.consume(context.bootstrap, topic, 1, offset=501)
    assert first.timestamp_ms == BASE_MS + 5010


@dataclass(slots=True)
class _Member:
    """A group member on its own thread. Only this thread writes `seen` and `assigned`."""

    seen: list[Rec] = field(default_factory=list)
    assigned: set[int] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    error: BaseException | None = None

    def start(self, client: Client, context: Context, topic: str, group: str) -> _Member:
        def body() -> None:
            try:
                client.run_member(
                    context.bootstrap,
                    topic,
                    group,
                    self.stop,
                    self.seen.append,
                    lambda now: setattr(self, "assigned", now),
                )
            except BaseException as error:  # noqa: BLE001 - reported to the waiting case
                self.error = error

        self.thread = threading.Thread(target=body, daemon=True)
        self.thread.start()
        return self

    def leave(self) -> None:
        self.stop.set()
        assert self.thread is not None
        self.thread.join(LEAVE_S)
        assert not self.thread.is_alive(), "the member does not leave"
        if self.error is not None:
            raise self.error


def _until(members: list[_Member], what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GROUP_DEADLINE_S
    while not condition():
        for member in members:
            if member.error is not None:
                raise member.error
        assert time.monotonic() < deadline, f"never: {what}; {[m.assigned for m in members]}"
        time.sleep(0.02)


def _spread(count: int, prefix: str) -> list[Rec]:
    return [Rec(f"{prefix}{n}".encode(), partition=n % 4) for n in range(count)]


def _group(client: Client, context: Context) -> None:
    topic, group = context.topic("group"), context.topic("group")
    create_topic(context.bootstrap, topic, partitions=4)
    first = _Member().start(client, context, topic, group)
    _until([first], "all four alone", lambda: len(first.assigned) == 4)
    second = _Member().start(client, context, topic, group)
    both = [first, second]
    _until(
        both,
        "two partitions each",
        lambda: [len(m.assigned) for m in both] == [2, 2] and not first.assigned & second.assigned,
    )
    client.produce(context.bootstrap, topic, _spread(200, "a"))
    _until(both, "200 records", lambda: len(first.seen) + len(second.seen) >= 200)
    assert len(first.seen) == len(second.seen) == 100
    first.leave()
    _until([second], "all four partitions", lambda: len(second.assigned) == 4)
    client.produce(context.bootstrap, topic, _spread(100, "b"))
    _until([second], "100 more", lambda: len(second.seen) >= 200)
    second.leave()
    client.produce(context.bootstrap, topic, _spread(40, "c"))
    third = _Member().start(client, context, topic, group)
    _until([third], "the rest", lambda: len(third.seen) >= 40)
    third.leave()
    everything = [r.value for m in (first, second, third) for r in m.seen]
    assert len(everything) == len(set(everything)) == 340, len(everything)
