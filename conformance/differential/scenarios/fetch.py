"""Fetch: bytes, offsets, epochs and sessions."""

from __future__ import annotations

import time
from typing import Any

from conformance.differential.batches import batch, fetch, produce
from conformance.differential.registry import scenario
from conformance.differential.session import Session
from odradek.ids import ZERO_UUID
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import fetch_request as f
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

SESSION_UNKNOWN = 123_456_789


class Filled:
    """A topic with three batches of 3 records in each partition."""

    def __init__(self, s: Session, hint: str = "t", partitions: int = 1) -> None:
        self.session = s
        self.name = s.create(hint, partitions)
        self.topic_id = s.topic_id(self.name)
        s.plainer.alias("topic_id", self.topic_id)
        for partition in range(partitions):
            for _ in range(3):
                s.fill(produce(self.name, batch(3), partition=partition))

    def fetch(self, step: str, offset: int = 0, **options: Any) -> Any:
        return self.session.ask(step, fetch(self.name, offset, topic_id=self.topic_id, **options))

    def requested(self, *partitions: int, offset: int = 0, most: int = 1 << 20) -> f.FetchTopic:
        each = [f.FetchPartition(p, -1, offset, partition_max_bytes=most) for p in partitions]
        return f.FetchTopic(self.name, self.topic_id, each)


@scenario(ApiKey.FETCH)
def by_offset(s: Session) -> None:
    topic = Filled(s)
    for offset in (0, 1, 3, 8, 9, 10, -1, 2**62):
        topic.fetch(f"from {offset}", offset)
    topic.fetch("committed", 0, isolation_level=1)
    topic.fetch("isolation 2", 0, isolation_level=2)
    topic.fetch("end, committed", 9, isolation_level=1)
    partition = DeleteRecordsPartition(0, 4)
    gone = DeleteRecordsRequest([DeleteRecordsTopic(topic.name, [partition])], 5000)
    s.quiet(gone, 2)
    for offset in (0, 3, 4, 5, 9):
        topic.fetch(f"after a delete from {offset}", offset)


@scenario(ApiKey.FETCH)
def byte_limits(s: Session) -> None:
    topic = Filled(s, partitions=2)
    size = len(batch(3))
    for most in (0, 1, size - 1, size, size + 1, 2 * size, 10 * size):
        topic.fetch(f"partition_max_bytes {most}", 0, partition_max=most)
        topic.fetch(f"max_bytes {most}", 0, max_bytes=most)
    topic.fetch("mid-batch, one byte", 4, partition_max=1)
    both = topic.requested(0, 1, most=size)
    s.ask("two partitions", f.FetchRequest(topics=[both]))
    for most in (1, size, size + 10, 2 * size):
        request = f.FetchRequest(topics=[topic.requested(0, 1)], max_bytes=most)
        s.ask(f"two partitions, max_bytes {most}", request)
    s.ask("one byte each", f.FetchRequest(topics=[topic.requested(0, 1, most=1)]))


@scenario(ApiKey.FETCH)
def addresses(s: Session) -> None:
    topic = Filled(s)
    topic.fetch("partition 7", partition=7)
    topic.fetch("partition -1", partition=-1)
    s.ask("unknown topic", fetch(s.name("nobody"), topic_id=b"\7" * 16))
    s.ask("zero id, or no name", fetch("", topic_id=ZERO_UUID))
    s.ask("no topics", f.FetchRequest())
    unknown = f.FetchTopic(s.name("nobody"), b"\7" * 16, [f.FetchPartition(0)])
    s.ask("known and unknown", f.FetchRequest(topics=[topic.requested(0), unknown]))
    s.ask("same twice", f.FetchRequest(topics=[topic.requested(0, 0)]))
    s.ask("topic twice", f.FetchRequest(topics=[topic.requested(0), topic.requested(0)]))


@scenario(ApiKey.FETCH, least=9)
def leader_epochs(s: Session) -> None:
    topic = Filled(s)
    for epoch in (-1, 0, 1, 5, -2):
        topic.fetch(f"current {epoch}", 0, epoch=epoch)
    topic.fetch("current 1 at the end", 9, epoch=1)
    topic.fetch("current 0 out of range", 99, epoch=0)
    topic.fetch("current 1 out of range", 99, epoch=1)


@scenario(ApiKey.FETCH, least=12)
def fetched_epochs(s: Session) -> None:
    topic = Filled(s)
    for fetched in (-1, 0, 1, 7, -2):
        topic.fetch(f"fetched {fetched}", 3, fetched_epoch=fetched, epoch=0)
    topic.fetch("beyond the end of it", 12, fetched_epoch=0)
    topic.fetch("at the end of it", 9, fetched_epoch=0)
    topic.fetch("epoch of the future at the end", 9, fetched_epoch=3)


@scenario(ApiKey.FETCH)
def as_a_replica(s: Session) -> None:
    topic = Filled(s)
    replica = f.ReplicaState(7, -1)
    options: dict[str, Any] = {"replica_id": 7} if s.version < 15 else {"replica_state": replica}
    topic.fetch("replica 7", **options)
    options = {"replica_id": -2} if s.version < 15 else {"replica_state": f.ReplicaState(-2, -1)}
    topic.fetch("debugging", **options)


