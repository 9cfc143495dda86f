"""The life of ``leader-epoch-checkpoint``: written, synced, recovered, compared, rebuilt."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from odradek.records.record import Record, build_batch
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import NOW_MS, TP, append, open_log, open_manager, values_of

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
CHECKPOINT = "leader-epoch-checkpoint"


def filled(root: Path, epochs: list[int], files: FaultyFiles | None = None) -> LogManager:
    """Return the logs with one batch for each of these epochs."""
    manager = open_manager(root, CONFIG, files)
    for at, epoch in enumerate(epochs):
        append(open_log(manager), [b"%03d" % at * 30], epoch)
    return manager


def starts_of(epochs: list[int]) -> list[tuple[int, int]]:
    """Return the entries that a log with one record for each of these epochs must have."""
    return [(epoch, epochs.index(epoch)) for epoch in dict.fromkeys(epochs)]


def killed_and_opened(manager: LogManager, root: Path) -> UnifiedLog:
    manager.close(clean=False)
    return open_log(open_manager(root, CONFIG))


def make_durable(manager: LogManager) -> None:
    """Move the recovery point in the checkpoint to the beginning of the active segment."""
    open_log(manager).roll(NOW_MS)
    manager.maintain(NOW_MS)


@pytest.mark.parametrize("appends", [False, True])
def test_recovered_epochs_are_in_the_file_before_the_recovery_point_passes_them(
    tmp_path: Path, appends: bool
) -> None:
    """A power cut lost the last renames of the file, but kept all batches."""
    epochs = [0, 0, 1, 1, 2, 2, 3, 3]
    filled(tmp_path, epochs).close(clean=False)
    (tmp_path / str(TP) / CHECKPOINT).write_text("0\n1\n0 0\n")
    manager = open_manager(tmp_path, CONFIG)
    assert open_log(manager).epochs.entries() == starts_of(epochs)
    if appends:
        append(open_log(manager), [b"more"], 3)
        epochs.append(3)
    make_durable(manager)
    log = killed_and_opened(manager, tmp_path)
    assert log.epochs.entries() == starts_of(epochs)
    assert log.end_offset_for_epoch(1) == (1, 4)


@pytest.mark.parametrize("seed", range(12))
def test_epoch_that_begins_in_a_running_broker_is_synced_by_the_next_flush(
    tmp_path: Path, seed: int
) -> None:
    files = FaultyFiles(loses_names=True)
    manager = filled(tmp_path, [0, 0], files)
    make_durable(manager)
    for epoch in (1, 1, 2, 2):
        append(open_log(manager), [b"x" * 90], epoch)
    make_durable(manager)
    manager.close(clean=False)
    files.crash(tmp_path, random.Random(seed))
    manager = open_manager(tmp_path, CONFIG, files)
    assert open_log(manager).epochs.entries() == [(0, 0), (1, 2), (2, 4)]
    assert (tmp_path / str(TP) / CHECKPOINT).read_text() == "0\n3\n0 0\n1 2\n2 4\n"
    manager.close(clean=False)


@pytest.mark.parametrize("seed", range(12))
def test_epochs_survive_a_power_cut_after_a_clean_stop(tmp_path: Path, seed: int) -> None:
    files = FaultyFiles(loses_names=True)
    manager = filled(tmp_path, [0, 0, 1, 1], files)
    make_durable(manager)
    open_log(manager).begin_leader_epoch(2)
    manager.close()
    before = (tmp_path / str(TP) / CHECKPOINT).read_text()
    files.crash(tmp_path, random.Random(seed))
    assert (tmp_path / str(TP) / CHECKPOINT).read_text() == before


@pytest.mark.parametrize(
    "stale", ["0\n1\n0 0\n", "0\n2\n0 0\n1 2\n", "0\n2\n0 0\n9 1\n", "0\n0\n", None]
)
def test_file_that_contradicts_a_batch_is_rebuilt_from_all_batches(
    tmp_path: Path, stale: str | None
) -> None:
    """An earlier version left such files below the recovery point."""
    epochs = [0, 0, 1, 1, 2, 2, 3, 3]
    manager = filled(tmp_path, epochs)
    make_durable(manager)
    assert open_log(manager).flusher.checkpoint_offset == 8
    manager.close(clean=False)
    path = tmp_path / str(TP) / CHECKPOINT
    if stale is None:
        path.unlink()
    else:
        path.write_text(stale)
    log = open_log(manager := open_manager(tmp_path, CONFIG))
    assert log.epochs.entries() == starts_of(epochs)
    assert path.read_text() == "0\n4\n0 0\n1 2\n2 4\n3 6\n"
    manager.close(clean=False)


def test_epochs_without_a_record_are_dropped_when_the_log_is_opened(tmp_path: Path) -> None:
    """As in Kafka: ``LogLoader`` truncates the cache at the log's end."""
    manager = filled(tmp_path, [0, 0])
    open_log(manager).begin_leader_epoch(5)
    manager.close()
    assert (tmp_path / str(TP) / CHECKPOINT).read_text() == "0\n2\n0 0\n5 2\n"
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    assert log.epochs.entries() == [(0, 0)]
    append(log, [b"of the leader of epoch 0"], 0)
    assert (tmp_path / str(TP) / CHECKPOINT).read_text() == "0\n1\n0 0\n"
    manager.close(clean=False)


def test_recovery_compares_no_batch_below_the_log_start(tmp_path: Path) -> None:
    manager = filled(tmp_path, [0, 1, 1, 1, 1, 2, 2, 2])
    open_log(manager).delete_records(2)
    make_durable(manager)
    log = killed_and_opened(manager, tmp_path)
    assert log.epochs.entries() == [(1, 2), (2, 5)]


@pytest.mark.parametrize("rolls", [False, True])
def test_recovery_cuts_batches_with_an_earlier_epoch_than_the_batch_before(
    tmp_path: Path, rolls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut brings them back if a killed process had truncated them without a sync."""
    manager = open_manager(tmp_path, LogConfig(), FaultyFiles())
    log = open_log(manager)
    append(log, [b"0"], 1)
    append(log, [b"1"], 3)
    if rolls:
        log.roll(NOW_MS)
    manager.close(clean=False)
    with Path(log.segments.active.file.path).open("ab") as file:
        file.write(build_batch([Record(None, b"2")], base_offset=2, leader_epoch=2))
    log = open_log(manager := open_manager(tmp_path, LogConfig(), FaultyFiles()))
    assert values_of(log) == [b"0", b"1"]
    assert log.epochs.entries() == [(1, 0), (3, 1)]
    assert "has leader epoch 2 after 3" in caplog.text
    append(log, [b"3"], 3)
    manager.close()
