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


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    commands = {"render": render, "check": check, "list": lambda: show_list(options.out or FOLDER)}
    if options.command in commands:
        return commands[options.command]()
    if options.out is None and (options.scale != 1.0 or options.trial):
        report("A trial needs --out DIR, because it must not replace what is published.")
        return 1
    handle_signals()
    return run_one(options, *options.names) if len(options.names) == 1 else run_several(options)


def handle_signals() -> None:
    """Let SIGTERM and SIGINT interrupt a run, so that it stops its brokers."""
    # A shell starts jobs in the background with SIGINT ignored, and the programs of the run would
    # ignore it too.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)


def render() -> int:
    """Write the pages and pictures that differ from the records."""
    for path in pages.render(EXPERIMENTS, ROOT):
        report(f"written to {path}")
    for plot in PLOTS.values():
        if not plot.is_current(FOLDER):
            plot.write(FOLDER)
            report(f"written to {plot.path(FOLDER)}")
    return 0


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


def is_due(name: str, folder: Path, scale: float = 1.0) -> bool:
    path = records.published(name, folder)
    record = records.load(path) if path.exists() else None
    settings = EXPERIMENTS[name].settings(scale)
    return records.is_due(record, source_state.source(), settings, scale)


def show_list(folder: Path) -> int:
    for name, experiment in EXPERIMENTS.items():
        state = "due" if is_due(name, folder) else "recorded"
        print(f"{name:18} {state:9} {experiment.minutes:4} min  {experiment.title}")
    return 0


def run_several(options: argparse.Namespace) -> int:
    """Run what is due, each piece in a process of its own, until nothing is left or one fails.

    A piece that fails is repeated if it has recorded a unit, because a client or a broker may fail
    once in some hours. The failure is not hidden: the piece printed it.
    """
    failed = []
    folder = options.out or FOLDER
    for name in options.names or EXPERIMENTS:
        while is_due(name, folder, options.scale):
            before = recorded_units(name, folder)
            command = [sys.executable, "-m", "benchmarks.evidence", "run", name]
            code = _piece([*command, *_passed_on(options, name)])
            if code not in (0, INCOMPLETE) and recorded_units(name, folder) <= before:
                failed.append(f"{name} could not be run to its end")
                break
        if not is_due(name, folder, options.scale):
            record = records.load(records.published(name, folder))
            if defect := EXPERIMENTS[name].defect(record):
                failed.append(f"{name}: {defect}")
    for line in failed:
        report(line)
    return 1 if failed else 0


def recorded_units(name: str, folder: Path) -> int:
    """The number of units in the record that grows: the partial one, as a rule."""
    grows = records.published if EXPERIMENTS[name].keeps_earlier else records.partial
    path = grows(name, folder)
    return len(records.load(path).units) if path.exists() else 0


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
    found = ["--minutes", str(options.minutes), "--jobs", str(jobs), "--scale", str(options.scale)]
    found += ["--seed", str(options.seed)] if options.seed is not None else []
    found += ["--trial"] if options.trial else []
    return [*found, "--out", str(options.out)] if options.out else found


def run_one(options: argparse.Namespace, name: str) -> int:
    """Run one piece of an experiment. Render the pages if its record is published."""
    folder = options.out or FOLDER
    experiment = EXPERIMENTS[name]
    try:
        record = run(
            experiment,
            folder,
            report,
            minutes=options.minutes,
            scale=options.scale,
            seed=options.seed,
            trial=options.trial,
            retry=options.retry,
            jobs=options.jobs,
        )
    except (Refused, NotRun) as error:
        report(f"{name}: {error}")
        return 1
    for text in experiment.snippets(record).values():
        print(text, end="\n\n")
    if folder == FOLDER and (record.complete or experiment.keeps_earlier):
        render()
    if not record.complete:
        report(f"Units are missing. Run `make evidence-{name}` again to continue.")
        return INCOMPLETE
    if verdict := experiment.verdict(record):
        report(f"{name}: {verdict}")
    return 1 if experiment.defect(record) and not options.trial else 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence")
    parser.add_argument("command", choices=["run", "render", "check", "list"])
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help=f"{', '.join(EXPERIMENTS)}; without it all that are due")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=MINUTES_MAX, help="of this run, at most")
    parser.add_argument("--seed", type=int, help="of a new record; the first of several (default: "
                        "1, or a random one where an experiment needs fresh seeds)")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, metavar="N",
                        help="units at the same time, where no speed is measured")  # fmt: skip
    parser.add_argument("--scale", type=float, default=1.0, help="of the work; needs --out")
    parser.add_argument("--out", type=Path, help="folder of the records instead of docs/evidence")
    parser.add_argument("--trial", action="store_true",
                        help="also with uncommitted changes in src/; needs --out")  # fmt: skip
    parser.add_argument("--retry", action="store_true", help="run failed units again")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.names if name not in EXPERIMENTS]:
        parser.error(f"no such experiment: {', '.join(unknown)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
