"""Run the units of one experiment for a bounded time, and record each as soon as it is done."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.evidence import record as records
from benchmarks.evidence.experiment import BrokenPromise, Context, Experiment
from benchmarks.evidence.record import Record, Unit
from benchmarks.machine import description
from benchmarks.memory import steady_memory
from testkit import source_state
from testkit.source_state import Source

MINUTES_MAX = 60.0
# Time reserved at the end to stop brokers and delete their files.
RESERVE_S = 60.0
TRIAL_SCALE = 0.15
FAILED_TRY = "/failed try "


class Refused(Exception):
    """The record of the run would not match one source and one plan. The message has details."""


def begin(
    experiment: Experiment,
    source: Source,
    machine: dict[str, str],
    seed: int,
    scale: float,
    found: Record | None,
) -> Record:
    """Return the record to continue, or a new record if `found` is of another source.

    Raises:
        Refused: `found` is of this source, but was taken otherwise.
    """
    new = Record(
        experiment=experiment.name,
        commit=source.commit,
        src_tree=source.tree,
        src_modified=source.modified,
        seed=seed,
        scale=scale,
        machine=machine,
        tuning=experiment.tuning(),
        settings=experiment.settings(scale),
    )
    if found is None or not records.is_of(found, source):
        return new
    if found.complete and found.settings != new.settings:
        return new  # The plan has changed since.
    for name in ("scale", "machine", "settings", "tuning"):
        if getattr(found, name) != getattr(new, name):
            raise Refused(
                f"The record of {experiment.name} has another {name}. Remove it to begin again."
            )
    return found


def keep_failures(record: Record) -> None:
    """Let failed units run again. The failures stay in the record under other keys."""
    for unit in record.units:
        if unit.failure and FAILED_TRY not in unit.key:
            earlier = sum(key.startswith(f"{unit.key}{FAILED_TRY}") for key in record.keys)
            unit.key = f"{unit.key}{FAILED_TRY}{earlier + 1}"


def run_units(
    experiment: Experiment,
    record: Record,
    context: Context,
    save: Callable[[Record], None],
    until_s: float,
    is_unchanged: Callable[[], bool] = lambda: True,
    now_s: Callable[[], float] = time.monotonic,
) -> bool:
    """Do the missing units; return whether all of them are recorded.

    A unit begins only when one as long as the longest so far would end before `until_s`. The
    first unit of a run always begins.
    """
    if experiment.next_unit(record) is None:
        return True
    longest = 0.0
    with experiment.session(record, context) as measure:
        while (key := experiment.next_unit(record)) is not None:
            began = now_s()
            if longest and began + longest > until_s:
                return False
            load = os.getloadavg()[0]
            date = records.now()
            unit = Unit(key, date, 0.0, round(load, 2))
            try:
                unit.values = measure(key)
            except BrokenPromise as error:
                unit.failure = str(error)
                context.tell(f"{experiment.name} {key}: {error}")
            if not is_unchanged():
                raise Refused(f"src/ changed during {key}, which is therefore not recorded.")
            unit.seconds = round(now_s() - began, 1)
            longest = max(longest, unit.seconds, experiment.unit_s if not longest else 0.0)
            record.units.append(unit)
            save(record)
            context.tell(f"{experiment.name} {key}: recorded, {unit.seconds:.0f} s")
    return True


def run(
    experiment: Experiment,
    folder: Path,
    tell: Callable[[str], None],
    *,
    minutes: float = MINUTES_MAX,
    scale: float = 1.0,
    seed: int = 1,
    trial: bool = False,
    retry: bool = False,
) -> Record:
    """Run an experiment. Its record is partial if the time was not enough for all units."""
    until_s = time.monotonic() + minutes * 60 - RESERVE_S
    source = source_state.source()
    if source.modified and not trial:
        raise Refused("src/ has uncommitted changes. Commit them first, or add --trial --out DIR.")
    paths = records.published(experiment.name, folder), records.partial(experiment.name, folder)
    # A partial record is newer than the published one, unless it is of another source.
    earlier = [records.load(path) for path in reversed(paths) if path.exists()]
    found = next((each for each in earlier if records.is_of(each, source)), None)
    # A trial does not need to touch all free memory first.
    needs_memory = experiment.is_timed and scale >= TRIAL_SCALE
    work = Path(tempfile.mkdtemp(prefix="evidence-"))
    memory = steady_memory(tell) if needs_memory else contextlib.nullcontext(False)
    try:
        with memory as steady:
            machine = description(steady_memory=steady, peers=experiment.has_peer)
            del machine["date"]  # Each unit has its own.
            record = begin(experiment, source, machine, seed, scale, found)
            if retry:
                keep_failures(record)

            def save(now: Record) -> None:
                now.complete = experiment.next_unit(now) is None
                records.save(now, paths[0] if now.complete else paths[1])
                if now.complete:
                    paths[1].unlink(missing_ok=True)

            def is_unchanged() -> bool:
                return trial or source_state.source() == source

            context = Context(work, tell)
            run_units(experiment, record, context, save, until_s, is_unchanged)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return record
