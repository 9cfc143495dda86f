"""The ids in ``meta.properties``, for directories of Kafka on ZooKeeper."""

from __future__ import annotations

from pathlib import Path

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.files import RealFiles
from odradek.ids import uuid_to_string
from odradek.log.directories.log_manager import LogManager
from odradek.log.state import checkpoints


def test_directory_of_kafka_on_zookeeper_gets_an_id_in_a_cluster(tmp_path: Path) -> None:
    """The proof of a clean stop by the boot id needs it."""
    path = tmp_path / "meta.properties"
    path.write_text("#\nbroker.id=1\nversion=0\ncluster.id=cluster\n")
    ids = []
    for _ in range(2):
        manager = LogManager([str(tmp_path)], LogConfig(), ManualClock())
        manager.load("cluster", 1, adds_directory_ids=True)
        ids += manager.directory_ids.values()
        manager.close()
    properties = checkpoints.read_properties(RealFiles(), str(path))
    assert properties == {
        "broker.id": "1",
        "version": "0",
        "cluster.id": "cluster",
        "directory.id": uuid_to_string(ids[0]),
    }
    assert ids[0] == ids[1]
