"""The command behind `make evidence`: `python -m benchmarks.evidence run|render|check|list`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.evidence import pages
from benchmarks.evidence import record as records
from benchmarks.evidence.catalogue import EXPERIMENTS
from benchmarks.evidence.experiment import NotRun
from benchmarks.evidence.plots import PLOTS
from benchmarks.evidence.record import FOLDER
from benchmarks.evidence.runner import MINUTES_MAX, Refused, run
from testkit import source_state
from testkit.peer.artifacts import ROOT

INCOMPLETE = 2


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    # SIGTERM interrupts a run like Ctrl-C, so that its brokers are stopped. A shell starts jobs in
    # the background with SIGINT ignored, and the programs of the run would ignore it too.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    if options.command == "render":
        render()
        return 0
    if options.command == "check":
        return check()
    if options.command == "list":
        return show_list(options.out or FOLDER)
    return run_all(options) if not options.name else run_one(options)


def render() -> None:
    """Write the pages and pictures that differ from the records."""
    for path in pages.render(EXPERIMENTS, ROOT):
        tell(f"written to {path}")
    for plot in PLOTS.values():
        if not plot.is_current(FOLDER):
            plot.write(FOLDER)
            tell(f"written to {plot.path(FOLDER)}")


def check() -> int:
    """Print the age of each record and the differences."""
    for line in pages.ages(EXPERIMENTS, FOLDER):
        print(line)
    found = [*pages.problems(EXPERIMENTS, ROOT), *_outdated_plots()]
    for problem in found:
        print(problem)
    return 1 if found else 0


def _outdated_plots() -> list[str]:
    return [
        f"{plot.path(FOLDER).relative_to(ROOT)}: differs from its record: make evidence-render"
        for plot in PLOTS.values()
        if not plot.is_current(FOLDER)
    ]


def is_due(name: str, folder: Path) -> bool:
    path = records.published(name, folder)
    record = records.load(path) if path.exists() else None
    return records.is_due(record, source_state.source(), EXPERIMENTS[name].settings(1.0))


def show_list(folder: Path) -> int:
    for name, experiment in EXPERIMENTS.items():
        state = "due" if is_due(name, folder) else "recorded"
        print(f"{name:18} {state:9} {experiment.minutes:4} min  {experiment.title}")
    return 0


def run_all(options: argparse.Namespace) -> int:
    """Run what is due, each piece in a process of its own, until nothing is left or one fails."""
    failed = []
    for name in EXPERIMENTS:
        folder = options.out or FOLDER
        while is_due(name, folder) and name not in failed:
            command = [sys.executable, "-m", "benchmarks.evidence", "run", name]
            if _piece([*command, *_passed_on(options, name)]) not in (0, INCOMPLETE):
                failed.append(name)
    for name in failed:
        is_incomplete = is_due(name, options.out or FOLDER)
        tell(f"{name} {'could not be run to its end' if is_incomplete else 'broke a promise'}")
    return 1 if failed else 0


def _piece(command: list[str]) -> int:
    """Run a command; an interrupt reaches it once, so that it can stop its brokers."""
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def _passed_on(options: argparse.Namespace, name: str) -> list[str]:
    jobs = min(options.jobs, EXPERIMENTS[name].jobs_max)
    found = ["--minutes", str(options.minutes), "--seed", str(options.seed), "--jobs", str(jobs)]
    return [*found, "--out", str(options.out)] if options.out else found


def run_one(options: argparse.Namespace) -> int:
    """Run one piece of an experiment; the pages are rendered when its record is complete."""
    folder = options.out or FOLDER
    if folder == FOLDER and (options.scale != 1.0 or options.trial):
        tell("A trial needs --out DIR, because it must not replace what is published.")
        return 1
    try:
        record = run(
            EXPERIMENTS[options.name],
            folder,
            tell,
            minutes=options.minutes,
            scale=options.scale,
            seed=options.seed,
            trial=options.trial,
            retry=options.retry,
            jobs=options.jobs,
        )
    except (Refused, NotRun) as error:
        tell(f"{options.name}: {error}")
        return 1
    experiment = EXPERIMENTS[options.name]
    for text in experiment.snippets(record).values():
        print(text, end="\n\n")
    if not record.complete:
        tell(f"Units are missing. Run `make evidence-{options.name}` again to continue.")
        return INCOMPLETE
    if folder == FOLDER:
        render()
    if verdict := experiment.verdict(record):
        tell(f"{options.name}: {verdict}")
    return 1 if verdict and experiment.is_judged and not options.trial else 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence")
    parser.add_argument("command", choices=["run", "render", "check", "list"])
    parser.add_argument("name", nargs="?", choices=EXPERIMENTS, metavar="NAME",
                        help=f"{', '.join(EXPERIMENTS)}; without it all that are due")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=MINUTES_MAX, help="of this run, at most")
    parser.add_argument("--seed", type=int, default=1, help="of a new record; the first of several")
    parser.add_argument("--jobs", type=int, default=1, metavar="N",
                        help="units at the same time, where no speed is measured")  # fmt: skip
    parser.add_argument("--scale", type=float, default=1.0, help="of the work; needs --out")
    parser.add_argument("--out", type=Path, help="folder of the records instead of docs/evidence")
    parser.add_argument("--trial", action="store_true",
                        help="also with uncommitted changes in src/; needs --out")  # fmt: skip
    parser.add_argument("--retry", action="store_true", help="run failed units again")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
