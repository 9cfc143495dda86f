"""The state machines of a log, and the mutants that they must catch."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from odradek.errors import KafkaError
from odradek.log.log_flusher import LogFlusher
from odradek.log.log_loader import LogLoader
from odradek.log.segments.log_segment import LogSegment
from odradek.log.state.leader_epochs import LeaderEpochFileCache
from odradek.log.state.producer_state_manager import ProducerStateManager
from odradek.log.state.verification import Verifications
from odradek.log.unified_log import UnifiedLog
from odradek.records.record import CorruptRecord
from tests.log.log_machine import LogMachine
from tests.log.transaction_machine import TransactionMachine

TestLogMachine = LogMachine.TestCase
TestTransactionMachine = TransactionMachine.TestCase
TestLogMachine.settings = TestTransactionMachine.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None
)


def no_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery does not cut a torn tail off the file after a crash."""
    real = LogLoader._recover_segment

    def recover_segment(
        loader: LogLoader, segment: LogSegment, epochs: LeaderEpochFileCache
    ) -> tuple[int, int]:
        files = loader._files
        size, log_fd = segment.size, segment.file.open().fd
        ftruncate = files.ftruncate

        def not_the_log(fd: int, length: int) -> None:
            if fd != log_fd:
                ftruncate(fd, length)

        with monkeypatch.context() as patch:
            patch.setattr(files, "ftruncate", not_the_log, raising=False)
            found = real(loader, segment, epochs)
        segment.size = size
        return found

    monkeypatch.setattr(LogLoader, "_recover_segment", recover_segment)


def checkpoint_before_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint has a recovery point that was never synced."""
    monkeypatch.setattr(LogFlusher, "_sync", lambda *_: None)


def no_dedupe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch of a known producer counts as new."""
    monkeypatch.setattr(ProducerStateManager, "check", lambda *_: None)


def window_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start only the last batch of each producer is known, as in Kafka's snapshot."""
    monkeypatch.setattr(ProducerStateManager, "load_window", lambda *_: None)


def half_a_write_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that did not fit on the disk counts as appended."""

    def accept(log: UnifiedLog, error: OSError) -> Exception:
        log.log_end_offset += 1
        return log.log_dir.error(str(error))

    monkeypatch.setattr(UnifiedLog, "_append_failed", accept)


def stable_offset_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch of an open transaction counts as stable."""
    real = UnifiedLog.stable_offset

    def one_more(log: UnifiedLog, high_watermark: int) -> int:
        return min(real(log, high_watermark) + 1, high_watermark)

    monkeypatch.setattr(UnifiedLog, "stable_offset", one_more)


def open_transactions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start treats every transaction in the snapshot as ended."""
    real = ProducerStateManager.load_snapshot

    def load(state: ProducerStateManager, data: bytes) -> None:
        real(state, data)
        state.ongoing.clear()
        for entry in state.producers.values():
            entry.transaction_first_offset = -1

    monkeypatch.setattr(ProducerStateManager, "load_snapshot", load)


def late_batches_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch of a transaction needs no verification."""
    monkeypatch.setattr(Verifications, "passes", lambda *_: True)


@pytest.mark.parametrize(
    ("mutate", "machine"),
    [
        (no_cut, LogMachine),
        (checkpoint_before_fsync, LogMachine),
        (no_dedupe, LogMachine),
        (window_of_one, LogMachine),
        (half_a_write_is_left, LogMachine),
        (stable_offset_too_far, TransactionMachine),
        (open_transactions_are_forgotten, TransactionMachine),
        (late_batches_are_taken, TransactionMachine),
    ],
)
def test_mutant_is_caught(monkeypatch: pytest.MonkeyPatch, mutate, machine) -> None:
    mutate(monkeypatch)
    # Stops at the first failure. It needs that many examples because the generated data depends on
    # the modules that other tests have loaded: hypothesis uses their constants.
    bounded = settings(
        max_examples=10_000,
        stateful_step_count=30,
        deadline=None,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
    )
    # A failure of the machine or the log, not of a mutation that no longer matches the code.
    with pytest.raises((AssertionError, KafkaError, CorruptRecord)):
        run_state_machine_as_test(machine, settings=bounded)
