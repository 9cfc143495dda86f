"""SIGKILL of an ingest's process group (Python and JVM) at known steps of a batch.

After a kill the files show, without Spark, which of the batch's four commits exist. These are the
offsets in the checkpoint (before the batch), the table's commit, the quarantine's commit, and the
batch's completion in the checkpoint. Iceberg's files also show a batch that is staged on a branch,
and not published. `Killer.kill_at` kills in one of the gaps between them,
`kill_anywhere` at a random time. As a program the module makes many kills from a seed and compares
the tables with the topic at the end. The last line of the output is the result as JSON:

    python -m tests.pipeline.killer --format delta --each 10
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.sinks.iceberg import COMMIT
from odradek.pipeline.tables import TableDir, TableFormat
from testkit.peer.server import start_odradek
from testkit.result_line import print_result
from tests.pipeline import ledger
from tests.pipeline.killed_ingest import Plan
from tests.pipeline.steps import Step, steps_of

STEP_TIMEOUT_S = 300
RANDOM_DELAY_S_MAX = 4.0
ROWS_PER_LIFE = 240
BATCH_ROWS = 90
RANDOM = "random"


class NotAsPlanned(Exception):
    """The ingest ended or stopped at an unexpected point."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The newest batch id in each of the four commits after a crash, -1 if none.

    `table_staged` and `quarantine_staged` have the newest batch id on a branch of an Iceberg table.
    """

    offsets: int
    table: int
    quarantine: int
    commits: int
    table_staged: int = -1
    quarantine_staged: int = -1

    def gap(self) -> str:
        """The two commits of the newest batch between which the crash happened."""
        batch = self.offsets
        if self.commits == batch:
            return "between batches"
        if self.quarantine == batch:
            return "quarantine -> checkpoint"
        if self.table == batch:
            is_staged = self.quarantine_staged == batch
            return "staged -> quarantine" if is_staged else "table -> quarantine"
        return "staged -> table" if self.table_staged == batch else "before table"


GAP_OF_STEP = {
    Step.BEFORE_TABLE: "before table",
    Step.TABLE_STAGED: "staged -> table",
    Step.TABLE_COMMITTED: "table -> quarantine",
    Step.QUARANTINE_STAGED: "staged -> quarantine",
    Step.QUARANTINE_COMMITTED: "quarantine -> checkpoint",
}


def look(directory: Path, table_format: str) -> Evidence:
    """Read the evidence from the files of a table directory."""
    table, quarantine = (
        _newest(directory / name, table_format) for name in ("table", "quarantine")
    )
    checkpoint = directory / "checkpoint"
    return Evidence(
        _newest_number(checkpoint / "offsets", ""),
        table.committed,
        quarantine.committed,
        _newest_number(checkpoint / "commits", ""),
        table.staged,
        quarantine.staged,
    )


class Newest(NamedTuple):
    """The newest batch ids in one table, -1 if none."""

    committed: int
    staged: int = -1


def _newest(table: Path, table_format: str) -> Newest:
    if table_format == TableFormat.ICEBERG:
        return _newest_iceberg(table)
    newest_of = _newest_delta if table_format == TableFormat.DELTA else _newest_parquet
    return Newest(newest_of(table))


def _newest_number(directory: Path, suffix: str) -> int:
    names = (path.name for path in directory.glob(f"*{suffix}")) if directory.exists() else ()
    numbers = (name.removesuffix(suffix) for name in names)
    return max((int(number) for number in numbers if number.isdigit()), default=-1)


def _newest_parquet(table: Path) -> int:
    return _newest_number(table / "_commits", ".json")


def _newest_delta(table: Path) -> int:
    """Return the highest version of the ingest's transactions in the table's log."""
    newest = -1
    for path in (table / "_delta_log").glob("*.json"):
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if "txn" in action:
                newest = max(newest, action["txn"]["version"])
    return newest


def _newest_iceberg(table: Path) -> Newest:
    """Return the newest batch of `main` and of the branches, from the newest metadata file."""
    files = list((table / "metadata").glob("v*.metadata.json"))
    if not files:
        return Newest(-1)
    newest = max(files, key=lambda path: int(path.name.removeprefix("v").partition(".")[0]))
    metadata = json.loads(newest.read_text())
    snapshots: dict[int | None, dict[str, Any]] = {
        one["snapshot-id"]: one for one in metadata.get("snapshots", ())
    }
    batches = {
        name: _newest_batch(snapshots, ref["snapshot-id"])
        for name, ref in metadata.get("refs", {}).items()
    }
    main = batches.pop("main", -1)
    return Newest(main, max(batches.values(), default=-1))


def _newest_batch(snapshots: dict[int | None, dict[str, Any]], newest: int) -> int:
    """Return the newest batch of a snapshot and its ancestors."""
    found = snapshots.get(newest)
    while found is not None:
        if COMMIT in found["summary"]:
            return int(json.loads(found["summary"][COMMIT])["batch_id"])
        found = snapshots.get(found.get("parent-snapshot-id"))
    return -1


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: the intended gap, the gap that it hit, and the evidence in the files."""

    aim: str
    gap: str
    evidence: Evidence

    @property
    def is_proven(self) -> bool:
        """Whether the files show that the kill hit the intended gap."""
        return self.aim != RANDOM and self.gap == GAP_OF_STEP[Step(self.aim)]

    def line(self, number: int) -> str:
        mark = "proven" if self.is_proven else ""
        return f"{number:>3} {self.aim:<21} {self.gap:<25} {mark:<7} {self.evidence}"


