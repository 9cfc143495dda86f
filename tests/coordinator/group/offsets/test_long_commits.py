"""A long OffsetCommit makes its records in time slices, and writes them as one batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek import slicing
from odradek.coordinator import uncommitted_changes
from odradek.coordinator.batch_builder import build_coordinator_batch
from odradek.coordinator.coordinator_result import CoordinatorRecord
from odradek.coordinator.group import offset_requests
from odradek.coordinator.group.group_records import encode, offset_commit_record
from odradek.coordinator.group.group_shard import GroupShard
from odradek.coordinator.group.offsets import offset_store
from odradek.coordinator.group.offsets.offset_block import OffsetBlock
from odradek.coordinator.group.offsets.offset_commits import (
    CommitContext,
    comparing_topics,
    making_commit,
    plain_commit,
)
from odradek.coordinator.group.offsets.offset_store import NO_PRODUCER, CommittedOffset
from odradek.coordinator.shard_loading import replay_record
from odradek.coordinator.uncommitted_changes import BLOCK_KEYS_MIN
from odradek.errors import ErrorCode
from odradek.log.state.verification import NO_GUARD, NOT_VERIFIED
from odradek.metadata.image import MetadataImage
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.result_tasks import wait
from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion
from tests.coordinator.group.offsets.test_transactional_offsets import EPOCH, PRODUCER, end
from tests.coordinator.group.on_disk import OFFSETS_ID, OnDisk, coordinator, image_of, topic
from tests.coordinator.group.test_group_coordinator import commit as commit_one
from tests.helpers.event_loop import on_loop

VERSION = 8
COUNT = 5 * ELEMENTS_PER_SLICE
SLICES = COUNT // ELEMENTS_PER_SLICE
IMAGE = image_of(topic("t", partitions=COUNT), topic("u", b"u" * 16, 2))


def request(counts: dict[str, int], metadata: str = "") -> OffsetCommitRequest:

    def partition(index: int) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(index, index + 7, 3, committed_metadata=metadata)

    topics = [
        OffsetCommitRequestTopic(name, partitions=list(map(partition, range(n))))
        for name, n in counts.items()
    ]
    return OffsetCommitRequest("g", topics=topics)


@given(
    counts=st.dictionaries(st.sampled_from(["t", "u", "none"]), st.integers(0, COUNT + 3)),
    code=st.sampled_from([ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION]),
    metadata=st.sampled_from(["", "m", "too long"]),
)
def test_a_commit_made_in_slices_equals_the_commit_made_in_one(
    counts: dict[str, int], code: ErrorCode, metadata: str
) -> None:
    context = CommitContext(IMAGE, 1_000, metadata_max=5)
    long = request(counts, metadata)
    block, response = run_to_completion(making_commit(long, code, context, plain_commit))
    plain = plain_commit(long, code, context)
    assert (response, len(block)) == (plain.response, len(plain.records))
    if block:
        pairs = list(map(encode, plain.records))
        assert build_coordinator_batch(block.encoded, 5) == build_coordinator_batch(pairs, 5)


rows = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.integers(0, 3),
        st.integers(0, 9),
        st.sampled_from(["", "m"]),
    ),
    min_size=1,
    max_size=8,
)
Rows = list[tuple[str, int, int, str]]


def records_of(written: Rows) -> list[CoordinatorRecord]:
    return [
        offset_commit_record(
            OffsetCommitKey("g", name, index), OffsetCommitValue(offset, 3, metadata, 1_000, 2_000)
        )
        for name, index, offset, metadata in written
    ]


def view(shard: GroupShard) -> tuple[object, ...]:
    """Return everything that readers see of a shard with the group g."""
    offsets, keys = shard.offsets, [(name, index) for name in "tu" for index in range(4)]
    group = shard.committed_group("g")
    return (
        None if group is None else group.group_id,
        list(shard.groups),
        [each.group_id for each in shard.committed_groups()],
        offsets.of_group("g"),
        offsets.committed_of_group("g"),
        [offsets.get("g", *key) for key in keys],
        [offsets.committed("g", *key) for key in keys],
        [offsets.is_pending("g", *key) for key in keys],
        offsets.has_open_transactions("g"),
    )


@pytest.fixture(params=[1, BLOCK_KEYS_MIN], ids=["blocks", "no-blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep few keys as a block, or not. Apply blocks in slices of one or two offsets."""
    monkeypatch.setattr(uncommitted_changes, "BLOCK_KEYS_MIN", request.param)
    monkeypatch.setattr(offset_store, "APPLIED_PER_SLICE", 1 + request.param % 2)


