"""TxnOffsetCommit, DescribeProducers, WriteTxnMarkers."""

from __future__ import annotations

from typing import Any

from conformance.differential.batches import batch, produce
from conformance.differential.registry import scenario
from conformance.differential.scenarios.group_offsets import fetched
from conformance.differential.scenarios.groups import member
from conformance.differential.scenarios.offsets import offsets_request
from conformance.differential.scenarios.transactions import (
    Who,
    add,
    begun,
    coordinated,
    end,
    settled,
)
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import txn_offset_commit_request as t
from odradek.protocol.messages import write_txn_markers_request as w
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)


def commit(
    name: str,
    group: str,
    who: tuple[int, int],
    topic: str,
    *partitions: tuple[int, int],
    metadata: str | None = "",
    **options: Any,
) -> t.TxnOffsetCommitRequest:
    each = [
        t.TxnOffsetCommitRequestPartition(partition, offset, committed_metadata=metadata)
        for partition, offset in partitions
    ]
    topics = [t.TxnOffsetCommitRequestTopic(topic, each)]
    return t.TxnOffsetCommitRequest(name, group, *who, topics=topics, **options)


@scenario(ApiKey.TXN_OFFSET_COMMIT, versions=(0, 2, 3, 4))
def in_a_transaction(s: Session) -> None:
    name, group, topic = coordinated(s), s.group(), s.create("t", 3)
    who = begun(s, name)
    s.ask("group not added", commit(name, group, who, topic, (0, 1)))
    s.quiet(AddOffsetsToTxnRequest(name, *who, group), 3)
    s.ask("one", commit(name, group, who, topic, (0, 5)))
    s.ask("two", commit(name, group, who, topic, (0, 6), (1, 7), metadata="why"))
    s.ask("null metadata", commit(name, group, who, topic, (2, 1), metadata=None))
    s.ask("metadata 4097", commit(name, group, who, topic, (2, 2), metadata="x" * 4097))
    s.ask("partition 7", commit(name, group, who, topic, (0, 6), (7, 1)))
    s.ask("unknown topic", commit(name, group, who, s.name("nobody"), (0, 1)))
    later = (who.producer_id, who.epoch + 1)
    s.ask("other epoch", commit(name, group, later, topic, (0, 9)))
    s.ask("other name", commit(s.name("nobody"), group, who, topic, (0, 9)))
    s.ask("no group", commit(name, "", who, topic, (0, 9)))
    s.ask("no topics", t.TxnOffsetCommitRequest(name, group, *who))
    s.ask("while open", fetched(group, {topic: [0, 1, 2]}), 6, on="other")
    stable = fetched(group, {topic: [0, 1, 2]})
    stable.require_stable = True
    s.ask("while open, stable", stable, 7, on="other")
    s.quiet(end(name, who), 3)
    settled(s, name, "CompleteCommit")
    s.ask("committed", fetched(group, {topic: [0, 1, 2]}), 7, on="other")
    s.ask("after the end", commit(name, group, who, topic, (0, 9)))


@scenario(ApiKey.TXN_OFFSET_COMMIT, versions=(5,))
def added_by_itself(s: Session) -> None:
    """Version 5 adds the group's partition to the transaction, and an abort reverts the commit."""
    name, group, topic = coordinated(s), s.group(), s.create()
    pid, epoch = begun(s, name)
    s.ask("one", commit(name, group, (pid, epoch), topic, (0, 5)))
    s.ask("other epoch", commit(name, group, (pid, epoch + 1), topic, (0, 6)))
    s.ask("other id", commit(name, group, (pid + 10_000, epoch), topic, (0, 6)))
    s.ask("other name", commit(s.name("nobody"), group, (pid, epoch), topic, (0, 6)))
    s.quiet(end(name, (pid, epoch), False), 5)
    settled(s, name, "CompleteAbort")
    s.ask("aborted", fetched(group, {topic: [0]}), 7, on="other")
    s.ask("with the epoch before", commit(name, group, (pid, epoch), topic, (0, 7)))
    s.ask("with the next", commit(name, group, (pid, epoch + 1), topic, (0, 8)))
    s.quiet(end(name, (pid, epoch + 1)), 5)
    settled(s, name, "CompleteCommit")
    s.ask("committed", fetched(group, {topic: [0]}), 7, on="other")


