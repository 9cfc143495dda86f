"""OffsetCommit and OffsetFetch."""

from __future__ import annotations

from typing import Any

from conformance.differential.registry import scenario
from conformance.differential.scenarios.groups import join, member
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import offset_commit_request as c
from odradek.protocol.messages import offset_fetch_request as f


def commit(
    group: str,
    topic: str,
    *partitions: tuple[int, int],
    generation: int = -1,
    who: str = "",
    metadata: str | None = "",
    **options: Any,
) -> c.OffsetCommitRequest:
    each = [
        c.OffsetCommitRequestPartition(partition, offset, committed_metadata=metadata)
        for partition, offset in partitions
    ]
    topics = [c.OffsetCommitRequestTopic(topic, partitions=each)]
    return c.OffsetCommitRequest(group, generation, who, topics=topics, **options)


def fetched(
    group: str, requested: dict[str, list[int]] | None, **options: Any
) -> f.OffsetFetchRequest:
    """Return a request for one group that fills the fields of every version."""
    old = None if requested is None else [f.OffsetFetchRequestTopic(*w) for w in requested.items()]
    new = None
    if requested is not None:
        new = [
            f.OffsetFetchRequestTopics(name, partition_indexes=p) for name, p in requested.items()
        ]
    groups = [f.OffsetFetchRequestGroup(group, topics=new, **options)]
    return f.OffsetFetchRequest(group, old, groups)


@scenario(ApiKey.OFFSET_COMMIT)
def simple(s: Session) -> None:
    group, topic = s.group(), s.create("t", 2)
    s.ask("one", commit(group, topic, (0, 5)))
    s.ask("two", commit(group, topic, (0, 6), (1, 7), metadata="why"))
    s.ask("null metadata", commit(group, topic, (0, 6), metadata=None))
    s.ask("negative offset", commit(group, topic, (0, -1)))
    s.ask("lower offset", commit(group, topic, (1, 3)))
    s.ask("beyond the end", commit(group, topic, (1, 2**62)))
    s.ask("metadata 4096", commit(group, topic, (0, 1), metadata="x" * 4096))
    s.ask("metadata 4097", commit(group, topic, (0, 2), metadata="x" * 4097))
    s.ask("metadata of 2 bytes a letter", commit(group, topic, (0, 3), metadata="ü" * 4096))
    s.ask("what is kept", fetched(group, {topic: [0, 1, 2]}), 7, on="other")
    s.ask("all that is kept", fetched(group, None), 7, on="other")


@scenario(ApiKey.OFFSET_COMMIT)
def wrong_addresses(s: Session) -> None:
    group, topic = s.group(), s.create()
    s.ask("unknown topic", commit(group, s.name("nobody"), (0, 5)))
    s.ask("no topic name", commit(group, "", (0, 5)))
    s.ask("partition 7", commit(group, topic, (7, 5)))
    s.ask("partition -1", commit(group, topic, (-1, 5)))
    s.ask("good and bad", commit(group, topic, (0, 5), (7, 5)))
    s.ask("no group", commit("", topic, (0, 5)))
    s.ask("no topics", c.OffsetCommitRequest(group))
    s.ask("no partitions", commit(group, topic))
    s.ask("partition twice", commit(group, topic, (0, 5), (0, 6)))
    s.ask("what is kept", fetched(group, {topic: [0]}), 7, on="other")


@scenario(ApiKey.OFFSET_COMMIT)
def of_members(s: Session) -> None:
    group, topic = s.group(), s.create()
    s.ask("member of no group", commit(group, topic, (0, 1), generation=1, who="nobody"))
    s.ask("member, no generation", commit(group, topic, (0, 1), who="nobody"))
    s.ask("generation, no member", commit(group, topic, (0, 1), generation=1))
    mine, generation = member(s, group)
    s.ask("right", commit(group, topic, (0, 1), generation=generation, who=mine))
    s.ask("simple, group is in use", commit(group, topic, (0, 1)))
    s.ask("unknown member", commit(group, topic, (0, 1), generation=generation, who="nobody"))
    s.ask("no member", commit(group, topic, (0, 1), generation=generation))
    for wrong in (generation - 1, generation + 1, -1):
        step = f"generation {wrong}"
        s.ask(step, commit(group, topic, (0, 1), generation=wrong, who=mine))
    if s.version >= 7:
        wrong_instance = commit(
            group, topic, (0, 1), generation=generation, who=mine, group_instance_id="i-1"
        )
        s.ask("instance of nobody", wrong_instance)
    response = s.quiet(join(group, mine, "roundrobin"), 3)
    later = commit(group, topic, (0, 2), generation=response.generation_id, who=mine)
    s.ask("while it waits for the plan", later)
    s.ask("generation before", commit(group, topic, (0, 2), generation=generation, who=mine))


