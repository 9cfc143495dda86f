"""The checkpoints that `LogManager.maintain` writes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.files import RealFiles
from odradek.ids import TopicPartition
from odradek.log.directories.log_manager import NEW_ENTRIES_INTERVAL_MS, LogManager
from odradek.log.log_flusher import LogFlusher
from odradek.log.state import checkpoints
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import NOW_MS, TOPIC_ID, append, open_log

CONFIG = LogConfig()
RECOVERY_POINTS = checkpoints.RECOVERY_POINT_FILE


def entries(root: Path) -> set[str]:
    """Return the topics that have an entry in the checkpoint of recovery points."""
    found = checkpoints.read_offsets(RealFiles(), str(root / RECOVERY_POINTS))
    return {each.topic for each in found}


def opened(roots: list[Path], clock: ManualClock, files: FaultyFiles | None = None) -> LogManager:
    manager = LogManager([str(root) for root in roots], CONFIG, clock, files=files)
    manager.load("cluster", 1)
    return manager


def test_entries_of_new_logs_are_written_before_the_flushes_and_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flushes of a follower that catches up take minutes. New logs roll in that time."""
    clock = ManualClock(NOW_MS)
    manager = opened([tmp_path], clock)
    append(open_log(manager), [b"first"])
    append(manager.create(TopicPartition("second", 0), TOPIC_ID), [b"second"])
    found: list[set[str]] = []

    def flush(_: LogFlusher, __: int, ___: int) -> bool:
        found.append(entries(tmp_path))
        if len(found) == 1:
            append(manager.create(TopicPartition("third", 0), TOPIC_ID), [b"third"])
        clock.advance(NEW_ENTRIES_INTERVAL_MS)
        return False

    monkeypatch.setattr(LogFlusher, "flush_if_due", flush)
    manager.maintain(NOW_MS)
    assert [{"topic", "second"} <= each for each in found] == [True, True]
    assert ["third" in each for each in found] == [False, True]
    manager.close()


def test_entries_of_new_logs_are_written_once(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = opened([tmp_path], ManualClock(NOW_MS), files)
    append(open_log(manager), [b"first"])
    manager.checkpoint()
    before = files.replaced[RECOVERY_POINTS]
    assert not manager.log_dirs[0].has_new_logs
    manager.maintain(NOW_MS)
    assert files.replaced[RECOVERY_POINTS] == before
    manager.close()


def test_offline_directory_does_not_repeat_the_checkpoints_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = opened([tmp_path / "a", tmp_path / "b"], ManualClock(NOW_MS))
    failed, other = manager.log_dirs
    failed.request_checkpoint()
    failed.fail(OSError(errno.EIO, "input/output error"), "a test")
    written: list[str] = []
    monkeypatch.setattr(manager, "checkpoint", lambda: written.append("checkpoint"))
    manager.maintain(NOW_MS)
    assert not written
    other.request_checkpoint()
    manager.maintain(NOW_MS)
    assert written
    monkeypatch.undo()
    manager.close()


class AdjustedClock(ManualClock):
    """A clock that an administrator has set back by an hour."""

    behind_ms = 0

    def time_ms(self) -> int:
        return super().time_ms() - self.behind_ms


def test_f6_l6_high_watermarks_are_written_every_five_seconds_after_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    clock = AdjustedClock(NOW_MS)
    manager = opened([tmp_path], clock)
    path = tmp_path / "replication-offset-checkpoint"
    append(open_log(manager), [b"a"])
    clock.behind_ms = 3_600_000
    clock.advance(5_000)
    manager.maintain(clock.time_ms())
    assert path.read_text() == "0\n1\ntopic 0 1\n"
    manager.close()
