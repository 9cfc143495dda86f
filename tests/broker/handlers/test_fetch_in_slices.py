"""Fetches of more partitions than one time slice reads, and events between two slices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek import slicing
from odradek.broker.broker import BrokerServer
from odradek.errors import ErrorCode
from odradek.log.unified_log import UnifiedLog
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.records.region import FileRegion
from testkit.requests import batch, fetch
from tests.broker.test_time_slices import (
    PARTITIONS,
    created,
    framed,
    opened,
    received,
    response_to,
    running,
    until,
)

READING, ENCODING = PARTITIONS // 2, PARTITIONS
"""Least number of partitions read when a time slice ends, while reading and while encoding."""


def at_slice_end_with(
    monkeypatch: pytest.MonkeyPatch,
    regions: list[FileRegion],
    count: int,
    action: Callable[[], object],
) -> None:
    """Run `action` once, when a time slice ends and `count` regions exist.

    The clock may have ended earlier slices.
    """
    end_slice = slicing.end_slice

    async def acting() -> None:
        if len(regions) >= count:
            assert count == ENCODING or len(regions) < PARTITIONS, "the reading has not ended"
            monkeypatch.setattr(slicing, "end_slice", end_slice)
            action()
        await end_slice()

    monkeypatch.setattr(slicing, "end_slice", acting)


async def filled(server: BrokerServer, name: str) -> None:
    await created(server, name)
    data = [PartitionProduceData(number, batch(b"x")) for number in range(PARTITIONS)]
    await response_to(
        server, ProduceRequest(None, 1, 1000, [TopicProduceData(name, partition_data=data)]), 9
    )


async def session_of(server: BrokerServer, name: str) -> int:
    full = fetch(name, partitions=tuple(range(PARTITIONS)), session_id=0, session_epoch=0)
    return (await response_to(server, full, 12)).session_id  # type: ignore[no-any-return]


def poll(session_id: int) -> Any:
    numbers = tuple(range(PARTITIONS))
    return fetch("t", partitions=numbers, session_id=session_id, session_epoch=1)


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> list[FileRegion]:
    """A list of all regions that are read."""
    found: list[FileRegion] = []
    read = UnifiedLog.read

    def remembered(self: UnifiedLog, *args: Any, **options: Any) -> Any:
        info = read(self, *args, **options)
        if info.region is not None:
            found.append(info.region)
        return info

    monkeypatch.setattr(UnifiedLog, "read_resident", remembered)
    return found


@pytest.mark.parametrize("count", [READING, ENCODING], ids=["reading", "encoding"])
def test_another_request_of_the_session_between_two_slices_makes_the_fetch_a_duplicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regions: list[FileRegion], count: int
) -> None:
    with running(tmp_path) as (runner, server):
        runner.run(filled(server, "t"))
        session_id = runner.run(session_of(server, "t"))
        sessions = server.services.fetch_sessions
        last = ("t", PARTITIONS - 1)

        def request_between_slices() -> None:
            """Remove the last partition from the session, and then request it again."""
            known = sessions.sessions[session_id].partitions[last]
            sessions.context(session_id, 2, False, [], [last])
            again = type(known)(*last, 1, known.max_bytes)
            assert not sessions.context(session_id, 3, False, [again], []).error

        del regions[:]
        at_slice_end_with(monkeypatch, regions, count, request_between_slices)
        request = poll(session_id)
        response = runner.run(response_to(server, request, 12))
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (response.session_id, response.responses) == (session_id, [])
        assert sessions.sessions[session_id].partitions[last].fetch_offset == 1
        assert len(regions) == PARTITIONS
        assert all(is_closed(region) for region in regions)


@pytest.mark.parametrize("count", [READING, ENCODING], ids=["reading", "encoding"])
def test_a_fetch_cancelled_between_two_slices_closes_its_regions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regions: list[FileRegion], count: int
) -> None:
    ended: list[int] = []

    async def run(server: BrokerServer) -> None:
        await filled(server, "t")
        session_id = await session_of(server, "t")
        connection, transport = opened(server)
        del regions[:]

        def end_execution() -> None:
            ended.append(len(regions))
            (executing,) = connection._shared.executing
            executing.cancel()

        at_slice_end_with(monkeypatch, regions, count, end_execution)
        request = poll(session_id)
        received(connection, framed(request, 12))()
        await until(lambda: bool(ended) and not connection._shared.executing)
        assert not transport.written

    with running(tmp_path) as (runner, server):
        runner.run(run(server))
        assert len(regions) == ended[0]
        assert all(is_closed(region) for region in regions)
        assert not server.services.replica_manager.fetches.waiting


def is_closed(region: FileRegion) -> bool:
    return region._file is None
