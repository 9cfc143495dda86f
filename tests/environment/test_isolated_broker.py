"""A broker takes everything from its environment: with fakes it runs without the system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.environment.isolated_broker import BATCHES, KEYS

ROOT = Path(__file__).parents[2]


def run(module: str, hash_seed: str) -> str:
    """Return the output of the program in a module of this folder."""
    result = subprocess.run(
        [sys.executable, "-c", f"from tests.environment.{module} import main; main()"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}", "PYTHONHASHSEED": hash_seed},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def observed() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("isolated_broker", "1"))
    return found


def values(number: int, first_offset: int) -> list[list[Any]]:
    return [[first_offset + key, f"value {number} of key {key}"] for key in range(KEYS)]


def test_a_broker_on_fakes_uses_no_socket_file_thread_or_process(observed: dict[str, Any]) -> None:
    assert observed["reached"] == []
    assert observed["threads"] == ["MainThread"]


def test_the_watched_process_notices_each_way_to_the_system(observed: dict[str, Any]) -> None:
    ways = {"os.urandom", "os.listdir", "socket.__new__", "subprocess.Popen", "Thread.start"}
    assert ways <= set(observed["noticed"])


def test_a_broker_on_fakes_serves_compacts_and_starts_again(observed: dict[str, Any]) -> None:
    assert observed["first"] == values(0, 0)
    newest = observed["compacted"][-KEYS:]
    assert newest == values(BATCHES - 1, (BATCHES - 1) * KEYS)
    assert len(observed["compacted"]) < BATCHES * KEYS / 2
    assert observed["started again"] == observed["compacted"]


def test_a_broker_on_fakes_does_not_depend_on_the_order_of_hashes(observed: dict[str, Any]) -> None:
    assert json.loads(run("isolated_broker", "2")) == observed


def test_what_coordinators_write_does_not_depend_on_the_order_of_hashes() -> None:
    first, *others = (run("isolated_coordinators", seed) for seed in ("1", "2", "3"))
    assert all(each == first for each in others)
    found = json.loads(first)
    assert found["reached"] == []
    for topic, bytes_min in (("__consumer_offsets-0", 1_000), ("__transaction_state-0", 4_000)):
        assert found["sizes"][f"/data/{topic}/{0:020d}.log"] > bytes_min