@scenario(ApiKey.FETCH, least=7)
def sessions(s: Session) -> None:
    topic = Filled(s, partitions=3)
    first = s.ask("full", f.FetchRequest(topics=[topic.requested(0, 1)], session_epoch=0))
    sid = first.session_id

    def more(step: str, epoch: int, **options: Any) -> Any:
        return s.ask(step, f.FetchRequest(session_id=sid, session_epoch=epoch, **options))

    more("nothing new", 1)
    more("from 9", 2, topics=[topic.requested(0, 1, offset=9)])
    more("at the end", 3)
    s.fill(produce(topic.name, batch(2), partition=1))
    more("one has more", 4)
    more("still more", 5)
    more("another partition", 6, topics=[topic.requested(2)])
    forgotten = [f.ForgottenTopic(topic.name, topic.topic_id, [1, 2])]
    more("forget two", 7, forgotten_topics_data=forgotten)
    s.fill(produce(topic.name, batch(2), partition=0))
    more("one is left", 8)
    more("out of range", 9, topics=[topic.requested(0, offset=99)])
    more("out of range still", 10)
    more("wrong epoch", 77)
    more("the epoch before", 10)
    more("after wrong ones", 11)
    more("epoch -1 ends it", -1, topics=[topic.requested(0, offset=11)])
    more("gone", 12)


@scenario(ApiKey.FETCH, least=7)
def session_errors(s: Session) -> None:
    topic = Filled(s)
    for sid, epoch in ((SESSION_UNKNOWN, 1), (SESSION_UNKNOWN, 0), (SESSION_UNKNOWN, -1), (0, 1)):
        request = f.FetchRequest(session_id=sid, session_epoch=epoch, topics=[topic.requested(0)])
        s.ask(f"session {sid}, epoch {epoch}", request)
    request = f.FetchRequest(session_id=0, session_epoch=-2, topics=[topic.requested(0)])
    s.ask("epoch -2", request)
    s.ask("an empty session", f.FetchRequest(session_epoch=0))
    first = s.ask(
        "a new one", f.FetchRequest(session_epoch=0, topics=[topic.requested(0, offset=9)])
    )
    again = f.FetchRequest(
        session_id=first.session_id, session_epoch=0, topics=[topic.requested(0)]
    )
    second = s.ask("in place of it", again)
    old = f.FetchRequest(session_id=first.session_id, session_epoch=1)
    s.ask("the replaced one", old)
    last = f.FetchRequest(session_id=second.session_id, session_epoch=1)
    s.ask("the new one", last)


@scenario(ApiKey.FETCH, least=7)
def session_addresses(s: Session) -> None:
    topic = Filled(s)
    unknown = f.FetchTopic(s.name("nobody"), b"\7" * 16, [f.FetchPartition(0)])
    bad = topic.requested(9)
    requested = [topic.requested(0, offset=9), unknown, bad]
    first = s.ask("full", f.FetchRequest(session_epoch=0, topics=requested))
    for epoch in (1, 2):
        request = f.FetchRequest(session_id=first.session_id, session_epoch=epoch)
        s.ask(f"epoch {epoch}", request)
    forget = [f.ForgottenTopic(s.name("nobody"), b"\7" * 16, [0])]
    request = f.FetchRequest(
        session_id=first.session_id, session_epoch=3, forgotten_topics_data=forget
    )
    s.ask("forget the unknown", request)


@scenario(ApiKey.FETCH)
def waits(s: Session) -> None:
    topic = Filled(s)

    def timed(step: str, offset: int, **options: Any) -> None:
        began = time.monotonic()
        topic.fetch(step, offset, **options)
        s.note(f"{step}: waited", time.monotonic() - began > 0.25)

    timed("data is there", 0, max_wait_ms=400, min_bytes=1)
    timed("none is there", 9, max_wait_ms=400, min_bytes=1)
    timed("min_bytes 0", 9, max_wait_ms=400, min_bytes=0)
    timed("more than there is", 0, max_wait_ms=400, min_bytes=100_000)
    timed("an error does not wait", 99, max_wait_ms=400, min_bytes=1)
    timed("a wrong partition does not wait", 9, max_wait_ms=400, min_bytes=1, partition=5)
    s.send(fetch(topic.name, 9, topic_id=topic.topic_id, max_wait_ms=8000, min_bytes=1))
    # A second fetch on another connection runs into its time-out, so the first fetch waits by then.
    # Otherwise the first response could have a high watermark from before the produce and records
    # from after it.
    s.quiet(fetch(topic.name, 9, max_wait_ms=300, min_bytes=1), 11)
    s.fill(produce(topic.name, batch(2)))
    began = time.monotonic()
    s.take("woken by a produce")
    s.note("woken at once", time.monotonic() - began < 6)


@scenario(ApiKey.FETCH, versions=(4, 9, 10, 12))
def zstd(s: Session) -> None:
    topic = s.create()
    s.fill(produce(topic, batch(3, compression="zstd")))
    s.fill(produce(topic, batch(3)))
    s.ask("zstd", fetch(topic))
    s.ask("behind it", fetch(topic, 3))
