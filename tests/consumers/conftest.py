"""A real ZooKeeper for the tests of this package, one for each process that runs tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.zookeeper import ZooKeeperProcess, start_zookeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with start_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
