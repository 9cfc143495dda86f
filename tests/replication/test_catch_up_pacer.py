"""The rate of catch-up: limited while there is traffic, and for a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.replication import catch_up_pacer
from odradek.replication.catch_up_pacer import (
    BURST_MS,
    CATCH_UP_BYTES_A_MS,
    TRAFFIC_MS,
    CatchUpPacer,
)
from tests.replication.scripted_leader import Follower, batches, records, run_follower

RESPONSE_BYTES = 2 * CATCH_UP_BYTES_A_MS
RESPONSE_MS = 0.5


def catch_up(pacer: CatchUpPacer, began_ms: float, until_ms: float, *, traffic: bool) -> int:
    """Fetch at once after each delay. Return the bytes."""
    now_ms, size_bytes = began_ms, 0
    while now_ms < until_ms:
        pacer.in_sync_responses += traffic
        size_bytes += RESPONSE_BYTES
        now_ms += RESPONSE_MS + pacer.delay_ms(RESPONSE_BYTES, now_ms + RESPONSE_MS)
    return size_bytes


def test_catch_up_has_the_rate_while_replicas_in_sync_are_appended_to() -> None:
    began_ms, ended_ms = 10.0, 10.0 + 5 * TRAFFIC_MS
    size_bytes = catch_up(CatchUpPacer(), began_ms, ended_ms, traffic=True)
    limit_bytes = CATCH_UP_BYTES_A_MS * (ended_ms - began_ms + BURST_MS) + 2 * RESPONSE_BYTES
    assert 0.95 * limit_bytes <= size_bytes <= limit_bytes


def test_all_connections_share_the_rate() -> None:
    pacer = CatchUpPacer()
    delays = [pacer.delay_ms(RESPONSE_BYTES, 10.0) for _ in range(20)]
    assert delays[-1] == 20 * RESPONSE_BYTES / CATCH_UP_BYTES_A_MS - BURST_MS


def test_catch_up_without_traffic_is_limited_at_its_beginning_only() -> None:
    pacer = CatchUpPacer()
    unlimited_bytes = RESPONSE_BYTES / RESPONSE_MS * TRAFFIC_MS
    assert catch_up(pacer, 10.0, 10.0 + TRAFFIC_MS, traffic=False) < unlimited_bytes / 2
    began_ms = 20.0 + TRAFFIC_MS
    assert catch_up(pacer, began_ms, began_ms + TRAFFIC_MS, traffic=False) == unlimited_bytes
    pacer.in_sync_responses += 1
    assert catch_up(pacer, 3_000.0, 3_500.0, traffic=False) < unlimited_bytes / 4


def test_next_fetch_for_catch_up_is_sent_after_the_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = batches(0, 10)
    monkeypatch.setattr(catch_up_pacer, "CATCH_UP_BYTES_A_MS", len(data) / (BURST_MS + 7))

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow(partition)
        it.catch_up.answer(records(0, data, high_watermark=100))
        assert partition.log.log_end_offset == 10
        assert not it.catch_up.asked
        it.timers.advance(6)
        assert not it.catch_up.asked
        it.timers.advance(2)
        assert it.catch_up.partitions[0].fetch_offset == 10

    run_follower(tmp_path, test)
