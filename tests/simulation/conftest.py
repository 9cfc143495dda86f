from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.garbage import collect_quietly


@pytest.fixture(autouse=True)
def _collects_killed_brokers_of_the_test() -> Iterator[None]:
    yield
    collect_quietly()


@pytest.fixture(autouse=True, scope="module")
def _collects_killed_brokers_of_the_module() -> Iterator[None]:
    """The report of a failed test keeps objects until the next test."""
    yield
    collect_quietly()


def pytest_sessionfinish() -> None:
    collect_quietly()
