"""The cleaner's checkpoint of a log that is truncated below the compacted offset."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.files import RealFiles
from odradek.log.cleaner import segment_swap
from odradek.log.directories.log_manager import LogManager
from odradek.log.state import checkpoints
from odradek.log.truncation import LogTruncations, truncate_to
from odradek.log.unified_log import UnifiedLog
from tests.helpers.crashing_files import Crashed, CrashingFiles
from tests.log.builders import NOW_MS, TP, append, open_log, open_manager, values_of
from tests.log.cleaner.running import append_pairs, cleaning_of, compact, pairs_of, to_clean

CONFIG = LogConfig(
    cleanup_compact=True,
    cleanup_delete=False,
    delete_retention_ms=0,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


def compacted(root: Path, files: CrashingFiles | None = None) -> tuple[LogManager, UnifiedLog]:
    """Return a log with one record in each batch, and two segments that are compacted up to 10."""
    manager = open_manager(root, CONFIG, files)
    log = open_log(manager)
    for at in range(10):
        append_pairs(log, [(b"a%d" % at, b"x")])
        if at == 4:
            compact(manager, log)
    compact(manager, log)
    assert manager.cleaned_offset(log) == 10
    return manager, log


def written_offset(root: Path) -> int:
    """Return the entry of the log in the cleaner's checkpoint on the disk."""
    path = str(root / checkpoints.CLEANER_OFFSET_FILE)
    return checkpoints.read_offsets(RealFiles(), path)[TP]


def test_tombstone_after_a_truncation_below_the_cleaned_offset_removes_the_value(
    tmp_path: Path,
) -> None:
    """The new records below the old cleaned offset are dirty."""
    manager, log = compacted(tmp_path)
    truncate_to(log, 2)
    append_pairs(log, [(b"k", b"value")])
    log.roll(NOW_MS)
    append_pairs(log, [(b"k", None)])
    log.roll(NOW_MS)
    for at in range(10):
        append_pairs(log, [(b"b%d" % at, b"y")])
    for at in range(4):
        append_pairs(log, [(b"c%d" % at, b"y")])
        compact(manager, log, now_ms=NOW_MS + 1000 * (at + 1))
    manager.close()
    assert not [value for _, key, value in pairs_of_reopened(tmp_path) if key == b"k"]


