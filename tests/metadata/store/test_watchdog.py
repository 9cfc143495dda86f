"""The watchdog of a session, on a clock that the test moves."""

from __future__ import annotations

from odradek.environment.clock import ManualClock
from odradek.metadata.store.watchdog import CHECKS_PER_LIMIT, SessionWatchdog

LIMIT_MS = 6_000
INTERVAL_MS = LIMIT_MS // CHECKS_PER_LIMIT


class Watched:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ended = 0
        self.watchdog = SessionWatchdog(LIMIT_MS, self.clock, self.end)

    def end(self) -> None:
        self.ended += 1

    def check_after(self, delay_ms: int) -> bool:
        self.clock.advance(delay_ms)
        return self.watchdog.check()


def test_a_loop_that_beats_keeps_its_session() -> None:
    watched = Watched()
    for _ in range(100):
        watched.watchdog.beat()
        assert not watched.check_after(INTERVAL_MS)
    assert watched.ended == 0


def test_a_loop_without_a_beat_for_the_limit_loses_its_session_once() -> None:
    watched = Watched()
    watched.watchdog.beat()
    assert not watched.check_after(INTERVAL_MS)
    for _ in range(CHECKS_PER_LIMIT - 1):
        assert not watched.check_after(INTERVAL_MS)
    assert watched.ended == 0
    assert watched.check_after(INTERVAL_MS)
    assert watched.ended == 1


def test_a_late_beat_begins_the_limit_again() -> None:
    watched = Watched()
    for _ in range(10):
        for _ in range(CHECKS_PER_LIMIT - 1):
            assert not watched.check_after(INTERVAL_MS)
        watched.watchdog.beat()
        assert not watched.check_after(INTERVAL_MS)


def test_a_process_that_was_suspended_as_a_whole_keeps_its_session() -> None:
    watched = Watched()
    watched.watchdog.beat()
    assert not watched.check_after(INTERVAL_MS)
    assert not watched.check_after(100 * LIMIT_MS)
    watched.watchdog.beat()
    assert not watched.check_after(INTERVAL_MS)


def test_the_thread_ends_when_the_session_is_closed_or_was_ended() -> None:
    watched = Watched()
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        watched.clock.advance(round(seconds * 1000))
        return len(waits) == 3

    watched.watchdog.run(wait)
    assert watched.ended == 0
    assert waits == [INTERVAL_MS / 1000] * 3
    watched.watchdog.run(lambda seconds: wait(seconds) and False)
    assert watched.ended == 1


def test_another_limit_applies_from_the_next_check_on() -> None:
    watched = Watched()
    watched.watchdog.change_limit(LIMIT_MS / 2)
    assert watched.watchdog.check_interval_ms == INTERVAL_MS / 2
    for _ in range(CHECKS_PER_LIMIT - 1):
        assert not watched.check_after(INTERVAL_MS // 2)
    assert watched.check_after(INTERVAL_MS // 2)
