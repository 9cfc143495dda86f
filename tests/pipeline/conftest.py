"""One local Spark session for each test process, and a broker.

The broker is Odradek's, or the broker in ODRADEK_TEST_BOOTSTRAP_SERVERS. The tests also pass with
Apache Kafka.
"""

from __future__ import annotations

import gc
import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.session import SHORT_LIFE, SessionOptions, open_session
from odradek.pipeline.tables import TableDir, TableFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
# py4j does not close its sockets, so the garbage collector does.
PY4J_WARNINGS = ("ignore:unclosed <socket:ResourceWarning",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests of this folder, so that they share a JVM, and ignore py4j's warnings."""
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
        iceberg=True,
    )
    session = open_session(options)
    yield session
    with sockets_of_py4j_end_here():
        session.stop()


@contextmanager
def sockets_of_py4j_end_here() -> Iterator[None]:
    """Collect the sockets that Spark's callback threads leave, so that no later test fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture(autouse=True, scope="module")
def no_socket_outlives_its_module() -> Iterator[None]:
    """Collect sockets after each module, because later tests treat warnings as errors."""
    yield
    with sockets_of_py4j_end_here():
        pass


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
