"""Clocks of brokers that differ by minutes."""

from __future__ import annotations

import json

import pytest

from odradek.controller.clock_check import (
    CLOCK_DIFFERENCE_MAX_MS,
    clock_differences,
    duration,
    warn_of_clocks,
)
from odradek.ids import BrokerId
from odradek.metadata.store.interface import Node, Stat

NOW_MS = 1_700_000_000_000


def node(data: bytes) -> Node:
    return Node(data, Stat(1, 1, 1, 0, 0, 1, 0))


def differences(data: bytes) -> list[tuple[BrokerId, str]]:
    return clock_differences({BrokerId(2): node(data)}, NOW_MS)


@pytest.mark.parametrize(
    ("ahead_ms", "words"), [(725_000, "12 min 5 s ahead of"), (-61_000, "1 min 1 s behind")]
)
def test_a_clock_that_is_minutes_off_is_found(ahead_ms: int, words: str) -> None:
    data = json.dumps({"timestamp": str(NOW_MS + ahead_ms)}).encode()
    assert differences(data) == [(BrokerId(2), words)]


def test_the_warning_names_both_brokers_and_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    data = json.dumps({"timestamp": str(NOW_MS - 61_000)}).encode()
    warn_of_clocks({BrokerId(2): node(data)}, NOW_MS, BrokerId(1))
    (line,) = caplog.messages
    assert line.startswith("the clock of broker 2 is 1 min 1 s behind the clock of broker 1, the")
    assert "Synchronize the clocks of both machines (NTP)" in line


@pytest.mark.parametrize("ahead_ms", [0, CLOCK_DIFFERENCE_MAX_MS, -CLOCK_DIFFERENCE_MAX_MS])
def test_a_clock_that_is_right_has_none(ahead_ms: int) -> None:
    assert differences(json.dumps({"timestamp": str(NOW_MS + ahead_ms)}).encode()) == []


@pytest.mark.parametrize("data", [b"", b"no json", b"[]", b"{}", b'{"timestamp": null}'])
def test_a_node_without_a_time_has_none(data: bytes) -> None:
    assert differences(data) == []


def test_a_duration_has_minutes_and_seconds() -> None:
    assert duration(59_999) == "59 s"
    assert duration(-60_000) == "1 min 0 s"
