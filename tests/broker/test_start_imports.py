"""Modules that a single broker has imported after its start. Each import delays the start.

Parts that only a broker of a cluster needs are imported where a cluster composes them, and parts
that only some requests need with the first of these requests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

START = """
import asyncio, json, sys
from odradek.testing import Broker
with Broker():
    print(json.dumps([name for name in sys.modules if name.startswith("odradek.")]))
"""
SERVE = """
import json, sys
from odradek.cli.serve import configure
configure(["--data", "data"])
import odradek.broker.broker, odradek.broker.main, odradek.environment.files
print(json.dumps(sorted(sys.modules)))
"""
FIRST_UNPACKED_BATCH = """
import json, sys
import odradek.broker.broker
from odradek.broker.requests.first_use import OF_A_CLUSTER, import_modules
from odradek.records.batch import Compression
from odradek.records.compression import compress, decompress
import_modules(*OF_A_CLUSTER)
imported = set(sys.modules)
for codec in Compression:
    assert decompress(codec, compress(codec, b"records")) == b"records"
print(json.dumps(sorted(set(sys.modules) - imported)))
"""
LARGE_LIBRARIES = {"bz2", "cramjam", "lzma", "shutil"}
"""Libraries that `serve` does not need before the first batch that a broker unpacks. Together they
take 2 MiB and 6 ms.
"""
OF_A_CLUSTER = (
    "odradek.broker.broker_lifecycle",
    "odradek.broker.cluster_identity",
    "odradek.broker.cluster_member",
    "odradek.broker.leadership_lease",
    "odradek.broker.replication_wiring",
    "odradek.client",
    "odradek.controller.cluster_controller",
    "odradek.controller.feed_server",
    "odradek.log.follower_read",
    "odradek.metadata.controller_channel",
    "odradek.metadata.feed_client",
    "odradek.metadata.store.zookeeper",
    "odradek.replication.fetcher_manager",
    "odradek.replication.follower_fetch",
    "odradek.replication.follower_news",
    "odradek.replication.isr_proposals",
    "odradek.replication.leader_replication",
    "odradek.replication.replica_fetcher",
    "odradek.replication.replication_parts",
    "odradek.replication.replication_state",
    "odradek.replication.uncommitted_sizes",
    "odradek.testing.cluster",
)
OF_A_REQUEST = (
    "odradek.controller.placement",
    "odradek.controller.plans",
    "odradek.controller.replica_placer",
)
MODULES_MAX = 171
"""Number of the product's modules at the start. A change that raises it gives the reason here. A
change that lowers it lowers the pinned number, too. The last ones that raised it delete
the records of many partitions in time slices (`odradek.replication.record_deletions`), report
each reason once for a broker (`odradek.broker.requests.reported_reasons`), and refuse log
directories whose metadata is in a ZooKeeper (`odradek.broker.single_start`,
`odradek.config.consents`). `odradek.replication.partition_flushes` left the module of partitions.
"""


def test_single_broker_imports_no_parts_of_a_cluster_or_of_requests(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    imported: list[str] = json.loads(done.stdout)
    assert not [name for name in imported if name.startswith(OF_A_CLUSTER + OF_A_REQUEST)]
    assert "odradek.replication.partition" in imported
    assert len(imported) <= MODULES_MAX, sorted(imported)


def test_serve_imports_no_codecs_before_it_unpacks_a_batch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    imported: list[str] = json.loads(done.stdout)
    assert not LARGE_LIBRARIES.intersection(imported)
    assert "odradek.records.compression" in imported


def test_first_batch_that_a_broker_of_a_cluster_unpacks_imports_nothing_on_the_event_loop() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_UNPACKED_BATCH], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []


def test_every_part_that_is_not_imported_exists() -> None:
    """A renamed module would make the first test pass."""
    source = Path(__file__).parents[2] / "src"
    for name in OF_A_CLUSTER + OF_A_REQUEST:
        path = source / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), name
