"""The memory of all connections together is limited, as counted by the broker and as measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from odradek.net.limits import SCRATCH_BYTES
from odradek.replication.purgatory import OPERATIONS_WAITING_MAX
from tests.broker.connection_memory import CONNECTIONS

ROOT = Path(__file__).parents[2]
CONNECTION_BYTES = 20_000
"""Upper limit for a connection itself and its mock transport (measured: some 12,000)."""
LONG_POLL_BYTES = 8_000
"""Upper limit for a long poll (measured: some 5,000)."""


def test_5000_connections_with_maximal_memory_stay_within_the_limits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.broker.connection_memory", str(tmp_path)]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    figures = json.loads(done.stdout)
    used, limits = figures["used_max"], figures["limits"]
    for name, limit in limits.items():
        assert used[name] <= limit, f"{name}: {figures}"
    assert sum(used.values()) <= sum(limits.values())
    assert set(figures["used_after_close"].values()) == {0}, figures
    # The limits must be reached, otherwise the test would show nothing.
    assert used["shapes"] > 0.9 * limits["shapes"]
    assert used["ahead"] > 0.9 * limits["ahead"]
    assert figures["closed"]
    long_polls = figures["long_polls_max"]
    assert 0 < long_polls <= OPERATIONS_WAITING_MAX
    # Without a limit on the bytes received ahead, the memory would exceed this.
    bound = (
        limits["shapes"]
        + limits["ahead"]
        + CONNECTIONS * CONNECTION_BYTES
        + long_polls * LONG_POLL_BYTES
    )
    assert figures["rss_growth"] <= bound, figures
    assert bound < limits["shapes"] + CONNECTIONS * (CONNECTION_BYTES + SCRATCH_BYTES)
