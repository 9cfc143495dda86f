"""Shared by all tests: one seed a run, which every run prints, and hypothesis bounded and
reproducible."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from random import SystemRandom
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

SEED_VARIABLE = "ODRADEK_TEST_SEED"
SEED = pytest.StashKey[int]()
TIMEOUTS_S = {
    "demo": 1800,
    "durability": 1800,
    "histories": 3600,
    "pipeline": 1800,
}
"""Time limit of each test of a folder that kills processes or starts Spark; pyproject.toml has
the limit of all others.
"""

settings.register_profile(
    "odradek",
    deadline=None,
    max_examples=60,
    print_blob=True,
    # What they say depends on the seed and on the machine, and not on whether the code is right.
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.large_base_example,
    ],
)
settings.load_profile("odradek")


class PlainImports(MetaPathFinder):
    """Import `odradek` without pytest's assertion rewriting, as outside of tests.

    pytest rewrites the whole package, because it contains a pytest plugin. The broker's thread and
    the test's thread import modules of it at the same time, and CPython 3.11 cannot build two
    syntax trees at the same time: SystemError("AST constructor recursion depth mismatch").
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "odradek":
            return None
        return PathFinder.find_spec(fullname, path, target)


sys.meta_path.insert(0, PlainImports())


def pytest_configure(config: pytest.Config) -> None:
    """A worker of xdist has its controller's seed, and a run one of its own unless it is given."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    chosen = os.environ.get(SEED_VARIABLE) or SystemRandom().randrange(1 << 32)
    config.stash[SEED] = int(given.get("odradek_seed", chosen))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0] if tests in item.path.parents else ""
        if folder in TIMEOUTS_S and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUTS_S[folder]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called by xdist on the controller before it starts a worker."""
    node.workerinput["odradek_seed"] = node.config.stash[SEED]


def pytest_report_header(config: pytest.Config) -> str:
    # Before the first test: a run that is killed has said it, too.
    return f"{SEED_VARIABLE}={config.stash[SEED]}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed, for whatever a test does at random; the end of the run lists the test."""
    chosen = request.config.stash[SEED]
    request.node.user_properties.append(("seed", chosen))
    return chosen


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Lists what took the seed, passed or not, with the line that repeats it."""
    seeded = {
        report.nodeid.partition("[")[0]
        for reports in terminalreporter.stats.values()
        for report in reports
        if ("seed", config.stash[SEED]) in map(tuple, getattr(report, "user_properties", ()))
    }
    if seeded:
        terminalreporter.section("seed of what is random")
        for nodeid in sorted(seeded):
            terminalreporter.write_line(f"{SEED_VARIABLE}={config.stash[SEED]} pytest '{nodeid}'")