def pairs_of_reopened(root: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    manager = open_manager(root, CONFIG)
    pairs = pairs_of(open_log(manager))
    manager.close()
    return pairs


@pytest.mark.parametrize(("offset", "lowered"), [(2, 0), (7, 0), (10, 10)])
def test_truncation_lowers_the_cleaned_offset_to_the_segment_that_it_cuts(
    tmp_path: Path, offset: int, lowered: int
) -> None:
    manager, log = compacted(tmp_path)
    append_pairs(log, [(b"b", b"y")])
    truncate_to(log, offset)
    assert manager.cleaned_offset(log) == written_offset(tmp_path) == lowered
    manager.close()


def test_restart_below_the_cleaned_offset_lowers_it(tmp_path: Path) -> None:
    manager, log = compacted(tmp_path)
    truncations = LogTruncations()
    truncations.truncate_fully_and_start_at(log, 6, 4)
    assert truncations.execute() == {}
    assert manager.cleaned_offset(log) == written_offset(tmp_path) == 4
    manager.close()


@pytest.mark.parametrize("seed", [None, *range(4)])
def test_crash_in_a_truncation_never_leaves_a_cut_log_below_the_cleaned_offset(
    tmp_path: Path, seed: int | None
) -> None:
    """The cleaned offset is lowered on the disk before the first file is cut."""
    crashes = 0
    for at in range(100):
        root, files = tmp_path / str(at), CrashingFiles()
        manager, log = compacted(root, files)
        truncations = LogTruncations()
        truncations.truncate_to(log, 7)
        files.crash_at = at
        try:
            truncations.execute()
            break
        except Crashed:
            crashes += 1
        finally:
            files.crash_at = None
            manager.close(clean=False)
        if seed is not None:
            files.crash(root, random.Random(seed))
        manager = open_manager(root, CONFIG, files)
        log = open_log(manager)
        cleaned = manager.cleaned_offset(log)
        assert cleaned is not None
        assert log.log_end_offset == 10 or cleaned <= log.log_end_offset, at
        assert log.log_end_offset >= 7, "a batch that stays was lost"
        manager.close(clean=False)
    assert crashes > 10


def test_cleaned_offset_of_a_log_that_was_truncated_since_the_selection_is_not_written(
    tmp_path: Path,
) -> None:
    manager, log = compacted(tmp_path)
    append_pairs(log, [(b"a1", b"y")])
    log.roll(NOW_MS)
    chosen = to_clean(manager, log)
    assert chosen is not None
    assert chosen.is_current
    truncate_to(log, 2)
    assert not chosen.is_current
    manager.write_cleaned_offset(log, 11, chosen.truncations)
    assert manager.cleaned_offset(log) == written_offset(tmp_path) == 0
    manager.close()


def test_segment_that_a_truncation_has_made_active_is_not_swapped(tmp_path: Path) -> None:
    """The truncation ends in the gap that compaction has left after the segment."""
    config = LogConfig(cleanup_compact=True)
    log = open_log(manager := open_manager(tmp_path, config))
    for number in range(4):
        append(log, [b"%d" % number])
        log.roll(NOW_MS)
    manager.close()
    for path in (tmp_path / str(TP)).glob(f"{1:020}.*"):
        path.unlink()
    log = open_log(manager := open_manager(tmp_path, config))
    assert log.segments.bases == [0, 2, 3, 4]
    old = [log.segments[0]]
    cleaned = Path(old[0].file.path)
    shutil.copy(cleaned, f"{cleaned}{segment_swap.CLEANED_SUFFIX}")
    assert segment_swap.begin_swap(log, old)
    segment_swap.prepare_swap(log, old)
    truncate_to(log, 1)
    size = cleaned.stat().st_size
    assert not segment_swap.finish_swap(log, old, size, NOW_MS, has_aborted=False)
    append(log, [b"new"])
    manager.close()
    log = open_log(manager := open_manager(tmp_path, config))
    assert values_of(log) == [b"0", b"new"]
    manager.close()


@pytest.mark.parametrize("seed", [None, *range(4)])
def test_crash_after_a_truncation_in_the_middle_of_a_swap_keeps_the_records_that_follow(
    tmp_path: Path, seed: int | None
) -> None:
    """The swap is prepared. Its segment has removed records at the offsets of the new ones."""
    files = CrashingFiles()
    log = open_log(manager := open_manager(tmp_path, CONFIG, files))
    for at in range(6):
        append_pairs(log, [(b"a%d" % (at % 4), b"old")])
        log.roll(NOW_MS)
    chosen = to_clean(manager, log)
    assert chosen is not None
    group = next(iter(cleaning_of(chosen).groups()))
    old = [segment for segment in log.segments if segment.base_offset in group.bases]
    assert segment_swap.begin_swap(log, old)
    segment_swap.prepare_swap(log, old)
    truncate_to(log, 2)
    append_pairs(log, [(b"new2", b"new")])
    log.roll(NOW_MS)
    append_pairs(log, [(b"new3", b"new")])
    log.flush()
    expected = pairs_of(log)
    assert [offset for offset, _, _ in expected] == [0, 1, 2, 3]
    manager.close(clean=False)
    if seed is not None:
        files.crash(tmp_path, random.Random(seed))
    log = open_log(manager := open_manager(tmp_path, CONFIG, files))
    assert pairs_of(log) == expected
    manager.close()


def test_crash_while_a_swap_is_undone_leaves_the_old_segments(tmp_path: Path) -> None:
    """The index of the new segment does not replace the index of the old one."""
    expected = None
    for at in range(20):
        root, files = tmp_path / str(at), CrashingFiles()
        config = replace(CONFIG, index_interval_bytes=1, segment_bytes=300)
        log = open_log(manager := open_manager(root, config, files))
        for number in range(6):
            for key in (b"in all", b"one of %d" % number, b"two of %d" % number):
                append_pairs(log, [(key, b"%d" % number * (len(key) * 7 % 50))])
            log.roll(NOW_MS)
        chosen = to_clean(manager, log)
        assert chosen is not None
        group = next(iter(cleaning_of(chosen).groups()))
        old = [segment for segment in log.segments if segment.base_offset in group.bases]
        expected = expected or [values_of(log, each)[0] for each in range(18)]
        assert segment_swap.begin_swap(log, old)
        segment_swap.prepare_swap(log, old)
        files.crash_at = at
        crashed = False
        try:
            segment_swap.undo_swap(log, old)
        except Crashed:
            crashed = True
        files.crash_at = None
        manager.close(clean=False)
        log = open_log(manager := open_manager(root, config, files))
        if at:
            assert [values_of(log, each)[0] for each in range(18)] == expected, at
        manager.close()
        if not crashed:
            assert at > 3
            break
