"""The log directory of a new log is the one with the fewest logs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.ids import TopicPartition
from odradek.log.directories.log_manager import LogManager
from odradek.log.log_dir import LogDir
from tests.log.builders import NOW_MS, TOPIC_ID, append


def opened(root: Path) -> LogManager:
    manager = LogManager([str(root / name) for name in "abc"], LogConfig(), ManualClock(NOW_MS))
    manager.load("cluster", 1)
    return manager


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["create", "delete", "set aside", "restart"]), max_size=15))
def test_new_log_goes_to_a_directory_with_the_fewest_logs(steps: list[str]) -> None:
    with TemporaryDirectory() as directory:
        manager = opened(Path(directory))
        keys: list[TopicPartition] = []
        for number, step in enumerate(steps):
            key = TopicPartition("t", number)
            if step == "create":
                counts: Counter[LogDir] = Counter(log.log_dir for log in manager.all_logs())
                log = manager.create(key, TOPIC_ID)
                assert counts[log.log_dir] == min(counts[each] for each in manager.log_dirs)
                append(log, [b"x"])
                keys.append(key)
            elif step == "restart":
                manager.close()
                manager = opened(Path(directory))
            elif keys and step == "delete":
                manager.delete(keys.pop(number % len(keys)))
            elif keys:
                manager.set_aside(keys.pop(number % len(keys)))
        manager.close()


def test_creation_of_a_log_does_not_visit_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 partitions of a topic are created in one time slice."""
    manager = opened(tmp_path)

    class Unlisted(dict[TopicPartition, object]):
        def values(self) -> None:  # type: ignore[override]
            pytest.fail("the logs were listed")

        __iter__ = items = values  # type: ignore[assignment]

    with monkeypatch.context() as patch:
        patch.setattr(manager, "_logs", Unlisted())
        for number in range(6):
            manager.create(TopicPartition("t", number), TOPIC_ID)
        assert len(manager._logs) == 6
    manager.close()