@scenario(ApiKey.OFFSET_COMMIT, versions=(2, 3, 4))
def retention_times(s: Session) -> None:
    group, topic = s.group(), s.create()
    for retention in (-1, 0, 100_000):
        step = f"retention {retention}"
        s.ask(step, commit(group, topic, (0, 1), retention_time_ms=retention))


@scenario(ApiKey.OFFSET_FETCH, versions=(1, 2, 5, 6, 7, 8, 9))
def fetches(s: Session) -> None:
    group, topic = s.group(), s.create("t", 3)
    s.quiet(commit(group, topic, (0, 5), (1, 6), metadata="why"), 8)
    s.ask("both", fetched(group, {topic: [0, 1]}))
    s.ask("one not committed", fetched(group, {topic: [0, 2]}))
    s.ask("partition 7", fetched(group, {topic: [7, -1]}))
    s.ask("partition twice", fetched(group, {topic: [0, 0]}))
    s.ask("unknown topic", fetched(group, {s.name("nobody"): [0]}))
    s.ask("no topic name", fetched(group, {"": [0]}))
    s.ask("no partitions", fetched(group, {topic: []}))
    s.ask("no topics", fetched(group, {}))
    s.ask("unknown group", fetched(s.name("nobody"), {topic: [0]}))
    s.ask("no group", fetched("", {topic: [0]}))
    if s.version >= 2:
        s.ask("everything", fetched(group, None))
        s.ask("everything of unknown", fetched(s.name("nobody"), None))
        s.ask("everything of no group", fetched("", None))
    if s.version >= 7:
        stable = fetched(group, {topic: [0]})
        stable.require_stable = True
        s.ask("stable", stable)


@scenario(ApiKey.OFFSET_FETCH, versions=(8, 9))
def several_groups(s: Session) -> None:
    one, two, topic = s.group("one"), s.group("two"), s.create("t", 2)
    s.quiet(commit(one, topic, (0, 5)), 8)
    s.quiet(commit(two, topic, (1, 6)), 8)
    names = [one, two, s.name("nobody"), ""]
    topics = [f.OffsetFetchRequestTopics(topic, partition_indexes=[0, 1])]
    groups = [f.OffsetFetchRequestGroup(name, topics=topics) for name in names]
    s.ask("four", f.OffsetFetchRequest(groups=groups))
    everything = [f.OffsetFetchRequestGroup(name, topics=None) for name in names]
    s.ask("everything of four", f.OffsetFetchRequest(groups=everything))
    s.ask("no groups", f.OffsetFetchRequest())
    s.ask("twice", f.OffsetFetchRequest(groups=[groups[0], groups[0]]))


@scenario(ApiKey.OFFSET_FETCH, versions=(9,))
def member_epochs(s: Session) -> None:
    group, topic = s.group(), s.create()
    s.quiet(commit(group, topic, (0, 5)), 8)
    s.ask("member of no group", fetched(group, {topic: [0]}, member_id="x", member_epoch=1))
    mine, generation = member(s, group)
    requested = {topic: [0]}
    s.ask("right", fetched(group, requested, member_id=mine, member_epoch=generation))
    s.ask("wrong epoch", fetched(group, requested, member_id=mine, member_epoch=77))
    s.ask("unknown member", fetched(group, requested, member_id="x", member_epoch=generation))
    s.ask("null member", fetched(group, requested, member_id=None, member_epoch=generation))
    unknown = fetched(s.name("nobody"), requested, member_id="x", member_epoch=1)
    s.ask("unknown group", unknown)
