"""OffsetFetch at times when a stale response would do harm: while the group's shard is loading, and
around the marker of a transaction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers import offset_fetch
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.result_tasks import wait
from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE
from tests.broker.handlers.group_calls import fetch_request
from tests.coordinator.group.offsets.test_transactional_offsets import commit_in_transaction, end
from tests.coordinator.group.on_disk import OnDisk, coordinator
from tests.coordinator.group.test_group_coordinator import code_of, commit
from tests.helpers.event_loop import on_loop

E = ErrorCode
STABLE_FROM = 7


def start_fetch(
    state: OnDisk, version: int, stable: bool, topics: Any
) -> Result[OffsetFetchResponse]:
    request = fetch_request(version=version, topics=topics)
    request.require_stable = stable
    services: Any = SimpleNamespace(groups=state.groups)
    context: Any = SimpleNamespace(api_version=version)
    return offset_fetch.handle(services, context, request)


def fetch_offsets(state: OnDisk, version: int, stable: bool, topics: Any) -> OffsetFetchResponse:
    response = start_fetch(state, version, stable, topics)
    assert response.completed
    return response.get()


def read(state: OnDisk, version: int = 9, *, stable: bool = False) -> tuple[ErrorCode, int | None]:
    """Return the error code and the committed offset of t-0, or None without an offset."""
    return code_and_offset(fetch_offsets(state, version, stable, {"t": [0]}), version)


def code_and_offset(response: OffsetFetchResponse, version: int) -> tuple[ErrorCode, int | None]:
    """Return code and offset of a response, as `read`."""
    group: Any = response.groups[0] if version >= 8 else response
    if group.error_code:
        assert group.topics == []
        return ErrorCode(group.error_code), None
    (partition,) = group.topics[0].partitions
    return ErrorCode(partition.error_code), partition.committed_offset


@pytest.mark.parametrize("version", range(1, 10))
def test_loading_shard_returns_an_error_and_not_an_offset_of_minus_one(
    tmp_path: Path, version: int
) -> None:
    """Offset -1 without an error sends a consumer back to the beginning. Examples are the spurious
    zero offsets of Jepsen's Bufstream 0.1.0, and redpanda#5090, where a new leader had not applied
    all records yet."""

    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path) as state:
            assert code_of(commit(state, 42)) is E.NONE
        async with coordinator(path, start=False) as state:
            state.groups.start()
            loading = (E.COORDINATOR_LOAD_IN_PROGRESS, None if version >= 2 else -1)
            for stable in (False, True):
                assert read(state, version, stable=stable) == loading
            if version >= 2:
                response = fetch_offsets(state, version, False, None)
                of_all: Any = response.groups[0] if version >= 8 else response
                assert (of_all.error_code, of_all.topics) == (loading[0], [])
            await state.groups.runtime.loads_done()
            assert read(state, version) == (E.NONE, 42)

    run(tmp_path)


@pytest.mark.parametrize("version", range(STABLE_FROM, 10))
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_are_unstable_until_the_marker_and_current_after_it(
    tmp_path: Path, version: int, committed: bool
) -> None:
    """In redpanda#9571 and redpanda#10669 the commit was applied and the read was stale. Records
    were processed again."""

    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path) as state:
            commit(state, 5)
            commit_in_transaction(state)
            assert read(state, version, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
            assert read(state, version) == (E.NONE, 5)
            state.append_error = E.KAFKA_STORAGE_ERROR
            with pytest.raises(KafkaError):
                end(state, committed)
            assert read(state, version, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
            assert read(state, version) == (E.NONE, 5)
            state.append_error = None
            state.flushes = []
            ended = end(state, committed)
            current = (E.NONE, 9 if committed else 5)
            seen = []
            waiting = waiting_fetch(state, version, True)
            assert read(state, version) == (E.NONE, 5)
            ended.on_done(lambda _: seen.append(read(state, version, stable=True)))
            state.flushes[0].set_result(None)
            assert await wait(ended) is E.NONE
            assert code_and_offset(await wait(waiting), version) == current
            await asyncio.sleep(0)
            assert seen == [current]
            assert read(state, version) == read(state, version, stable=True) == current
        async with coordinator(path) as state:
            assert read(state, version) == read(state, version, stable=True) == current

    run(tmp_path)


def waiting_fetch(state: OnDisk, version: int, stable: bool) -> Result[OffsetFetchResponse]:
    """Return the response that waits for the disk."""
    response = start_fetch(state, version, stable, {"t": [0]})
    assert response.executed
    assert not response.done
    return response


@pytest.mark.parametrize("version", [1, 2, 7, 9])
def test_reads_return_committed_offsets(tmp_path: Path, version: int) -> None:
    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path) as state:
            commit(state, 5)
            state.flushes = []
            first, second = commit(state, 6), commit(state, 7)
            assert read(state, version) == (E.NONE, 5)
            state.flushes[0].set_result(None)
            assert code_of(await wait(first)) is E.NONE
            assert read(state, version) == (E.NONE, 6)
            assert not second.done
            state.flushes[1].set_result(None)
            assert code_of(await wait(second)) is E.NONE
            assert read(state, version) == (E.NONE, 7)

    run(tmp_path)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_stable_read_waits_for_the_commits_before_it(tmp_path: Path, version: int) -> None:
    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path) as state:
            commit(state, 5)
            assert read(state, version, stable=True) == (E.NONE, 5)
            state.flushes = []
            first = commit(state, 6)
            one = waiting_fetch(state, version, True)
            second = commit(state, 7)
            two = waiting_fetch(state, version, True)
            await asyncio.sleep(0)
            assert (one.done, two.done) == (False, False)
            state.flushes[0].set_result(None)
            assert code_and_offset(await wait(one), version) == (E.NONE, 6)
            assert (code_of(await wait(first)), two.done) == (E.NONE, False)
            state.flushes[1].set_result(None)
            assert code_and_offset(await wait(two), version) == (E.NONE, 7)
            assert code_of(await wait(second)) is E.NONE

    run(tmp_path)


@pytest.mark.parametrize("version", range(1, 10))
def test_offset_that_was_not_flushed_is_never_returned(tmp_path: Path, version: int) -> None:
    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path) as state:
            commit(state, 5)
            state.flushes = []
            committing = commit(state, 6)
            stable = version >= STABLE_FROM
            waiting = waiting_fetch(state, version, True) if stable else None
            assert read(state, version) == (E.NONE, 5)
            state.leads = False
            state.flushes[0].set_exception(KafkaError(E.KAFKA_STORAGE_ERROR))
            assert code_of(await wait(committing)) is E.NOT_COORDINATOR
            refused = (E.NOT_COORDINATOR, None if version >= 2 else -1)
            assert read(state, version) == refused
            if waiting is not None:
                assert code_and_offset(await wait(waiting), version) == refused

    run(tmp_path)


@on_loop
async def test_disconnected_client_does_not_cancel_the_commit(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        committing = commit(state, 6)
        response = waiting_fetch(state, 9, True)
        await asyncio.sleep(0)
        response.cancel()
        state.flushes[0].set_result(None)
        assert code_of(await wait(committing)) is E.NONE
        assert read(state) == (E.NONE, 6)


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("unloads", [False, True])
def test_long_fetch_returns_no_offset_that_was_written_between_two_slices_and_is_not_committed(
    tmp_path: Path, version: int, unloads: bool
) -> None:
    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path) as state:
            commit(state, 5)
            partitions = [*range(1, 2 * ELEMENTS_PER_SLICE), 0]
            fetch = start_fetch(state, version, False, {"t": partitions})
            assert not fetch.done
            state.flushes = []
            assert not commit(state, 9).done
            if unloads:
                state.leads = False
                state.groups.leadership_changed(0)
            response: Any = await wait(fetch)
            group = response.groups[0] if version >= 8 else response
            assert group.topics[0].partitions[-1].committed_offset == 5

    run(tmp_path)
