"""Clocks of brokers that differ by minutes."""

from __future__ import annotations

import json

import pytest

from odradek.controller.clock_check import (
    CLOCK_DIFFERENCE_MAX_MS,
    clock_differences,
    differences_at_take_over,
    duration,
    warn_at_take_over,
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


def at_take_over(ahead_ms: int, czxid: int, own: bytes | None = None) -> dict[BrokerId, Node]:
    """Return the nodes if the controller registered 5 min ago, as the 5th transaction."""
    own = own if own is not None else json.dumps({"timestamp": str(NOW_MS - 300_000)}).encode()
    other = json.dumps({"timestamp": str(NOW_MS + ahead_ms)}).encode()
    stat = node(b"").stat
    return {
        BrokerId(1): Node(own, stat._replace(czxid=5)),
        BrokerId(2): Node(other, stat._replace(czxid=czxid)),
    }


@pytest.mark.parametrize(
    ("ahead_ms", "czxid", "words"),
    [
        (61_000, 4, "1 min 1 s ahead of"),
        (61_000, 6, "1 min 1 s ahead of"),
        (-400_000, 6, "1 min 40 s behind"),  # it has registered later than the controller
        (-400_000, 4, None),  # it may have registered long ago
        (-300_000, 6, None),
        (60_000, 6, None),
    ],
)
def test_a_controller_finds_the_clocks_of_brokers_that_registered_before_its_election(
    ahead_ms: int, czxid: int, words: str | None
) -> None:
    found = differences_at_take_over(at_take_over(ahead_ms, czxid), NOW_MS, BrokerId(1))
    assert found == ([] if words is None else [(BrokerId(2), words)])


def test_a_controller_without_a_time_of_its_own_compares_no_clock() -> None:
    assert differences_at_take_over(at_take_over(61_000, 6, b"{}"), NOW_MS, BrokerId(1)) == []


def test_a_controller_warns_at_its_election(caplog: pytest.LogCaptureFixture) -> None:
    warn_at_take_over(at_take_over(61_000, 6), NOW_MS, BrokerId(1))
    assert caplog.messages[0].startswith("the clock of broker 2 is 1 min 1 s ahead of the clock of")


def test_a_duration_has_minutes_and_seconds() -> None:
    assert duration(59_999) == "59 s"
    assert duration(-60_000) == "1 min 0 s"
