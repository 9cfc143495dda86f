"""Fixtures for the tests of replication."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.log.directories.log_manager import LogManager


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    """The logs of one directory, which are closed at the end."""
    manager = LogManager([str(tmp_path)], LogConfig(), ManualClock())
    manager.load("cluster", 1)
    yield manager
    manager.close(clean=False)
