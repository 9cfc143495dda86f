"""The deduplication windows after a power cut that damaged the newest producer files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.log.unified_log import UnifiedLog
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import TP, append, open_log, open_manager

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
WINDOW = ".odradek-window"


def send(log: UnifiedLog, sequence: int) -> bool:
    """Send a batch of the idempotent producer. Return whether it was a duplicate."""
    return append(
        log, [b"%d" % sequence * 20], producer_id=1, producer_epoch=0, base_sequence=sequence
    ).duplicate


def send_over_many_segments(log: UnifiedLog) -> None:
    """Append a window of five batches, which is spread over five segments."""
    for sequence in range(5):
        send(log, sequence)
        for _ in range(5):
            append(log, [b"." * 60])
    assert len(log.segments) > 5


def newest(directory: Path, suffix: str) -> Path:
    return max(directory.glob(f"*{suffix}"))


@pytest.mark.parametrize("damage", ["cut", "remove", "of another snapshot"])
@pytest.mark.parametrize("suffix", [WINDOW, ".snapshot"])
def test_damaged_file_of_a_clean_stop_leaves_the_whole_window(
    tmp_path: Path, suffix: str, damage: str
) -> None:
    manager = open_manager(tmp_path, CONFIG)
    send_over_many_segments(open_log(manager))
    manager.close()
    path = newest(tmp_path / str(TP), suffix)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif damage == "remove":
        path.unlink()
    else:
        path.write_bytes(min(path.parent.glob(f"*{suffix}")).read_bytes())
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    assert [send(log, sequence) for sequence in range(5)] == [True] * 5
    assert not send(log, 5)
    manager.close()


def test_window_is_rebuilt_from_the_whole_log_if_all_window_files_are_damaged(
    tmp_path: Path,
) -> None:
    manager = open_manager(tmp_path, CONFIG)
    send_over_many_segments(open_log(manager))
    manager.close()
    for path in (tmp_path / str(TP)).glob(f"*{WINDOW}"):
        path.write_bytes(b"")
    manager = open_manager(tmp_path, CONFIG)
    assert [send(open_log(manager), sequence) for sequence in range(5)] == [True] * 5
    manager.close()


@pytest.mark.parametrize("seed", range(15))
def test_power_cut_after_a_clean_stop_leaves_the_whole_window(tmp_path: Path, seed: int) -> None:
    """The stop writes the producer files to the page cache only."""
    files = FaultyFiles(loses_names=True)
    manager = open_manager(tmp_path, CONFIG, files)
    send_over_many_segments(open_log(manager))
    manager.close()
    files.crash(tmp_path, random.Random(seed))
    manager = open_manager(tmp_path, CONFIG, files)
    assert [send(open_log(manager), sequence) for sequence in range(5)] == [True] * 5
    manager.close(clean=False)