class Killer:
    """Runs one ingest again and again on one topic and table directory. `kills` is its log."""

    def __init__(self, plan: Plan, rng: random.Random) -> None:
        self._plan = plan
        self._rng = rng
        self.kills: list[Kill] = []

    def kill_at(self, step: Step, time_in_life: int) -> Kill:
        """Kill when one run reaches `step` for the n-th time. Raise NotAsPlanned if it does not."""
        plan = replace(self._plan, stop_at=step.value, stop_at_time=time_in_life)
        with self._life(plan) as (process, lines):
            for message in lines:
                if "stopped" in message:
                    break
            else:
                raise NotAsPlanned(f"it never stopped at {step}: {self._log_tail()}")
            self._kill(process)
        return self._record(step.value)

    def kill_anywhere(self) -> Kill:
        """Kill at a random time after the first step of a run."""
        with self._life(self._plan) as (process, lines):
            next(lines, None)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._rng.uniform(0, RANDOM_DELAY_S_MAX))
            self._kill(process)
        return self._record(RANDOM)

    def run_to_the_end(self) -> int:
        """Run the ingest to its end, and return its number of batches. Raise NotAsPlanned else."""
        plan = replace(self._plan, batch_rows=20 * self._plan.batch_rows)
        with self._life(plan) as (process, lines):
            for message in lines:
                if "done" in message:
                    process.wait(STEP_TIMEOUT_S)
                    batches = message["done"]
                    assert isinstance(batches, int)
                    return batches
        raise NotAsPlanned(f"it ended too early: {self._log_tail()}")

    @contextlib.contextmanager
    def _life(
        self, plan: Plan
    ) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[dict[str, object]]]]:
        command = [sys.executable, "-m", "tests.pipeline.killed_ingest", json.dumps(asdict(plan))]
        with (Path(plan.directory) / "python.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd=Path(__file__).parents[2],
            )
        assert process.stdin is not None
        try:
            yield process, _messages(process)
        finally:
            if process.poll() is None:
                self._kill(process)
            process.stdin.close()

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """Send SIGKILL to the process group, and wait until the JVM has ended too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        until = time.monotonic() + STEP_TIMEOUT_S
        while time.monotonic() < until:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            if not _has_living(process.pid):
                return
            time.sleep(0.01)
        raise NotAsPlanned("the process group outlived SIGKILL")

    def _record(self, aim: str) -> Kill:
        evidence = look(Path(self._plan.directory), self._plan.table_format)
        self.kills.append(Kill(aim, evidence.gap(), evidence))
        return self.kills[-1]

    def _log_tail(self) -> str:
        return (Path(self._plan.directory) / "python.log").read_text()[-2000:]


def _has_living(group: int) -> bool:
    """Return whether a process group has a process that is not a zombie."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def _messages(process: subprocess.Popen[bytes]) -> Iterator[dict[str, object]]:
    """Yield the ingest's messages until it ends. Raise NotAsPlanned if none arrives in time."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.put(line)
        lines.put(b"")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=STEP_TIMEOUT_S)
        except queue.Empty:
            raise NotAsPlanned("the ingest reported nothing in time") from None
        if not line:
            return
        yield json.loads(line)


class Campaign:
    """Many kills on one topic that grows with each run, and the comparison at the end."""

    def __init__(
        self, bootstrap_servers: str, table_format: TableFormat, directory: Path, seed: int
    ) -> None:
        self._rng = random.Random(seed)
        self._bootstrap_servers = bootstrap_servers
        self._topic = f"killed-{uuid.uuid4().hex[:10]}"
        self._tables = TableDir(str(directory), table_format)
        self._steps = steps_of(table_format)
        self._partitions = 2
        self._sent = 0
        plan = Plan(bootstrap_servers, self._topic, str(directory), table_format, BATCH_ROWS)
        self.killer = Killer(plan, self._rng)
        directory.mkdir(parents=True, exist_ok=True)
        ledger.create_topic(bootstrap_servers, self._topic, self._partitions)

    def run(self, each: int, anywhere: int) -> None:
        """Kill until the files prove `each` kills in each gap, and `anywhere` times at random.

        The order is random. A kill in the second run of a batch can find commits of the first run,
        which are later than the step. Such a kill does not count.
        """
        aims: list[Step | None] = [step for step in self._steps for _ in range(each)]
        aims += [None] * anywhere
        self._rng.shuffle(aims)
        grow_at = len(aims) // 2
        while aims:
            if len(self.killer.kills) == grow_at:
                self._partitions += 1
                ledger.add_partitions(self._bootstrap_servers, self._topic, self._partitions)
            self.produce()
            aim = aims.pop()
            if aim is None:
                kill = self.killer.kill_anywhere()
            else:
                kill = self.killer.kill_at(aim, self._rng.randint(1, 2))
                if not kill.is_proven:
                    aims.insert(self._rng.randint(0, len(aims)), aim)
            print(kill.line(len(self.killer.kills)), flush=True)

    def produce(self) -> None:
        numbers = range(self._sent, self._sent + ROWS_PER_LIFE)
        ledger.produce(self._bootstrap_servers, self._topic, numbers, self._partitions)
        self._sent += ROWS_PER_LIFE

    def check(self) -> tuple[list[str], dict[str, int]]:
        """Run the ingest to its end. Return the differences, and the records by table."""
        self.killer.run_to_the_end()
        in_topic = ledger.read_topic(self._bootstrap_servers, self._topic)
        log = Path(self._tables.root) / "spark.log"
        iceberg = self._tables.format is TableFormat.ICEBERG
        options = SessionOptions("ledger", shuffle_partitions=2, jvm_log=log, iceberg=iceberg)
        spark = open_session(options)
        table, quarantine = ledger.read_tables(spark, self._tables)
        counts = {"topic": len(in_topic), "table": len(table), "quarantine": len(quarantine)}
        print(counts)
        return ledger.differences(in_topic, table, quarantine), counts


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill an ingest many times, then compare.")
    parser.add_argument("--bootstrap-server", help="address of a broker (default: start one)")
    parser.add_argument("--format", choices=list(TableFormat), default=TableFormat.DELTA)
    parser.add_argument("--each", type=int, default=10, help="number of kills in each gap")
    parser.add_argument("--random", type=int, default=10, help="number of kills at random times")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    return print_result(lambda: result(arguments))


def result(arguments: argparse.Namespace) -> dict[str, object]:
    """Make the kills and compare. Raise AssertionError if tables and topic differ."""
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="killed-")))
        address = arguments.bootstrap_server
        if address is None:
            address = stack.enter_context(start_odradek(work / "broker")).bootstrap
        table_format = TableFormat(arguments.format)
        campaign = Campaign(address, table_format, work / "lake", arguments.seed)
        campaign.run(arguments.each, arguments.random)
        differences, counts = campaign.check()
    kills = campaign.killer.kills
    print(f"{len(kills)} kills, {sum(kill.aim == RANDOM for kill in kills)} of them at random")
    print("proven by gap:", dict(Counter(kill.gap for kill in kills if kill.is_proven)))
    print("all by gap:", dict(Counter(kill.gap for kill in kills)))
    assert not differences, "; ".join(differences[:20])
    return {
        "seed": arguments.seed,
        "format": arguments.format,
        "kills": [{**asdict(kill), "proven": kill.is_proven} for kill in kills],
        **counts,
        "differences": len(differences),
    }


if __name__ == "__main__":
    sys.exit(main())