@pytest.mark.usefixtures("blocks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    writes=st.lists(
        st.tuples(st.sampled_from(["block", "block", "records", "marker", "commit"]), rows),
        max_size=8,
    ),
    data=st.data(),
)
def test_a_block_changes_a_shard_as_its_records_do(
    writes: list[tuple[str, Rows]], data: st.DataObject
) -> None:
    """Each write is uncommitted first. A commit reaches the end of one of the writes before.

    Some time slices of the blocks run between two writes.
    """
    by_record, by_block = (GroupShard(0) for _ in range(2))
    offset, ends = 10, [0]
    for kind, written in writes:
        producer_id = data.draw(st.sampled_from([NO_PRODUCER, 7]))
        last = offset + len(written) - 1
        if kind == "commit":
            last = data.draw(st.sampled_from(ends))
            by_record.commit(last)
            by_block.commit(last)
        elif kind == "marker":
            for shard in (by_record, by_block):
                shard.keep_transaction(offset, 7)
                shard.end_transaction(7, len(written) % 2 == 0)
            offset, last = offset + 1, offset
        else:
            shards = [by_record] if kind == "block" else [by_record, by_block]
            for number, (key, value, _) in enumerate(records_of(written), offset):
                for shard in shards:
                    shard.keep(number, key)
                    replay_record(shard, number, producer_id, key, value)
            if kind == "block":
                block = OffsetBlock("g")
                block.add(records_of(written))
                by_block.keep_block(last, block)
                by_block.replay_block(block, offset, producer_id)
            offset = last + 1
        ends.append(last)
        deque(islice(by_block.offsets.applying("g"), data.draw(st.integers(0, 4))), maxlen=0)
        if data.draw(st.booleans()):
            assert view(by_block) == view(by_record)
    assert view(by_block) == view(by_record)


@pytest.mark.parametrize("counts", [{"t": COUNT}, {f"t{n}": 1 for n in range(COUNT)}])
def test_a_block_is_applied_in_time_slices(
    counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_store, "APPLIED_PER_SLICE", ELEMENTS_PER_SLICE)
    image = image_of(*(topic(name, name.encode().ljust(16), n) for name, n in counts.items()))
    context = CommitContext(image, 1_000, metadata_max=5)
    shard = GroupShard(0)
    for first_offset in (0, COUNT):
        work = making_commit(request(counts), ErrorCode.NONE, context, plain_commit)
        block, _ = run_to_completion(work)
        shard.keep_block(first_offset + COUNT - 1, block)
        shard.replay_block(block, first_offset)
    assert sum(1 for _ in shard.offsets.applying("g")) == 2 * (SLICES - 1)
    assert shard.offsets.committed_of_group("g") == {}
    assert sum(map(len, shard.offsets.of_group("g").values())) == COUNT


@pytest.mark.parametrize("counts", [{"t": COUNT}, {f"none{n}": 0 for n in range(COUNT)}])
def test_the_records_are_made_in_time_slices(counts: dict[str, int]) -> None:
    context = CommitContext(IMAGE, 1_000, metadata_max=5)
    work = making_commit(request(counts), ErrorCode.NONE, context, plain_commit)
    slices = sum(1 for _ in work)
    assert slices >= SLICES - 1


