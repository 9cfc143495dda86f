"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs."""

from __future__ import annotations

from conformance.differential.batches import T0, batch, fetch, produce
from conformance.differential.registry import scenario
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import delete_records_request as d
from odradek.protocol.messages import list_offsets_request as lo
from odradek.protocol.messages import offset_for_leader_epoch_request as e
from odradek.protocol.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

SPECIAL = (-1, -2, -3, -4, -5, -6, -7, -100)


def offsets_request(
    topic: str, timestamp: int, *, partition: int = 0, epoch: int = -1, replica: int = -1,
    isolation: int = 0,
) -> lo.ListOffsetsRequest:  # fmt: skip
    each = lo.ListOffsetsPartition(partition, epoch, timestamp)
    return lo.ListOffsetsRequest(replica, isolation, [lo.ListOffsetsTopic(topic, [each])], 5000)


def filled(s: Session, hint: str = "t", compression: str = "none", **configs: str) -> str:
    """Create a topic with batches of 3 records at T0 + 0, + 100, + 50 (out of order) and + 200."""
    topic = s.create(hint, **configs)
    for delta in (0, 100, 50, 200):
        s.fill(produce(topic, batch(3, first_ms=T0 + delta, compression=compression)))
    return topic


@scenario(ApiKey.LIST_OFFSETS, versions=(1, 2, 4, 5, 6, 7, 8, 9, 10))
def special(s: Session) -> None:
    topic, empty = filled(s), s.create("empty")
    for timestamp in SPECIAL:
        s.ask(f"at {timestamp}", offsets_request(topic, timestamp))
        s.ask(f"empty at {timestamp}", offsets_request(empty, timestamp))
    s.ask("committed", offsets_request(topic, -1, isolation=1))
    s.ask("isolation 2", offsets_request(topic, -1, isolation=2))


@scenario(ApiKey.LIST_OFFSETS)
def times(s: Session) -> None:
    for compression in ("none", "gzip", "zstd", "lz4", "snappy"):
        topic = filled(s, compression, compression)
        for delta in (-1, 0, 1, 2, 3, 49, 51, 53, 99, 100, 101, 103, 200, 202, 203):
            s.ask(f"{compression} {delta:+}", offsets_request(topic, T0 + delta))
    empty = s.create("empty")
    s.ask("empty at 0", offsets_request(empty, 0))
    s.ask("empty at T0", offsets_request(empty, T0))


@scenario(ApiKey.LIST_OFFSETS)
def after_a_delete(s: Session) -> None:
    topic = filled(s)
    partition = d.DeleteRecordsPartition(0, 4)
    s.quiet(d.DeleteRecordsRequest([d.DeleteRecordsTopic(topic, [partition])], 5000), 2)
    for timestamp in (-1, -2, T0, T0 + 100, T0 + 101, T0 + 50, 0):
        s.ask(f"at {timestamp}", offsets_request(topic, timestamp))
    partition = d.DeleteRecordsPartition(0, -1)
    s.quiet(d.DeleteRecordsRequest([d.DeleteRecordsTopic(topic, [partition])], 5000), 2)
    for timestamp in (-1, -2, T0, 0):
        s.ask(f"all gone at {timestamp}", offsets_request(topic, timestamp))
    if s.version >= 7:
        s.ask("all gone, max timestamp", offsets_request(topic, -3))


@scenario(ApiKey.LIST_OFFSETS)
def wrong_ones(s: Session) -> None:
    topic = filled(s)
    s.ask("partition 7", offsets_request(topic, -1, partition=7))
    s.ask("unknown topic", offsets_request(s.name("nobody"), -1))
    s.ask("no name", offsets_request("", -1))
    s.ask("replica 7", offsets_request(topic, -1, replica=7))
    s.ask("debugging", offsets_request(topic, -1, replica=-2))
    if s.version >= 4:
        for epoch in (0, 1, -2):
            s.ask(f"epoch {epoch}", offsets_request(topic, -1, epoch=epoch))
    twice = [lo.ListOffsetsPartition(0, -1, -1), lo.ListOffsetsPartition(0, -1, -2)]
    s.ask("twice", lo.ListOffsetsRequest(-1, 0, [lo.ListOffsetsTopic(topic, twice)], 5000))
    s.ask("none", lo.ListOffsetsRequest(-1, 0, [], 5000))


