"""`Cluster(N, processes=True)` leaves nothing behind, however its test ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.broker.page_cache_mark import note_name
from odradek.environment.files import BOOT_NOTES
from odradek.metadata.store.zookeeper_client import ZooKeeperAddress, blocking_client
from testkit.peer.artifacts import ROOT
from testkit.peer.server import python_path
from testkit.zookeeper import ZooKeeperProcess

LIMIT_S = 120.0
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from odradek.testing import Cluster

def note(cluster):
    found = [(cluster.pid(each), str(cluster._log_dir(each))) for each in cluster.broker_ids]
    Path("started.json").write_text(json.dumps([*found, (os.getpid(), cluster.zookeeper)]))

def test_it():
    with Cluster(2, processes=True, zookeeper=os.environ["ZOOKEEPER"]) as cluster:
        note(cluster)
        {end}

if __name__ == "__main__":
    cluster = Cluster(2, processes=True, zookeeper=os.environ["ZOOKEEPER"]).start()
    note(cluster)
"""
INTERRUPTED = (
    "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it\n"
    "        os.kill(os.getpid(), signal.SIGINT)\n"
    "        time.sleep(60)"
)
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_program.py")


@pytest.mark.parametrize(
    ("end", "arguments", "code"),
    [
        ("pass", PYTEST, 0),
        ("assert not cluster.broker_ids", PYTEST, 1),
        (INTERRUPTED, PYTEST, 2),
        ("pass", ("test_program.py",), 0),  # without `close`
    ],
)
def test_nothing_is_left_behind(
    end: str, arguments: tuple[str, ...], code: int, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    (tmp_path / "test_program.py").write_text(PROGRAM.format(end=end), encoding="utf-8")
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": python_path(ROOT),
            "TMPDIR": str(tmp_path / "tmp"),
            "ZOOKEEPER": zookeeper.address,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == code, done.stdout + done.stderr
    *brokers, (_, connect) = json.loads((tmp_path / "started.json").read_text(encoding="utf-8"))
    assert len(brokers) == 2
    for pid, log_dir in brokers:
        assert not Path(f"/proc/{pid}").exists()
        assert not Path(BOOT_NOTES, note_name([log_dir])).exists()
    assert list((tmp_path / "tmp").glob("odradek*")) == []
    _, _, chroot = connect.partition("/")
    with blocking_client(ZooKeeperAddress(zookeeper.address), LIMIT_S) as client:
        assert chroot and client.exists(f"/{chroot}") is None
