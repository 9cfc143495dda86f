"""A single broker does not use log directories whose metadata is in the ZooKeeper of Kafka."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from odradek.broker.broker import STORE_FILE, BrokerServer
from odradek.config.consents import IMPORT_WITHOUT_METADATA
from odradek.errors import ErrorCode, KafkaError
from odradek.log.directories.directory_names import METADATA_DIRECTORY
from tests.broker.cluster_starts import contents
from tests.helpers.kafka_directory import config_for, served
from tests.helpers.kafka_zookeeper import TIME_MS, unpack_directories

BROKER = {"node.id": "3"}
CONSENT = {IMPORT_WITHOUT_METADATA: "true"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of a broker of a stopped Kafka 3.9 on ZooKeeper."""
    unpack_directories(tmp_path)
    return tmp_path / "3"


def start(directory: Path, **more: str) -> None:
    with served(directory, config_for(directory, **{**BROKER, **more}), TIME_MS):
        pass


def test_the_directory_of_a_kafka_on_zookeeper_is_refused_without_a_change(directory: Path) -> None:
    before = contents(directory)
    with pytest.raises(KafkaError) as error:
        asyncio.run(BrokerServer(config_for(directory, **BROKER)).start())
    assert error.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    for part in ("broker 3", "--zookeeper", "docs/from-kafka.md", IMPORT_WITHOUT_METADATA):
        assert part in error.value.message
    assert "\n" not in error.value.message
    assert contents(directory) == before


def test_a_config_permits_the_import_and_later_starts_do_not_need_it(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        start(directory, **CONSENT)
    assert (directory / STORE_FILE).exists()
    assert "their configs, with retention, are the defaults" in caplog.text
    assert "unknown configs" not in caplog.text
    start(directory)


@pytest.mark.parametrize("value", ["yes", "1"])
def test_the_config_is_true_or_false(directory: Path, value: str) -> None:
    with pytest.raises(KafkaError, match=IMPORT_WITHOUT_METADATA) as error:
        config_for(directory, **{IMPORT_WITHOUT_METADATA: value})
    assert error.value.code is ErrorCode.INVALID_CONFIG


def test_a_kafka_on_zookeeper_without_partitions_has_nothing_to_lose(tmp_path: Path) -> None:
    text = "#\nversion=0\nbroker.id=3\ncluster.id=5L6g3nShT-eMCtK--X86sw\n"
    (tmp_path / "meta.properties").write_text(text, "utf-8")
    start(tmp_path)


@pytest.mark.parametrize("other", [False, True])
def test_directories_with_the_metadata_of_kafka_are_not_refused(
    directory: Path, tmp_path: Path, other: bool
) -> None:
    place = tmp_path / "metadata" if other else directory
    (place / METADATA_DIRECTORY).mkdir(parents=True)
    start(directory, **({"metadata.log.dir": str(place)} if other else {}))
