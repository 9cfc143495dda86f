"""One local Spark session for each test process, and a broker: Odradek's, or any that is named by
ODRADEK_TEST_BOOTSTRAP_SERVERS (these tests hold on Apache Kafka just as well)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.session import SHORT_LIFE, SessionOptions, open_session
from odradek.pipeline.tables import TableDir, TableFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
# py4j leaves its sockets to the garbage collector.
PY4J_WARNINGS = ("ignore:unclosed <socket:ResourceWarning",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here share a JVM where xdist groups tests, and bear with py4j."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))
            for warning in PY4J_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    options = SessionOptions(
        "odradek tests",
        driver_memory="768m",
        shuffle_partitions=2,
        java_options=SHORT_LIFE,
        jvm_log=log,
    )
    session = open_session(options)
    yield session
    session.stop()


@pytest.fixture
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    named = os.environ.get("ODRADEK_TEST_BOOTSTRAP_SERVERS")
    if named:
        return named
    servers: str = request.getfixturevalue("kafka_broker").bootstrap_servers
    return servers


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"pipeline-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def table_dir(tmp_path: Path) -> Callable[[TableFormat], TableDir]:
    return lambda table_format: TableDir(str(tmp_path / "lake"), table_format)