def has_same_topics(old: MetadataImage, new: MetadataImage) -> bool:
    return run_to_completion(comparing_topics(request({"u": 1}), old, new))


def test_a_topic_that_was_created_again_is_another_topic() -> None:
    assert has_same_topics(IMAGE, IMAGE)
    assert has_same_topics(IMAGE, image_of(topic("u", b"u" * 16, 5)))
    assert not has_same_topics(IMAGE, image_of(topic("u", b"v" * 16, 2)))
    assert not has_same_topics(IMAGE, image_of())
    assert not has_same_topics(image_of(), IMAGE)


def test_topics_are_compared_in_time_slices() -> None:
    many = request({f"t{number}": 1 for number in range(COUNT)})
    assert sum(1 for _ in comparing_topics(many, image_of(), image_of())) == SLICES


async def committed(
    state: OnDisk,
    monkeypatch: pytest.MonkeyPatch,
    between: Callable[[], object],
    commit: Callable[[], Result[Any]] | None = None,
) -> tuple[Any, int]:
    """Commit `COUNT` offsets. Return the response and the number of batches.

    Args:
        state: The coordinator.
        monkeypatch: Replaces functions.
        between: Called at the end of the first slice.
        commit: Commits the offsets. The default is an OffsetCommit.
    """
    end_slice, append = slicing.end_slice, state.append_internal
    slices, batches = [0], [0]

    async def ended() -> None:
        slices[0] += 1
        if slices[0] == 1:
            between()
        await end_slice()

    def counted(*arguments: object) -> object:
        batches[0] += 1
        return append(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(slicing, "end_slice", ended)
    monkeypatch.setattr(state, "append_internal", counted)
    state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", partitions=COUNT))
    if commit is None:
        commit = partial(state.groups.offsets.commit_in_slices, request({"t": COUNT}), VERSION)
    response = await wait(commit())
    assert slices[0] >= SLICES - 1
    return response, batches[0]


def codes(response: OffsetCommitResponse | TxnOffsetCommitResponse) -> set[int]:
    (only,) = response.topics
    assert [each.partition_index for each in only.partitions] == list(range(COUNT))
    return {each.error_code for each in only.partitions}


@on_loop
async def test_the_offsets_are_written_as_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        response, batches = await committed(state, monkeypatch, lambda: None)
        assert (codes(response), batches) == ({ErrorCode.NONE}, 1)
        assert state.log().log_end_offset == COUNT
        found = state.groups.runtime.shard(0).offsets.get("g", "t", COUNT - 1)
        assert found == CommittedOffset(COUNT + 6, 3, "", state.clock.time_ms(), -1, COUNT - 1)
        loaded = [of_group(state)]
    async with coordinator(tmp_path) as state:
        loaded.append(of_group(state))
    assert loaded[0] == loaded[1]
    assert len(loaded[0]["t"]) == COUNT


async def iterations() -> None:
    """Let all slices of a commit run."""
    for _ in range(SLICES + 10):
        await asyncio.sleep(0)


def of_group(state: OnDisk) -> Any:
    return state.groups.runtime.shard(0).offsets.committed_of_group("g")


@on_loop
async def test_uncommitted_offsets_are_not_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        commit = asyncio.create_task(committed(state, monkeypatch, lambda: None))
        await iterations()
        assert len(state.flushes) == 1
        assert not commit.done()
        assert of_group(state) == {}
        assert state.groups.runtime.shard(0).committed_groups() == []
        state.flushes[0].set_result(None)
        response, _ = await commit
        assert codes(response) == {ErrorCode.NONE}
        assert len(of_group(state)["t"]) == COUNT


@on_loop
async def test_a_failed_append_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        state.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        response, _ = await committed(state, monkeypatch, lambda: None)
        assert codes(response) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert of_group(state) == {}


@on_loop
async def test_the_response_waits_for_the_writes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        before = commit_one(state, 5)
        flush, state.flushes = state.flushes[0], None
        commit = asyncio.create_task(committed(state, monkeypatch, lambda: None))
        await iterations()
        assert state.log().log_end_offset == 1 + COUNT
        assert not commit.done()
        flush.set_result(None)
        assert codes((await commit)[0]) == {ErrorCode.NONE}
        assert before.done


@on_loop
async def test_a_member_that_is_fenced_between_two_slices_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:

        def fence() -> None:
            fenced = ErrorCode.FENCED_MEMBER_EPOCH
            monkeypatch.setattr(offset_requests, "validate_commit", lambda *_: fenced)

        response, batches = await committed(state, monkeypatch, fence)
        assert (codes(response), batches) == ({ErrorCode.FENCED_MEMBER_EPOCH}, 0)


@on_loop
async def test_a_shard_that_is_dropped_between_two_slices_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        response, batches = await committed(state, monkeypatch, state.groups.stop)
        assert (codes(response), batches) == ({ErrorCode.COORDINATOR_NOT_AVAILABLE}, 0)


@on_loop
async def test_offsets_of_a_topic_that_is_deleted_between_two_slices_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:

        def delete() -> None:
            state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID))

        response, batches = await committed(state, monkeypatch, delete)
        assert (codes(response), batches) == ({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, 0)


@on_loop
async def test_metadata_that_changes_in_each_slice_does_not_delay_a_commit_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        comparing = offset_requests.comparing_topics

        def changing(*arguments: Any) -> Any:
            state.image = replace(state.image)
            return comparing(*arguments)

        def change() -> None:
            state.image = replace(state.image)
            monkeypatch.setattr(offset_requests, "comparing_topics", changing)

        response, batches = await committed(state, monkeypatch, change)
        assert (codes(response), batches) == ({ErrorCode.NONE}, 1)


def transactional(count: int) -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(each, each + 7, 3, "") for each in range(count)]
    topics = [TxnOffsetCommitRequestTopic("t", partitions)]
    return TxnOffsetCommitRequest("x", "g", PRODUCER, EPOCH, topics=topics)


