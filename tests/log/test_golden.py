"""Files of this project compared with files of Apache Kafka, byte for byte (golden/README.md)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.ids import TopicPartition
from odradek.log.directories.log_manager import LogManager
from odradek.log.state.producer_state_manager import ProducerStateManager
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import parse_header
from odradek.records.record import iter_batches
from tests.log.builders import open_manager, read_all

GOLDEN = Path(__file__).parent / "golden" / "golden-0"
CONFIG = LogConfig(index_interval_bytes=300)
GOLDEN_TP = TopicPartition("golden", 0)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def manager(tmp_path: Path):
    """Return a manager of a copy of Kafka's directory after an unclean stop: all data is
    recovered.
    """
    shutil.copytree(GOLDEN, tmp_path / "golden-0")
    manager = open_manager(tmp_path, CONFIG)
    yield manager
    manager.close()


def golden_log(manager: LogManager) -> UnifiedLog:
    log = manager.get(GOLDEN_TP)
    assert log is not None
    return log


def expected_records() -> list[tuple[bytes, bytes, int]]:
    return [
        (
            b"key %d" % j,
            b"%s %d %d " % (codec.encode(), i, j) * 6,
            1_700_000_000_000 + i * 1_000 + j * 37 % 50,
        )
        for codec in CODECS
        for i in range(8)
        for j in range(3)
    ]


def test_kafkas_records_are_read(manager: LogManager) -> None:
    records = read_all(golden_log(manager))
    assert [(r.key, r.value, r.timestamp) for r in records] == expected_records()
    assert [record.offset for record in records] == list(range(120))
    assert all(record.headers == (("h", b"1"),) for record in records)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_built_by_recovery_are_kafkas(
    tmp_path: Path, manager: LogManager, suffix: str
) -> None:
    manager.close()
    name = f"{0:020d}{suffix}"
    assert (tmp_path / "golden-0" / name).read_bytes() == (GOLDEN / name).read_bytes()


def test_the_same_batches_appended_make_the_same_files(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = manager.create(GOLDEN_TP, golden_topic_id(tmp_path / "other"))
    for batch in iter_batches((GOLDEN / f"{0:020d}.log").read_bytes()):
        sent = bytearray(batch)
        sent[:8] = bytes(8)
        header = parse_header(batch)
        log.append_as_leader(
            memoryview(sent), header.partition_leader_epoch, now_ms=header.max_timestamp
        )
    manager.close()
    for path in GOLDEN.iterdir():
        ours = (tmp_path / "golden-0" / path.name).read_bytes()
        if path.suffix == ".snapshot":
            assert snapshot_entries(ours) == snapshot_entries(path.read_bytes())
        else:
            assert ours == path.read_bytes(), path.name


def golden_topic_id(root: Path):
    """Return the topic id of the golden directory, read from a copy of it."""
    shutil.copytree(GOLDEN, root / "golden-0")
    manager = open_manager(root, CONFIG)
    topic_id = golden_log(manager).topic_id
    manager.close()
    return topic_id


def snapshot_entries(data: bytes) -> set[bytes]:
    """Return the entries of a snapshot without their order, which depends on Kafka's hash map."""
    ProducerStateManager().load_snapshot(data)
    return {data[at : at + 46] for at in range(10, len(data), 46)}


def test_windows_that_kafka_does_not_store_are_rebuilt(tmp_path: Path, manager: LogManager) -> None:
    manager.close()
    (tmp_path / "golden-0" / f"{120:020d}.odradek-window").unlink()
    manager = open_manager(tmp_path, CONFIG)
    producers = golden_log(manager).producers.producers
    assert [len(entry.batches) for entry in producers.values()] == [5] * len(CODECS)
    manager.close()