@scenario(ApiKey.LIST_OFFSETS)
def log_append_time(s: Session) -> None:
    topic = s.create(message_timestamp_type="LogAppendTime")
    s.fill(produce(topic, batch(3)))
    for timestamp in (-1, -2, 0, T0):
        s.ask(f"at {timestamp}", offsets_request(topic, timestamp))
    if s.version >= 7:
        s.ask("max timestamp", offsets_request(topic, -3))


@scenario(ApiKey.LIST_OFFSETS, versions=(7, 10))
def max_timestamps(s: Session) -> None:
    for compression in ("none", "gzip"):
        topic = s.create(compression)
        for count, delta in ((1, 0), (5, 500), (2, 100)):
            s.fill(produce(topic, batch(count, first_ms=T0 + delta, compression=compression)))
            s.ask(f"{compression} after {delta}", offsets_request(topic, -3))


@scenario(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def epochs(s: Session) -> None:
    topic, empty = filled(s), s.create("empty")
    for name, which in (("filled", topic), ("empty", empty)):
        for epoch in (-1, 0, 1, 5, -2):
            for current in (-1, 0, 1):
                each = e.OffsetForLeaderPartition(0, current, epoch)
                topics = [e.OffsetForLeaderTopic(which, [each])]
                request = e.OffsetForLeaderEpochRequest(-1, topics)
                s.ask(f"{name} epoch {epoch} current {current}", request)


@scenario(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def wrong_topics(s: Session) -> None:
    topic = filled(s)
    for name, partition in ((topic, 7), (s.name("nobody"), 0), ("", 0)):
        each = e.OffsetForLeaderPartition(partition, -1, 0)
        topics = [e.OffsetForLeaderTopic(name, [each])]
        s.ask(f"{name[-6:]} {partition}", e.OffsetForLeaderEpochRequest(-1, topics))
    s.ask("none", e.OffsetForLeaderEpochRequest(-1, []))


def deletion(topic: str, *offsets: tuple[int, int]) -> d.DeleteRecordsRequest:
    each = [d.DeleteRecordsPartition(partition, offset) for partition, offset in offsets]
    return d.DeleteRecordsRequest([d.DeleteRecordsTopic(topic, each)], 5000)


@scenario(ApiKey.DELETE_RECORDS)
def deletions(s: Session) -> None:
    topic = filled(s)
    for offset in (0, 2, 1, 3, 13, 12, -2, -1):
        s.ask(f"before {offset}", deletion(topic, (0, offset)))
        s.ask(f"what is left after {offset}", fetch(topic, 2), 9, on="consumer")
    s.ask("empty", deletion(s.create("empty"), (0, -1)))
    s.ask("partition 7", deletion(topic, (7, 0)))
    s.ask("unknown topic", deletion(s.name("nobody"), (0, 0)))
    s.ask("no name", deletion("", (0, 0)))
    s.ask("good and bad", deletion(topic, (0, -1), (7, 0)))
    s.ask("none", d.DeleteRecordsRequest([], 5000))


@scenario(ApiKey.DELETE_RECORDS)
def policies(s: Session) -> None:
    topic = filled(s, cleanup_policy="compact")
    s.ask("compact", deletion(topic, (0, 2)))
    both = filled(s, "both", cleanup_policy="compact,delete")
    s.ask("compact,delete", deletion(both, (0, 2)))
    s.group()
    s.ask("internal", deletion("__consumer_offsets", (0, 0)))


@scenario(ApiKey.DESCRIBE_LOG_DIRS)
def sizes(s: Session) -> None:
    topic = s.create("t", 2)
    s.fill(produce(topic, batch(3)))
    s.ask("both", DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0, 1])]))
    s.ask("one", DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0])]))
    s.ask("partition 7", DescribeLogDirsRequest([DescribableLogDirTopic(topic, [7])]))
    s.ask("no partitions", DescribeLogDirsRequest([DescribableLogDirTopic(topic, [])]))
    s.ask("unknown", DescribeLogDirsRequest([DescribableLogDirTopic(s.name("nobody"), [0])]))
    s.ask("none", DescribeLogDirsRequest([]))
