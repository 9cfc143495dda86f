"""A long OffsetCommit makes its records in time slices, and writes them as one batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek import slicing
from odradek.coordinator.group import offset_requests
from odradek.coordinator.group.offsets.offset_commits import (
    CommitContext,
    has_same_topics,
    making_commit,
    plain_commit,
)
from odradek.errors import ErrorCode
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.result_tasks import wait
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion
from tests.coordinator.group.on_disk import OFFSETS_ID, OnDisk, coordinator, image_of, topic
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
    made = run_to_completion(making_commit(request(counts, metadata), code, context))
    assert made == plain_commit(request(counts, metadata), code, context)


@pytest.mark.parametrize("counts", [{"t": COUNT}, {f"none{n}": 0 for n in range(COUNT)}])
def test_the_records_are_made_in_time_slices(counts: dict[str, int]) -> None:
    context = CommitContext(IMAGE, 1_000, metadata_max=5)
    slices = sum(1 for _ in making_commit(request(counts), ErrorCode.NONE, context))
    assert slices >= SLICES - 1


def test_a_topic_that_was_created_again_is_another_topic() -> None:
    commit = request({"u": 1})
    assert has_same_topics(commit, IMAGE, IMAGE)
    assert has_same_topics(commit, IMAGE, image_of(topic("u", b"u" * 16, 5)))
    assert not has_same_topics(commit, IMAGE, image_of(topic("u", b"v" * 16, 2)))
    assert not has_same_topics(commit, IMAGE, image_of())
    assert not has_same_topics(commit, image_of(), IMAGE)


async def committed(
    state: OnDisk, monkeypatch: pytest.MonkeyPatch, between: Callable[[], object]
) -> tuple[OffsetCommitResponse, int]:
    """Commit `COUNT` offsets. Return the response and the number of batches.

    Args:
        state: The coordinator.
        monkeypatch: Replaces functions.
        between: Called at the end of the first slice.
    """
    end_slice, append = slicing.end_slice, state.append
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
    monkeypatch.setattr(state, "append", counted)
    state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", partitions=COUNT))
    response = await wait(state.groups.offsets.commit_in_slices(request({"t": COUNT}), VERSION))
    assert slices[0] >= SLICES - 1
    return response, batches[0]


def codes(response: OffsetCommitResponse) -> set[int]:
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
        assert found is not None
        assert found.offset == COUNT + 6


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
