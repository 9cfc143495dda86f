"""Long removals of offsets are written in time slices, and requests to the group complete them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from odradek.broker.handlers import offset_fetch
from odradek.errors import ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_delete_response import OffsetDeleteResponse
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.result_tasks import wait
from odradek.results import Result, gather
from odradek.slicing import ELEMENTS_PER_SLICE
from tests.coordinator.group.offsets.test_long_commits import (
    COUNT,
    SLICES,
    VERSION,
    committed,
    iterations,
    request,
)
from tests.coordinator.group.on_disk import OFFSETS_ID, OnDisk, coordinator, image_of, topic
from tests.coordinator.group.test_group_coordinator import commit as commit_one
from tests.helpers.event_loop import on_loop
from tests.helpers.metadata_deltas import after_deletion, delta_between

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services

E = ErrorCode
NO_OFFSET = -1


def of_group(state: OnDisk) -> Any:
    return state.groups.shards.of("g").offsets.of_group("g")


async def with_offsets(state: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    await committed(state, monkeypatch, lambda: None)
    assert len(of_group(state)["t"]) == COUNT


def delete_group(state: OnDisk) -> Result[Any]:
    """Begin to delete the group. The first slice has run."""
    deletion = state.groups.offsets.delete_groups(["g"]).chain(gather)
    assert not deletion.done
    assert 0 < len(state.groups.runtime.shard(0).offsets.of_group("g")["t"]) < COUNT
    return deletion


async def code_of(deletion: Result[Any]) -> ErrorCode:
    (only,) = await wait(deletion)
    assert only.group_id == "g"
    return ErrorCode(only.error_code)


@on_loop
async def test_a_group_with_many_offsets_is_deleted_permanently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)

        def delete() -> Result[Any]:
            return state.groups.offsets.delete_groups(["g", "h"]).chain(gather)

        results, batches = await committed(state, monkeypatch, lambda: None, delete)
        assert batches <= SLICES + 2
        assert [(each.group_id, each.error_code) for each in results] == [
            ("g", E.NONE),
            ("h", E.GROUP_ID_NOT_FOUND),
        ]
        assert state.log().log_end_offset == 2 * COUNT + 1
        assert of_group(state) == {}
        assert state.groups.shards.of("g").groups == {}
    async with coordinator(tmp_path) as state:
        assert of_group(state) == {}
        assert state.groups.shards.of("g").groups == {}


@on_loop
async def test_a_request_between_two_slices_sees_the_whole_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        deletion = delete_group(state)
        shard = state.groups.shards.of("g")
        assert (shard.offsets.of_group("g"), shard.groups) == ({}, {})
        commit_one(state, 5)
        assert await code_of(deletion) is E.NONE
        assert [value.offset for value in of_group(state)["t"].values()] == [5]


@on_loop
async def test_a_client_that_closes_its_connection_does_not_stop_a_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        delete_group(state).cancel()
        await iterations()
        assert state.groups.runtime.shard(0).offsets.of_group("g") == {}
        assert state.groups.runtime.shard(0).groups == {}


@on_loop
async def test_a_failed_append_ends_a_deletion_and_leaves_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        deletion = delete_group(state)
        state.append_error = E.NOT_ENOUGH_REPLICAS
        assert await code_of(deletion) is E.COORDINATOR_NOT_AVAILABLE
        assert 0 < len(of_group(state)["t"]) < COUNT
        assert "g" in state.groups.shards.of("g").groups


@on_loop
async def test_a_shard_that_is_dropped_between_two_slices_ends_a_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        deletion = delete_group(state)
        state.groups.stop()
        end = state.log().log_end_offset
        assert await code_of(deletion) is E.NOT_COORDINATOR
        assert state.log().log_end_offset == end


def delete_request(count: int) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(index) for index in range(count)]
    return OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", partitions)])


@on_loop
async def test_many_offsets_are_deleted_in_time_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        delete = partial(state.groups.offsets.delete, delete_request(COUNT - 1))
        response, _ = await committed(state, monkeypatch, lambda: None, delete)
        assert isinstance(response, OffsetDeleteResponse)
        (only,) = response.topics
        assert [each.partition_index for each in only.partitions] == list(range(COUNT - 1))
        assert {each.error_code for each in only.partitions} == {E.NONE}
        assert list(of_group(state)["t"]) == [COUNT - 1]


def change(state: OnDisk, new: MetadataImage) -> None:
    old, state.image = state.image, new
    state.groups.on_metadata(delta_between(old, new), new)


def delete_topic(state: OnDisk) -> None:
    """Begin to remove the offsets of a deleted topic. The first slice has run."""
    change(state, after_deletion(state.image, "t"))
    assert 0 < len(state.groups.runtime.shard(0).offsets.of_group("g")["t"]) < COUNT


@on_loop
async def test_the_offsets_of_a_deleted_topic_are_removed_in_time_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        delete_topic(state)
        assert len(of_group(state)["t"]) >= COUNT - 2 * ELEMENTS_PER_SLICE
        await iterations()
        assert of_group(state) == {}
    async with coordinator(tmp_path) as state:
        assert of_group(state) == {}


@on_loop
async def test_a_topic_that_exists_again_between_two_slices_has_no_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        delete_topic(state)
        image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", b"n" * 16))
        change(state, image)
        assert of_group(state) == {}
        commit_one(state, 5)
        await iterations()
        assert [value.offset for value in of_group(state)["t"].values()] == [5]


@pytest.mark.parametrize("is_long", [False, True])
@on_loop
async def test_a_commit_before_the_coordinator_gets_the_image_of_a_new_topic_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        delete_topic(state)
        old = state.image
        # The broker creates the partitions of the topic in time slices, with the new image.
        state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", b"n" * 16))
        if is_long:
            await wait(state.groups.offsets.commit_in_slices(request({"t": 1}), VERSION))
        else:
            commit_one(state, 5)
        kept = dict(of_group(state)["t"])
        assert list(kept) == [0]
        await iterations()
        state.groups.on_metadata(delta_between(old, state.image), state.image)
        await iterations()
        assert of_group(state)["t"] == kept


@on_loop
async def test_a_fetch_before_the_coordinator_gets_the_image_of_a_new_topic_finds_no_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer of the new topic would begin at an offset of the old one."""
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        delete_topic(state)
        state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", b"n" * 16))
        partitions = list(range(COUNT))[::-1]  # the first ones are removed first
        groups = [
            OffsetFetchRequestGroup(
                "g", topics=[OffsetFetchRequestTopics("t", partition_indexes=partitions)]
            )
        ]
        found = await wait(
            offset_fetch.handle(
                cast("Services", SimpleNamespace(groups=state.groups)),
                cast("RequestContext", SimpleNamespace(api_version=9)),
                OffsetFetchRequest(groups=groups),
            )
        )
        (group,) = found.groups
        assert not group.error_code
        offsets = [each.committed_offset for each in group.topics[0].partitions]
        assert offsets == [NO_OFFSET] * COUNT


@on_loop
async def test_a_shard_that_is_loaded_again_between_two_slices_has_no_offsets_of_a_deleted_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        await with_offsets(state, monkeypatch)
        delete_topic(state)
        state.groups.runtime.unload(0)
        state.groups.runtime.follow(0)
        await iterations()
        await state.groups.runtime.loads_done()
        assert of_group(state) == {}
