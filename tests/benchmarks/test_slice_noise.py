"""Steady conditions of the time slices: cheap new files, callbacks of constant work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.evidence.time_slices import control_table
from benchmarks.file_creation import (
    CREATION_MS_MAX,
    FILES,
    PAUSE_S,
    PAUSES_MAX,
    ExpensiveFiles,
    await_cheap_files,
    creation_ms,
)

from benchmarks import slice_control


def test_a_run_waits_until_new_files_are_cheap() -> None:
    costs, pauses = [2 * CREATION_MS_MAX, 1.1 * CREATION_MS_MAX, CREATION_MS_MAX], []
    lines: list[str] = []
    places: list[Path] = []

    def measure(directory: Path) -> float:
        places.append(directory)
        return costs[len(places) - 1]

    await_cheap_files(Path("work"), lines.append, measure=measure, pause=pauses.append)
    assert pauses == [PAUSE_S, PAUSE_S]
    assert len(set(places)) == 3
    assert lines[0] == "waiting for the file system: a new file takes 0.16 ms of CPU time"


def test_a_run_with_expensive_files_fails_after_the_last_pause() -> None:
    pauses: list[float] = []
    with pytest.raises(ExpensiveFiles, match=r"takes 1\.00 ms"):
        await_cheap_files(Path("work"), print, measure=lambda _: 1.0, pause=pauses.append)
    assert len(pauses) == PAUSES_MAX


def test_the_probe_makes_its_files_and_keeps_them(tmp_path: Path) -> None:
    assert creation_ms(tmp_path / "a" / "probe") > 0
    assert len(list((tmp_path / "a" / "probe").rglob("*"))) == FILES


def test_callbacks_of_constant_work_are_counted_over_all_processes() -> None:
    first: dict[str, Any] = {"callbacks": 3, "above": 1, "longest_ms": 6.5}
    first |= {"by_ms": {"1": 2, "6": 1}, "busy_above": 1, "longest_busy_ms": 6.6}
    first |= {"wall_above": 2, "longest_wall_ms": 20.0}
    second: dict[str, Any] = {"callbacks": 2, "above": 0, "longest_ms": 1.5}
    second |= {"by_ms": {"0": 1, "1": 1}, "busy_above": 1, "longest_busy_ms": 5.5}
    second |= {"wall_above": 1, "longest_wall_ms": 9.0}
    both = slice_control.summed([first, second])
    assert both == {
        "callbacks": 5, "above": 1, "longest_ms": 6.5, "by_ms": {"0": 1, "1": 3, "6": 1},
        "busy_above": 2, "longest_busy_ms": 6.6, "wall_above": 3, "longest_wall_ms": 20.0,
    }  # fmt: skip
    found = control_table([{"before": both}])
    assert found[2] == "| before | 5 | 1 | 6.5 |"
    assert found[-1] == "| before | 3 | 20 | 2 | 6.6 |"
    old = {name: both[name] for name in ("callbacks", "above", "longest_ms", "by_ms")}
    assert control_table([{"before": old}]) == found[:3]
    assert control_table([{}]) == ["The record has no such callbacks."]


def test_a_control_process_counts_each_of_its_callbacks() -> None:
    found = slice_control.measured(1, 0.2)
    assert found["callbacks"] == sum(found["by_ms"].values()) > 0
    assert found["longest_ms"] > 0
