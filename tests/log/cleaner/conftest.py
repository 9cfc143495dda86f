"""A log to be cleaned, with the `COMPACT` of its module as the config of all logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from tests.log.builders import open_log, open_manager


@pytest.fixture
def manager(request: pytest.FixtureRequest, tmp_path: Path):
    manager = open_manager(tmp_path, request.module.COMPACT)
    yield manager
    manager.close()


@pytest.fixture
def log(manager: LogManager) -> UnifiedLog:
    return open_log(manager)
