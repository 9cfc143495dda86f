"""kcat 1.7: the most common command line client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial

from conformance.adapters.base import COMPRESSIONS
from conformance.adapters.kcat import kcat
from conformance.harness import Case, Context, main
from testkit.topics import create_topic

LINES = "".join(f"k{n}:value {n}\n" for n in range(100))


def _metadata(context: Context) -> None:
    topic = context.topic("kcat")
    create_topic(context.bootstrap, topic, partitions=3)
    seen = json.loads(kcat(context.bootstrap, "-L", "-J", "-t", topic))
    (described,) = seen["topics"]
    assert described["topic"] == topic and len(described["partitions"]) == 3, described
    addresses = sorted(context.bootstrap.split(","))
    if not context.kills:  # metadata lists the brokers that run
        assert sorted(b["name"] for b in seen["brokers"]) == addresses, seen["brokers"]


def _round_trip(context: Context, compression: str) -> None:
    topic = context.topic("kcat")
    kcat(context.bootstrap, "-P", "-t", topic, "-K:", "-z", compression, stdin=LINES)
    got = kcat(context.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-K:")
    assert got == LINES


def _headers_and_tombstones(context: Context) -> None:
    topic = context.topic("kcat")
    kcat(
        context.bootstrap,
        "-P",
        "-t",
        topic,
        "-K:",
        "-Z",
        "-H",
        "a=1",
        "-H",
        "b=",
        stdin="k1:v1\nk2:\n",
    )
    rows = [
        json.loads(line)
        for line in kcat(context.bootstrap, "-C", "-t", topic, "-e", "-q", "-J").splitlines()
    ]
    assert [r["payload"] for r in rows] == ["v1", None], rows
    assert rows[0]["headers"][:3] == ["a", "1", "b"], rows[0]


def _offsets(context: Context) -> None:
    topic = context.topic("kcat")
    kcat(context.bootstrap, "-P", "-t", topic, "-K:", stdin=LINES)
    read = partial(kcat, context.bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%o\n")
    assert read("-o", "95").split() == ["95", "96", "97", "98", "99"]
    assert read("-o", "-2").split() == ["98", "99"]
    assert read("-o", "10", "-c", "2").split() == ["10", "11"]
    assert read("-o", "end").split() == []


def _times(context: Context) -> None:
    topic = context.topic("kcat")
    create_topic(context.bootstrap, topic)
    kcat(context.bootstrap, "-P", "-t", topic, stdin="old\n")
    time.sleep(0.05)
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.05)
    kcat(context.bootstrap, "-P", "-t", topic, stdin="new\n")
    assert (
        kcat(context.bootstrap, "-C", "-t", topic, "-o", f"s@{between_ms}", "-e", "-q") == "new\n"
    )
    assert f"{topic} [0] offset 1" in kcat(context.bootstrap, "-Q", "-t", f"{topic}:0:{between_ms}")


def _group(context: Context) -> None:
    topic, group = context.topic("kcat"), context.topic("group")
    create_topic(context.bootstrap, topic)
    kcat(context.bootstrap, "-P", "-t", topic, "-K:", stdin=LINES)
    join = partial(
        kcat,
        context.bootstrap,
        "-X",
        "auto.offset.reset=earliest",
        "-e",
        "-q",
        "-K:",
        "-G",
        group,
        topic,
    )
    assert join() == LINES
    kcat(context.bootstrap, "-P", "-t", topic, "-K:", stdin="k:more\n")
    again = join()
    assert again == "k:more\n", again


def _idempotent(context: Context) -> None:
    topic = context.topic("kcat")
    create_topic(context.bootstrap, topic)
    kcat(context.bootstrap, "-P", "-t", topic, "-K:", "-X", "enable.idempotence=true", stdin=LINES)
    assert kcat(context.bootstrap, "-C", "-t", topic, "-e", "-q", "-K:") == LINES


def _large(context: Context) -> None:
    topic = context.topic("kcat")
    create_topic(context.bootstrap, topic, max_message_bytes="5000000")
    big = "x" * 4_000_000 + "\n"
    kcat(context.bootstrap, "-P", "-t", topic, "-X", "message.max.bytes=5000000", stdin=big)
    assert kcat(context.bootstrap, "-C", "-t", topic, "-e", "-q") == big


def _compressed(compression: str) -> Callable[[Context], None]:
    return lambda context: _round_trip(context, compression)


CASES = (
    Case("metadata names the broker and the partitions", _metadata, ci=True),
    *(Case(f"round trip, {c}", _compressed(c), ci=True) for c in COMPRESSIONS),
    Case("headers and tombstones", _headers_and_tombstones, ci=True),
    Case("offsets: absolute, from the end, bounded", _offsets, ci=True),
    Case("times: from a time on, offset for a time", _times, ci=True),
    Case("a balanced group commits and resumes", _group, ci=True),
    Case("idempotent producer", _idempotent, ci=True),
    Case("a 4 MB message", _large, ci=True),
)

if __name__ == "__main__":
    main("kcat", CASES)
