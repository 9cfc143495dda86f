"""Tests of the liveness of brokers."""

from __future__ import annotations

import pytest

from odradek.controller.broker_registry import BrokerRegistry
from odradek.ids import BrokerId

ONE, TWO = BrokerId(1), BrokerId(2)
TIMEOUT_MS = 9_000


def _taken_over(now_ms: float = 0) -> BrokerRegistry:
    registry = BrokerRegistry(TIMEOUT_MS, now_ms)
    registry.taken_over({ONE: 10, TWO: 11}, now_ms)
    return registry


def test_at_a_take_over_each_registered_broker_counts_as_caught_up_and_as_having_polled() -> None:
    registry = _taken_over()
    assert registry.is_live(ONE)
    assert registry.is_live(TWO)
    assert not registry.is_live(BrokerId(3))


def test_broker_without_polls_expires_after_the_session_timeout() -> None:
    registry = _taken_over()
    for now_ms in range(0, TIMEOUT_MS, 2_000):
        registry.polled(ONE, 10, 5, now_ms)
        assert registry.expired(now_ms) == []
    assert registry.expired(TIMEOUT_MS) == [TWO]
    assert registry.expired(TIMEOUT_MS + 1) == []
    assert registry.is_live(ONE)
    assert not registry.is_live(TWO)


def test_expired_broker_is_live_again_after_one_poll() -> None:
    registry = _taken_over()
    for now_ms in range(0, TIMEOUT_MS + 1, 2_250):
        registry.expired(now_ms)
    assert not registry.is_live(ONE)
    assert registry.polled(ONE, 10, -1, TIMEOUT_MS + 1)
    assert registry.is_live(ONE)
    assert not registry.polled(ONE, 10, 5, TIMEOUT_MS + 2)


@pytest.mark.parametrize("offset", [0, 7])
def test_new_broker_is_live_once_it_has_applied_its_registration(offset: int) -> None:
    registry = BrokerRegistry(TIMEOUT_MS, 0)
    registry.registered(ONE, 20, offset=offset, now_ms=0)
    assert not registry.polled(ONE, 20, -1, 1)  # a position of another controller
    assert not registry.polled(ONE, 20, offset - 1, 1)
    assert not registry.is_live(ONE)
    assert registry.polled(ONE, 20, offset, 2)
    assert registry.is_live(ONE)


def test_broker_that_was_never_live_does_not_expire() -> None:
    registry = _taken_over()
    registry.registered(ONE, 20, offset=7, now_ms=0)
    registry.expired(6_000)
    assert registry.expired(TIMEOUT_MS) == [TWO]


def test_poll_of_another_process_of_the_broker_has_no_effect() -> None:
    registry = BrokerRegistry(TIMEOUT_MS, 0)
    registry.registered(ONE, 20, offset=7, now_ms=0)
    assert not registry.polled(ONE, 19, 9, 1)
    assert registry.applied_offsets() == {}
    assert not registry.is_live(ONE)


def test_broker_without_a_node_is_not_live() -> None:
    registry = _taken_over()
    registry.gone(ONE)
    assert not registry.is_live(ONE)
    assert not registry.polled(ONE, 10, 5, 1)
    assert registry.epochs == {TWO: 11}


def test_stopped_controller_expires_no_broker_whose_polls_it_could_not_read() -> None:
    registry = _taken_over()
    assert registry.expired(registry.tick_ms) == []
    assert registry.expired(60_000) == []
    assert registry.is_live(ONE)
    assert registry.expired(60_000 + registry.tick_ms) == []
    for tick in range(2, 5):
        last = registry.expired(60_000 + tick * registry.tick_ms)
    assert last == [ONE, TWO]


@pytest.mark.parametrize(("late_ms", "found"), [(0, [ONE, TWO]), (1, [])])
def test_controller_was_stopped_when_its_tick_is_late_by_more_than_half_a_timeout(
    late_ms: int, found: list[BrokerId]
) -> None:
    registry = _taken_over()
    assert registry.expired(6_000) == []
    assert registry.expired(6_000 + registry.tick_ms + TIMEOUT_MS / 2 + late_ms) == found


def test_applied_offset_of_a_broker_never_falls() -> None:
    registry = _taken_over()
    registry.polled(ONE, 10, 8, 1)
    registry.polled(ONE, 10, -1, 2)
    assert registry.applied_offsets() == {ONE: 8, TWO: -1}


def test_applied_offset_of_an_expired_broker_is_not_reported() -> None:
    registry = _taken_over()
    registry.polled(ONE, 10, 8, 6_000)
    registry.expired(6_000)
    assert registry.expired(TIMEOUT_MS) == [TWO]
    assert registry.applied_offsets() == {ONE: 8}


def test_unregistered_broker_is_not_live_again_with_its_node() -> None:
    registry = _taken_over()
    registry.unregistered(ONE)
    assert not registry.is_live(ONE)
    assert not registry.polled(ONE, 10, 100, 1)
    assert not registry.is_live(ONE)
    registry.registered(TWO, 12, offset=5, now_ms=2)
    assert registry.polled(TWO, 12, 6, 3)
    registry.unregistered(TWO)
    assert not registry.polled(TWO, 12, 7, 4)
    assert registry.is_live(TWO) is False
    registry.registered(TWO, 13, offset=8, now_ms=5)
    assert registry.polled(TWO, 13, 8, 6)
