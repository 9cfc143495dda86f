"""Short runs on both kinds of network. Long runs are `make evidence-process-faults`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from conformance.faults.cluster import BROKERS
from conformance.faults.mutants import program
from conformance.faults.namespaces import Namespaces, unshare
from conformance.faults.network import Proxies
from conformance.faults.run import available_crew, running, sessions
from conformance.faults.sessions import Cause
from conformance.histories.analysis import analyse
from conformance.histories.history import FAIL, FINAL_PROCESS, OK, parse

ROOT = Path(__file__).parents[2]
LIMIT_S = 280.0
COMMAND = [sys.executable, "-m", "conformance.faults"]
IDS = range(1, BROKERS + 1)
Events = list[dict[str, Any]]


def run(seed: int, *options: str) -> dict[str, Any]:
    """Return the figures of a run."""
    done = subprocess.run(
        [*COMMAND, "--seed", str(seed), "--json", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values


@pytest.mark.parametrize(
    ("seed", "network", "faults"),
    [
        (8867, None, {"cut-from-zookeeper": 1, "kill-prepared": 1}),
        (532, "proxies", {"one-way": 1}),
    ],
)
def test_the_history_of_a_short_run_is_clean_and_without_a_record_it_is_not(
    seed: int, network: str | None, faults: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    options = ["--network", network] if network else []
    values = run(seed, "--faults", str(len(faults)), "--history", str(path), *options)
    assert values["anomalies"] == {}, values["examples"]
    assert not values["broken"]
    assert values["complete"]
    assert values["faults"] == faults
    assert values["acknowledged"]["producer"]
    assert values["acknowledged"]["plain"]
    assert values["clients"] == ",".join(f"{k}={n}" for k, n in available_crew().items())
    expected = Proxies if network or unshare() is None else Namespaces
    assert values["network"] == expected.kind
    events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for change, kinds in CHANGES.items():
        changed = deepcopy(events)
        change(changed)
        found = analyse(parse(map(json.dumps, changed))).kinds
        assert found & kinds, f"{change.__name__}: found only {found}"


def test_a_run_finds_brokers_that_acknowledge_before_the_followers_have_the_records() -> None:
    values = run(215, "--mutant", "acks-early", "--play", "kill-cut-leader")
    assert values["faults"] == {"kill-cut-leader": 1}
    assert values["anomalies"].keys() & {"lost-write", "unseen"}, values


def test_sessions_that_expire_without_a_cause_are_reported(tmp_path: Path) -> None:
    with running(tmp_path, program("silent-session")) as cluster:
        log = cluster.zookeeper.child.log_file
        cluster.until(lambda: "Expiring session" in log.read_text("utf-8"), "an expired session")
        cluster.until(lambda: bool(sessions(cluster, [])[1]), "the process that has registered")
        named, unnamed = sessions(cluster, [])
        assert not named
        assert {each.partition(" at ")[0] for each in unnamed} <= set(map("broker {}".format, IDS))
        assert any(each.endswith("by the log of the ZooKeeper") for each in unnamed)
        cluster.causes.append(Cause("a planted cause", None, 0.0, time.time()))
        named, unnamed = sessions(cluster, [])
        assert named["a planted cause"]
        assert not unnamed


# --- changes of a clean history that must be found ---


def _lose_a_record(events: Events) -> None:
    key, value = _acknowledged(events)
    for event in events:
        if "reads" in event:
            event["reads"] = [each for each in event["reads"] if each[::2] != [key, value]]


def _duplicate_a_record(events: Events) -> None:
    key, value = _acknowledged(events)
    reads = _final_reads(events)
    reads.append([key, 1 + max(offset for k, offset, _ in reads if k == key), value])


def _abort_a_transaction(events: Events) -> None:
    read = {(key, value) for key, _, value in _final_reads(events)}
    for event in events:
        is_committed = event["type"] == OK and event["f"] == "txn"
        if is_committed and read & {(key, value) for key, value, *_ in event["sends"]}:
            event["type"] = FAIL
            return
    raise AssertionError("no transaction has sent a record")


def _change_a_replica(events: Events) -> None:
    replicas = next(each for each in events if each["type"] == "replicas")
    next(iter(replicas["logs"].values()))[-1] = "another hash"


def _acknowledged(events: Events) -> list[int]:
    """Return key and value of a record that the idempotent producer has sent."""
    begun = [each for each in events if each["type"] == "invoke"]
    own = {each["process"] for each in begun if each.get("client") == "producer"}
    for event in events:
        if event["type"] == OK and event["f"] == "send" and event["process"] in own:
            return list(event["sends"][0][:2])
    raise AssertionError("nothing was acknowledged")


def _final_reads(events: Events) -> list[list[int]]:
    """Return the reads with read_committed at the end."""
    (final,) = [e for e in events if e.get("process") == FINAL_PROCESS and e["type"] == OK]
    reads: list[list[int]] = final["reads"]
    return reads


CHANGES: dict[Callable[[Events], None], set[str]] = {
    _lose_a_record: {"lost-write", "unseen"},
    _duplicate_a_record: {"duplicate"},
    _abort_a_transaction: {"G1a"},
    _change_a_replica: {"replicas-differ"},
}
