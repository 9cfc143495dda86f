"""Several commits in one iteration of the event loop: each is appended, or fails, by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.results import Result
from tests.coordinator.group.on_disk import OnDisk, coordinator
from tests.helpers.event_loop import on_loop

VERSION = 8


def commit(state: OnDisk, offset: int, group: str = "g") -> Result[OffsetCommitResponse]:
    existing = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    # The second partition does not exist. Its code does not depend on the append.
    missing = OffsetCommitRequestPartition(partition_index=7, committed_offset=offset)
    topics = [OffsetCommitRequestTopic("t", partitions=[existing, missing])]
    return state.groups.offsets.commit(OffsetCommitRequest(group, topics=topics), VERSION)


def codes(response: Result[OffsetCommitResponse]) -> tuple[int, int]:
    first, second = response.get().topics[0].partitions
    assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return first.partition_index, first.error_code


def committed(state: OnDisk, group: str = "g") -> tuple[int, int] | None:
    """Return the offset, and the offset of its record."""
    value = state.groups.runtime.shard(0).offsets.get(group, "t", 0)
    return None if value is None else (value.offset, value.record_offset)


@on_loop
async def test_failed_append_fails_its_own_commit_alone(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        assert codes(commit(state, 1)) == (0, ErrorCode.NONE)
        state.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert codes(commit(state, 2)) == (0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert codes(commit(state, 2, "h")) == (0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert committed(state) == (1, 0)
        state.append_error = None
        assert codes(commit(state, 3)) == (0, ErrorCode.NONE)
        assert (committed(state), committed(state, "h")) == ((3, 1), None)
    async with coordinator(tmp_path) as state:
        assert (committed(state), committed(state, "h")) == ((3, 1), None)


@on_loop
async def test_each_commit_is_completed_when_its_own_records_are_committed(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        waiting = [commit(state, 1), commit(state, 2, "h"), commit(state, 3)]
        assert state.log().log_end_offset == 3, "one was not appended at once"
        assert (committed(state), committed(state, "h")) == ((3, 2), (2, 1))
        first, second, third = waiting
        assert not any(each.done for each in waiting)
        state.flushes[0].set_result(None)
        await asyncio.sleep(0)
        assert codes(first) == (0, ErrorCode.NONE)
        assert not second.done
        assert not third.done
        state.flushes[1].set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        await asyncio.sleep(0)
        assert codes(second) == (0, ErrorCode.NOT_COORDINATOR)
        assert not third.done
    # A crash before the last two responses: the shard is loaded from the log.
    async with coordinator(tmp_path) as state:
        assert (committed(state), committed(state, "h")) == ((3, 2), (2, 1))