@scenario(ApiKey.TXN_OFFSET_COMMIT, versions=(3, 4, 5))
def of_members(s: Session) -> None:
    name, group, topic = coordinated(s), s.group(), s.create()
    who = begun(s, name)
    s.quiet(AddOffsetsToTxnRequest(name, *who, group), 3)
    ahead = {"generation_id": 1, "member_id": "nobody"}
    s.ask("member of no group", commit(name, group, who, topic, (0, 1), **ahead))
    mine, generation = member(s, group)

    def ask(step: str, **options: Any) -> None:
        s.ask(step, commit(name, group, who, topic, (0, 1), **options))

    ask("right", generation_id=generation, member_id=mine)
    ask("neither", generation_id=-1, member_id="")
    ask("unknown member", generation_id=generation, member_id="nobody")
    ask("generation alone", generation_id=generation)
    for wrong in (generation - 1, generation + 1):
        ask(f"generation {wrong}", generation_id=wrong, member_id=mine)
    ask("instance of nobody", generation_id=generation, member_id=mine, group_instance_id="i-1")
    s.quiet(end(name, who, False), 3)
    settled(s, name, "CompleteAbort")


def producers(topic: str, *partitions: int) -> DescribeProducersRequest:
    return DescribeProducersRequest([TopicRequest(topic, list(partitions))])


def write(
    s: Session, topic: str, who: tuple[int, int], sequence: int = 0, name: str | None = None
) -> None:
    """Produce two records as an idempotent producer, or as a transactional producer with `name`."""
    pid, epoch = who
    data = batch(
        2,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=name is not None,
    )
    s.fill(produce(topic, data, acks=-1, transactional_id=name))


@scenario(ApiKey.DESCRIBE_PRODUCERS)
def producers_described(s: Session) -> None:
    name, topic = coordinated(s), s.create("t", 2)
    s.ask("none", producers(topic, 0))
    plain = s.producer_id()
    write(s, topic, (plain, 0))
    write(s, topic, (plain, 0), 2)
    s.ask("idempotent", producers(topic, 0, 1))
    who = begun(s, name)
    s.quiet(add(name, who, (topic, [0])), 3)
    write(s, topic, who, 0, name)
    s.ask("in a transaction", producers(topic, 0))
    s.quiet(end(name, who), 3)
    settled(s, name, "CompleteCommit")
    s.ask("committed", producers(topic, 0))
    s.ask("partition 7", producers(topic, 7, 0))
    s.ask("unknown topic", producers(s.name("nobody"), 0))
    s.ask("no name", producers("", 0))
    s.ask("no partitions", producers(topic))
    s.ask("nothing", DescribeProducersRequest([]))
    s.ask("twice", producers(topic, 1, 1))


def marker(
    who: tuple[int, int], topics: dict[str, list[int]], committed: bool = True, epoch: int = 0
) -> w.WritableTxnMarker:
    each = [w.WritableTxnMarkerTopic(*topic) for topic in topics.items()]
    return w.WritableTxnMarker(*who, committed, each, epoch)


@scenario(ApiKey.WRITE_TXN_MARKERS)
def markers(s: Session) -> None:
    """Send markers like a coordinator. Compare the responses and the partition's end offsets."""
    name, topic = coordinated(s), s.create("t", 2)
    who = begun(s, name)

    def ask(step: str, *each: w.WritableTxnMarker) -> None:
        s.ask(step, w.WriteTxnMarkersRequest(list(each)))
        for isolation in (0, 1):
            ends = offsets_request(topic, -1, isolation=isolation)
            s.ask(f"{step}, end at {isolation}", ends, 8, on="other")

    ask("nothing")
    ask("unknown topic", marker(who, {s.name("nobody"): [0]}))
    ask("partition 7", marker(who, {topic: [7]}))
    s.quiet(add(name, who, (topic, [0])), 3)
    write(s, topic, who, 0, name)
    ask("abort", marker(who, {topic: [0]}, False))
    ask("again", marker(who, {topic: [0]}, False))
    ask("later coordinator", marker(who, {topic: [0]}, True, 5))
    ask("earlier coordinator", marker(who, {topic: [0]}, True, 4))
    later = Who(who.producer_id, who.epoch + 1)
    ask("later epoch", marker(later, {topic: [0]}, True, 5))
    ask("earlier epoch", marker(who, {topic: [0]}, True, 5))
    ask("unknown producer", marker((who.producer_id + 10_000, 0), {topic: [1]}))
    ask("two of one producer", *[marker(later, {topic: [0]}, True, 5)] * 2)
    ask("good and bad", marker(later, {topic: [0, 7]}, True, 5))