@pytest.mark.parametrize("ends", [True, False])
@on_loop
async def test_offsets_of_a_long_transactional_commit_are_pending_until_the_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    async with coordinator(tmp_path) as state:
        offsets = state.groups.offsets
        commit = partial(offsets.commit_transactional_in_slices, transactional(COUNT), NOT_VERIFIED)
        response, batches = await committed(state, monkeypatch, lambda: None, commit)
        assert (codes(response), batches) == ({ErrorCode.NONE}, 1)
        store = state.groups.runtime.shard(0).offsets
        assert of_group(state) == {}
        assert store.is_pending("g", "t", COUNT - 1)
        assert end(state, ends).get() is ErrorCode.NONE
        assert len(of_group(state).get("t", ())) == (COUNT if ends else 0)
        assert not store.is_pending("g", "t", COUNT - 1)


@on_loop
async def test_a_transaction_that_ends_between_two_slices_is_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        offsets = state.groups.offsets
        opened = offsets.commit_transactional(transactional(1), NOT_VERIFIED)
        assert opened.done
        commit = partial(offsets.commit_transactional_in_slices, transactional(COUNT), NO_GUARD)
        response, _ = await committed(state, monkeypatch, lambda: end(state, False), commit)
        assert codes(response) == {ErrorCode.INVALID_TXN_STATE}
        assert not state.groups.runtime.shard(0).offsets.has_open_transactions("g")


@on_loop
async def test_a_generation_that_ends_between_two_slices_commits_nothing_in_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:

        def fence() -> None:
            ended = ErrorCode.ILLEGAL_GENERATION
            monkeypatch.setattr(offset_requests, "validate_transactional_commit", lambda *_: ended)

        offsets = state.groups.offsets
        commit = partial(offsets.commit_transactional_in_slices, transactional(COUNT), NOT_VERIFIED)
        response, batches = await committed(state, monkeypatch, fence, commit)
        assert (codes(response), batches) == ({ErrorCode.ILLEGAL_GENERATION}, 0)
