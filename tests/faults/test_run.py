"""Short runs on both kinds of network. Long runs are `make evidence-process-faults`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.faults.namespaces import Namespaces, unshare
from conformance.faults.network import Proxies

ROOT = Path(__file__).parents[2]
LIMIT_S = 280.0
COMMAND = [sys.executable, "-m", "conformance.faults"]


@pytest.mark.parametrize(
    ("seed", "network", "faults"),
    [
        (105, None, {"cut-from-zookeeper": 1, "kill-prepared": 1}),
        (13, "proxies", {"one-way": 1}),
    ],
)
def test_the_history_of_a_short_run_is_clean(
    seed: int, network: str | None, faults: dict[str, int]
) -> None:
    options = ["--network", network] if network else []
    done = subprocess.run(
        [*COMMAND, "--seed", str(seed), "--faults", str(len(faults)), "--json", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout.splitlines()[-1])
    assert values["anomalies"] == {}, done.stdout
    assert not values["broken"]
    assert values["complete"]
    assert values["faults"] == faults
    assert values["acknowledged"]["producer"]
    assert values["acknowledged"]["plain"]
    expected = Proxies if network or unshare() is None else Namespaces
    assert values["network"] == expected.kind
