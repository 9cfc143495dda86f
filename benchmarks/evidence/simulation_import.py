"""Add batches of simulations that were run by hand to the record of `evidence-simulation`.

    python -m benchmarks.evidence.simulation_import --commit 569aaf0 OUTPUT...

The output of a batch that was interrupted counts with the seeds that it has finished. Its coverage
is not known. A batch that is added again replaces the earlier one.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path

from benchmarks.evidence import record as records
from benchmarks.evidence.record import Record, Unit, Values
from benchmarks.evidence.runner import begin
from benchmarks.evidence.simulations import LOADS, REPLICAS, Simulations, kept
from benchmarks.machine import description
from testkit import source_state
from testkit.source_state import SOURCE_FOLDER, git

RUN_S = 120.0
"""Shortest length of a run without a violation, for outputs that do not have the length."""
SEED = re.compile(r"seed (\d+): trace \w+, [\d,]+ steps, (?:([\d.]+) s, )?([\d.]+) ms/s")
VIOLATION = re.compile(r"  VIOLATION (.*)")
TOTAL = re.compile(r"([\d,]+) simulated s, ([\d.]+) ms of CPU a second")
COUNT = re.compile(r"(.+?) (\d{1,3}(?:,\d{3})*)(?:, |$)")
COVERAGE = "coverage: "


class NoBatchError(Exception):
    """The text is not the output of a batch."""


def parse(output: str, brokers: int, load: str, replicas: int = REPLICAS) -> Values:
    """Return the values of a batch from what `python -m tests.simulation` has printed.

    Raises:
        NoBatchError: The output has no finished seed, or its seeds do not follow each other.
    """
    runs: dict[int, tuple[float, float]] = {}
    violations: dict[str, str] = {}
    coverage: Values = {}
    seed, total = 0, None
    for line in output.splitlines():
        if found := SEED.match(line):
            seed = int(found[1])
            runs[seed] = (float(found[2] or 0.0), float(found[3]))
        elif found := VIOLATION.match(line):
            violations.setdefault(str(seed), found[1])
        elif line.startswith(COVERAGE):
            counts = COUNT.findall(line.removeprefix(COVERAGE))
            coverage = {name: int(count.replace(",", "")) for name, count in counts}
        elif found := TOTAL.match(line):
            total = (float(found[1].replace(",", "")), float(found[2]))
    if not runs or [*runs] != [*range(min(runs), min(runs) + len(runs))]:
        raise NoBatchError("the output has no seeds that follow each other")
    if total is None:
        lengths = {
            seed: length or (0.0 if str(seed) in violations else RUN_S)
            for seed, (length, _) in runs.items()
        }
        simulated_s = sum(lengths.values())
        cpu_s = sum(lengths[seed] * cost / 1000 for seed, (_, cost) in runs.items())
    else:
        simulated_s, cpu_s = total[0], total[0] * total[1] / 1000
    values = {
        "brokers": brokers,
        "replicas": replicas,
        "load": load,
        "first": min(runs),
        "runs": len(runs),
        "simulated_s": round(simulated_s, 1),
        "cpu_s": round(cpu_s, 1),
        "coverage": coverage,
        "violations": violations,
    }
    return kept(values)


def add(record: Record, values: Values, date: str) -> None:
    """Add a batch to the record, or replace the batch with the same first seed and commit."""
    names = (values["commit"][:7], values["load"], values["brokers"])
    key = f"by hand {names[0]} {names[1]} {names[2]}/{values['first']}"
    unit = Unit(key, date, values["cpu_s"], 0.0, values)
    at = next((at for at, each in enumerate(record.units) if each.key == key), None)
    if at is None:
        record.units.append(unit)
    else:
        record.units[at] = unit


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence.simulation_import")
    parser.add_argument("files", nargs="+", type=Path, help="outputs of batches")
    parser.add_argument("--commit", required=True, help="the commit that was checked out")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--load", choices=sorted({load.name for load in LOADS}), default="swarm")
    parser.add_argument("--out", type=Path, default=records.FOLDER, help="folder of the record")
    options = parser.parse_args(argv)
    experiment = Simulations()
    path = records.published(experiment.name, options.out)
    machine = description(steady_memory=False, peers=False)
    del machine["date"]
    earlier = records.load(path) if path.exists() else None
    record = begin(experiment, source_state.source(), machine, 1, 1.0, earlier)
    where = {
        "commit": git("rev-parse", f"{options.commit}^{{commit}}"),
        "src_commit": git("log", "-1", "--format=%H", options.commit, "--", SOURCE_FOLDER),
        "src_tree": git("rev-parse", f"{options.commit}:{SOURCE_FOLDER}"),
    }
    for file in options.files:
        output = file.read_text(encoding="utf-8", errors="replace")
        try:
            values = parse(output, options.brokers, options.load, options.replicas)
        except NoBatchError as error:
            print(f"{file}: {error}")
            continue
        taken = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC)
        add(record, {**where, **values}, taken.isoformat(timespec="seconds"))
        print(f"{file}: {values['runs']} runs, {values['simulated_s']:,.0f} simulated s")
    record.complete = experiment.next_unit(record) is None
    records.save(record, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
