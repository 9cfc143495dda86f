"""OffsetFetch at the moments in which a stale answer would be believed: while the group's shard
loads, and around the marker of a transaction."""

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
from tests.broker.handlers.group_calls import fetch_request
from tests.coordinator.group.offsets.test_transactional_offsets import commit_in_transaction, end
from tests.coordinator.group.on_disk import OnDisk, coordinator
from tests.coordinator.group.test_group_coordinator import code_of, commit
from tests.helpers.event_loop import on_loop

E = ErrorCode
STABLE_FROM = 7


def ask_now_or_later(
    state: OnDisk, version: int, stable: bool, topics: Any
) -> Result[OffsetFetchResponse]:
    request = fetch_request(version=version, topics=topics)
    request.require_stable = stable
    services: Any = SimpleNamespace(groups=state.groups)
    context: Any = SimpleNamespace(api_version=version)
    return offset_fetch.handle(services, context, request)


def ask(state: OnDisk, version: int, stable: bool, topics: Any) -> OffsetFetchResponse:
    answer = ask_now_or_later(state, version, stable, topics)
    assert answer.completed
    return answer.get()


def read(state: OnDisk, version: int = 9, *, stable: bool = False) -> tuple[ErrorCode, int | None]:
    """The code that counts and the committed offset of t-0; None where nothing is said of it."""
    return told(ask(state, version, stable, {"t": [0]}), version)


def told(answer: OffsetFetchResponse, version: int) -> tuple[ErrorCode, int | None]:
    """What an answer says, as `read` returns it."""
    group: Any = answer.groups[0] if version >= 8 else answer
    if group.error_code:
        assert group.topics == []
        return ErrorCode(group.error_code), None
    (partition,) = group.topics[0].partitions
    return ErrorCode(partition.error_code), partition.committed_offset


@pytest.mark.parametrize("version", range(1, 10))
def test_loading_shard_says_so_and_not_that_nothing_was_committed(
    tmp_path: Path, version: int
) -> None:
    """The spurious zero offsets of Jepsen's Bufstream 0.1.0, and redpanda#5090 (a new leader that
    has not applied everything yet): -1 without an error sends a consumer back to the beginning."""

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
                answer = ask(state, version, False, None)
                of_all: Any = answer.groups[0] if version >= 8 else answer
                assert (of_all.error_code, of_all.topics) == (loading[0], [])
            await state.groups.runtime.loads_done()
            assert read(state, version) == (E.NONE, 42)

    run(tmp_path)


@pytest.mark.parametrize("version", range(STABLE_FROM, 10))
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_are_current_from_the_marker_on_and_unstable_until_then(
    tmp_path: Path, version: int, committed: bool
) -> None:
    """redpanda#9571, redpanda#10669: the commit was applied and the read stale, so that records
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
            waiting = asked(state, version, True)
            assert read(state, version) == (E.NONE, 5)
            ended.on_done(lambda _: seen.append(read(state, version, stable=True)))
            state.flushes[0].set_result(None)
            assert await wait(ended) is E.NONE
            assert told(await wait(waiting), version) == current
            await asyncio.sleep(0)
            assert seen == [current]
            assert read(state, version) == read(state, version, stable=True) == current
        async with coordinator(path) as state:
            assert read(state, version) == read(state, version, stable=True) == current

    run(tmp_path)


def asked(state: OnDisk, version: int, stable: bool) -> Result[OffsetFetchResponse]:
    """The answer that waits for the disk."""
    answer = ask_now_or_later(state, version, stable, {"t": [0]})
    assert answer.executed
    assert not answer.done
    return answer


@pytest.mark.parametrize("version", [1, 2, 7, 9])
def test_reads_see_what_is_committed(tmp_path: Path, version: int) -> None:
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
            one = asked(state, version, True)
            second = commit(state, 7)
            two = asked(state, version, True)
            await asyncio.sleep(0)
            assert (one.done, two.done) == (False, False)
            state.flushes[0].set_result(None)
            assert told(await wait(one), version) == (E.NONE, 6)
            assert (code_of(await wait(first)), two.done) == (E.NONE, False)
            state.flushes[1].set_result(None)
            assert told(await wait(two), version) == (E.NONE, 7)
            assert code_of(await wait(second)) is E.NONE

    run(tmp_path)


@pytest.mark.parametrize("version", range(1, 10))
def test_an_offset_that_did_not_reach_the_disk_is_never_told(tmp_path: Path, version: int) -> None:
    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path) as state:
            commit(state, 5)
            state.flushes = []
            committing = commit(state, 6)
            stable = version >= STABLE_FROM
            waiting = asked(state, version, True) if stable else None
            assert read(state, version) == (E.NONE, 5)
            state.leads = False
            state.flushes[0].set_exception(KafkaError(E.KAFKA_STORAGE_ERROR))
            assert code_of(await wait(committing)) is E.NOT_COORDINATOR
            refused = (E.NOT_COORDINATOR, None if version >= 2 else -1)
            assert read(state, version) == refused
            if waiting is not None:
                assert told(await wait(waiting), version) == refused

    run(tmp_path)


@on_loop
async def test_client_that_is_gone_does_not_end_the_commit_it_waited_for(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        committing = commit(state, 6)
        answer = asked(state, 9, True)
        await asyncio.sleep(0)
        answer.cancel()
        state.flushes[0].set_result(None)
        assert code_of(await wait(committing)) is E.NONE
        assert read(state) == (E.NONE, 6)
