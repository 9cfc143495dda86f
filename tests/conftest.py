"""Configuration of all tests: the seed of a run, limits of hypothesis, and timeouts.

Every run prints its seed, so that it can be repeated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from random import SystemRandom
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from odradek.environment import files

SEED_VARIABLE = "ODRADEK_TEST_SEED"
SEED = pytest.StashKey[int]()
TIMEOUTS_S = {
    "demo": 1800,
    "durability": 1800,
    "histories": 3600,
    "pipeline": 1800,
}
"""Time limit in seconds of each test in these folders, which kill processes or start Spark.
pyproject.toml has the limit of all other tests.
"""

settings.register_profile(
    "odradek",
    deadline=None,
    max_examples=60,
    print_blob=True,
    # These checks fail depending on the seed and the machine, not on the correctness of the code.
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
    """Set the seed of the run.

    A worker of xdist has its controller's seed. Otherwise the seed comes from ODRADEK_TEST_SEED or
    is chosen at random.
    """
    worker_input: dict[str, Any] = getattr(config, "workerinput", {})
    chosen = os.environ.get(SEED_VARIABLE) or SystemRandom().randrange(1 << 32)
    config.stash[SEED] = int(worker_input.get("odradek_seed", chosen))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0] if tests in item.path.parents else ""
        if folder in TIMEOUTS_S and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUTS_S[folder]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the seed to a worker. xdist calls this on the controller before it starts the worker."""
    node.workerinput["odradek_seed"] = node.config.stash[SEED]


def pytest_report_header(config: pytest.Config) -> str:
    # The header is printed before the first test, so a run that is killed has printed it, too.
    return f"{SEED_VARIABLE}={config.stash[SEED]}"


@pytest.fixture(scope="session", autouse=True)
def _boot_notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leave no boot note in the memory of the machine. Processes of their own may leave one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BOOT_NOTES", str(tmp_path_factory.mktemp("boot-notes")))
        yield


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed, for the random choices of a test. The summary of the run lists the test."""
    chosen = request.config.stash[SEED]
    request.node.user_properties.append(("seed", chosen))
    return chosen


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List the tests that used the seed, with the command that repeats each of them."""
    seeded = {
        report.nodeid.partition("[")[0]
        for reports in terminalreporter.stats.values()
        for report in reports
        if ("seed", config.stash[SEED]) in map(tuple, getattr(report, "user_properties", ()))
    }
    if seeded:
        terminalreporter.section("seed of the random tests")
        for nodeid in sorted(seeded):
            terminalreporter.write_line(f"{SEED_VARIABLE}={config.stash[SEED]} pytest '{nodeid}'")
