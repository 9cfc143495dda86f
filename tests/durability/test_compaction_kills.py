"""A few of the kills of `compaction_kills` on every run."""

from __future__ import annotations

from pathlib import Path

from tests.durability.compaction_kills import complaint, run


def test_a_broker_killed_while_it_compacts_loses_no_value(tmp_path: Path, seed: int) -> None:
    done = run(4, seed, tmp_path / "data")
    assert done["cleanings"] > 0


def test_a_traceback_in_the_log_is_reported_by_its_error() -> None:
    log = "well\nTraceback (most recent call last):\n  File x\n    y\nBrokenPipeError: z\nmore\n"
    assert complaint(log) == "BrokenPipeError: z"
    assert complaint("a log-0 cannot be compacted: b\n") == "a log-0 cannot be compacted: b"
    assert complaint("all is well\n") == ""
