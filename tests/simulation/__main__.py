"""`python -m tests.simulation --seed N --runs K`: run simulations and report what they found."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.nemesis import CLUSTER_FAULTS, FAULTS
from tests.simulation.simulation import RUN_S, Outcome, Simulation
from tests.simulation.tuning import PATHS
from tests.simulation.world_settings import REPLICAS_MAX

COMMON = (
    "operations",
    "sends",
    "batches sent again",
    "polls with records",
    "positions validated",
    "topics created",
    "topics deleted",
    "partitions created",
    "configs altered",
    "records deleted",
    "broker ends: stop",
    "broker ends: kill",
    "broker ends: power",
    "logs cut by a power cut",
    "replays checked",
    "replays of compacted logs",
    *(f"fault {name}" for name in FAULTS),
)
FRESH_SEEDS_MIN = 30
TRANSACTIONS = (
    "transactions committed, protocol 1",
    "transactions committed, protocol 2",
    "transactions aborted, protocol 1",
)
REQUIRED_ALONE = (*COMMON, *TRANSACTIONS)
"""What a series of runs of a single broker has to cover in a continuous integration."""
REQUIRED_IN_CLUSTER = (
    *COMMON,
    *TRANSACTIONS,
    "transactions aborted, protocol 2",
    "transactions aborted after an error",
    "transactions completed by another coordinator",
    "coordinator loads of transactions",
    "coordinator loads of groups",
    "offsets committed, classic group",
    "offsets committed, consumer group",
    "offsets committed in transactions, protocol 1",
    "offsets committed in transactions, protocol 2",
    "commits checked",
    "fetched offsets checked",
    "coordinator replays checked",
    "outcomes checked",
    "markers checked",
    "batches acknowledged by all",
    "leader changes",
    "unclean elections",
    "logs truncated",
    "ISR changes",
    "ISR expansions",
    "ISR shrinks by lag",
    "ELRs",
    "session expiries",
    "controller changes",
    "registrations",
    "images compared",
    "flushes checked",
    "compacted logs checked",
    "unclean stops",
    "ends that drop pages of failed fsyncs",
    "power cuts of stopped brokers",
    "injected errors",
    "injected errors of threads",
    "injected errors of sessions",
    "injected errors of take-overs",
    "malformed responses",
    *PATHS,
    "probes",
    "high watermarks that had to advance",
    *(f"fault {name}" for name in CLUSTER_FAULTS),
)
"""The same for a cluster."""


@dataclass(slots=True)
class Batch:
    """The results of a series of runs. `failed` has the first violation of each seed with one."""

    runs: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)
    traces: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome, cpu_s: float) -> None:
        self.runs += 1
        self.simulated_s += outcome.simulated_s
        self.cpu_s += cpu_s
        self.counts += outcome.counts
        self.traces.append(outcome.digest)
        if outcome.known:
            self.counts[f"known defect: {outcome.known}"] += 1
        if outcome.violations:
            self.failed[outcome.seed] = outcome.violation

    def values(self, options: argparse.Namespace) -> dict[str, Any]:
        """Return the values for a record (`benchmarks.evidence.simulations`)."""
        return {
            "brokers": options.brokers,
            "replicas": min(options.replicas, options.brokers),
            "load": "nominal" if options.nominal else "swarm",
            "first": options.seed,
            "runs": self.runs,
            "simulated_s": round(self.simulated_s, 1),
            "cpu_s": round(self.cpu_s, 1),
            "traces": hashlib.blake2b("".join(self.traces).encode(), digest_size=8).hexdigest(),
            "coverage": {name: count for name, count in sorted(self.counts.items()) if count},
            "violations": {str(seed): what for seed, what in self.failed.items()},
        }


def main(argv: list[str] | None = None) -> int:
    """Run the seeds N to N+K-1. Return 1 if one of them found a violation."""
    options = _options(argv)
    logging.getLogger("odradek").setLevel(logging.INFO if options.log else logging.ERROR)
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
    if not options.log:
        logging.lastResort = None
        logging.getLogger().handlers = [logging.NullHandler()]
    batch = Batch()
    for seed in seeds(options.seed, options.runs, options.minutes):
        began = time.process_time()
        outcome = run(
            seed,
            options.brokers,
            options.seconds,
            replicas_max=options.replicas,
            swarm=not options.nominal,
        )
        used_s = time.process_time() - began
        batch.add(outcome, used_s)
        print(
            f"seed {seed}: trace {outcome.digest}, {outcome.steps:,} steps, "
            f"{outcome.simulated_s:.1f} s, {1_000 * used_s / outcome.simulated_s:.1f} ms/s",
            flush=True,
        )
        if options.history:
            options.history.write_text("\n".join(outcome.history) + "\n", encoding="utf-8")
        if outcome.violations:
            report(outcome, options)
            if not options.keep_going:
                break
    return _end(batch, options)


def _end(batch: Batch, options: argparse.Namespace) -> int:
    """Print the totals of all runs. Return the exit code."""
    total = batch.counts
    print("coverage: " + ", ".join(f"{name} {number:,}" for name, number in sorted(total.items())))
    per_s = 1_000 * batch.cpu_s / batch.simulated_s
    print(f"{batch.simulated_s:,.0f} simulated s, {per_s:.1f} ms of CPU a second")
    print(f"seeds with violations: {[*batch.failed] or 'none'}")
    required = REQUIRED_ALONE if options.brokers == 1 else REQUIRED_IN_CLUSTER
    missing = [what for what in required if not total[what]] if options.minutes else []
    if missing:
        print(f"not covered: {', '.join(missing)}")
    if options.json:
        print(json.dumps(batch.values(options)))
    return 1 if batch.failed or missing else 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="number of seeds")
    parser.add_argument(
        "--minutes",
        type=float,
        help="run fresh seeds for so long instead; each count of REQUIRED_... must be above zero",
    )
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument(
        "--replicas", type=int, default=REPLICAS_MAX, help="limit of the replication factors"
    )
    parser.add_argument("--seconds", type=float, default=RUN_S, help="virtual length of a run")
    parser.add_argument("--history", type=Path, help="write the history of the last run to a file")
    parser.add_argument("--log", action="store_true", help="show the log of the brokers")
    parser.add_argument(
        "--nominal",
        action="store_true",
        help="two client operations a second and a fault every ten seconds, for the cost",
    )
    parser.add_argument("--keep-going", action="store_true", help="go on after a violation")
    parser.add_argument("--json", action="store_true", help="print the totals as the last line")
    return parser.parse_args(argv)


def seeds(first: int, runs: int, minutes: float | None) -> Iterator[int]:
    """Yield the seeds to run: `runs` from `first` on, or fresh ones for so many minutes.

    A slow machine needs longer for the least number of fresh seeds, which cover all faults.
    """
    if minutes is None:
        yield from range(first, first + runs)
        return
    end, begin = time.monotonic() + 60 * minutes, int(time.time()) * 1_000
    seed = begin
    while time.monotonic() < end or seed < begin + FRESH_SEEDS_MIN:
        yield seed
        seed += 1


def run(
    seed: int, brokers: int, seconds: float, *, replicas_max: int = 3, swarm: bool = True
) -> Outcome:
    """Run one seed."""
    simulation = Simulation(seed, brokers, seconds, replicas_max=replicas_max, swarm=swarm)
    try:
        return simulation.run()
    finally:
        simulation.close()


def report(outcome: Outcome, options: argparse.Namespace) -> None:
    """Print the violations of a run, its last events, and how to repeat it."""
    for line in outcome.tail[-20:]:
        print(f"    {line}")
    for violation in outcome.violations[:10]:
        print(f"  VIOLATION {violation}")
    arguments = f"--seed {outcome.seed} --brokers {options.brokers}"
    arguments += " --nominal" if options.nominal else ""
    arguments += f" --replicas {options.replicas}" if options.replicas != REPLICAS_MAX else ""
    arguments += f" --seconds {options.seconds:g}" if options.seconds != RUN_S else ""
    print(f"  repeat: python -m tests.simulation {arguments}")


if __name__ == "__main__":
    sys.exit(main())
