"""The state machine of `log_machine`, and the mutants that it must catch."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from odradek.log import recovery
from odradek.log.log import UnifiedLog
from odradek.log.producer_state import ProducerState
from tests.log.log_machine import LogMachine

TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def no_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn tail stays where it is after a crash."""
    monkeypatch.setattr(recovery, "recover", lambda *_: None)


def checkpoint_before_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recovery point claims what was never synced."""
    monkeypatch.setattr(UnifiedLog, "_sync_segments", lambda self, end: None)


def no_dedupe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch of a known producer is taken for new."""
    monkeypatch.setattr(ProducerState, "check", lambda *_: None)


def window_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start only the last batch of each producer is known, as in Kafka's snapshot."""
    monkeypatch.setattr(ProducerState, "load_window", lambda *_: None)


def half_a_write_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that did not fit on the disk counts as appended."""

    def accept(log: UnifiedLog, error: OSError) -> Exception:
        log.log_end_offset += 1
        return log.log_dir.error(str(error))

    monkeypatch.setattr(UnifiedLog, "_append_failed", accept)


@pytest.mark.parametrize(
    "mutate", [no_cut, checkpoint_before_fsync, no_dedupe, window_of_one, half_a_write_is_left]
)
def test_mutant_is_caught(monkeypatch: pytest.MonkeyPatch, mutate) -> None:
    mutate(monkeypatch)
    bounded = settings(
        max_examples=300,
        stateful_step_count=30,
        deadline=None,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
    )
    with pytest.raises(Exception):  # noqa: B017 - whatever way it shows
        run_state_machine_as_test(LogMachine, settings=bounded)
