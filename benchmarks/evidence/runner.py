"""Run the units of one experiment for a bounded time, and record each as soon as it is done."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import odradek
from benchmarks.evidence import record as records
from benchmarks.evidence.experiment import RUNNING, BrokenPromise, Context, Experiment, Measure
from benchmarks.evidence.record import Record, Unit, Values
from benchmarks.evidence.work import work_directory
from benchmarks.machine import description
from benchmarks.memory import steady_memory
from testkit import source_state
from testkit.peer.artifacts import ROOT
from testkit.peer.server import cache_directory
from testkit.source_state import Source

MINUTES_MAX = 60.0
# Time reserved at the end to stop brokers and delete their files.
RESERVE_S = 60.0
TRIAL_SCALE = 0.15
FAILED_TRY = "/failed try "
DRAWN_SEEDS = range(1_000, 1_000_000)
"""Above the seeds that are passed by hand."""


class Refused(Exception):
    """The record of the run would not match one source and one plan. The message has details."""


def earlier_record(
    published: Path, partial: Path, source: Source, *, keeps_earlier: bool = False
) -> Record | None:
    """Return the record of this source to continue. A partial one is newer than the published.

    Args:
        keeps_earlier: The published record is continued, of any source (`Experiment`).

    Raises:
        Refused: The partial record is of another source. It is not overwritten.
    """
    if keeps_earlier:
        return records.load(published) if published.exists() else None
    if partial.exists():
        found = records.load(partial)
        if records.is_of(found, source):
            return found
        raise Refused(
            f"{partial} has {len(found.units)} units of commit {found.commit[:7]}, and the last "
            f"commit of src/ is {source.commit[:7]} now. Check out that commit to continue, or "
            "remove the file to begin again."
        )
    found = records.load(published) if published.exists() else None
    return found if found and records.is_of(found, source) else None


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
    if found is not None and experiment.keeps_earlier:
        return replace(new, seed=found.seed, units=found.units)
    if found is None or not records.is_of(found, source):
        return new
    if found.complete and found.settings != new.settings:
        return new  # The plan has changed since.
    for name in ("scale", "machine", "settings", "tuning"):
        if getattr(found, name) != getattr(new, name):
            raise Refused(
                f"The record of {experiment.name} has another {name}: {getattr(found, name)} "
                f"instead of {getattr(new, name)}. Remove it to begin again."
            )
    return found


def seed_of_new_record(experiment: Experiment) -> int:
    """Return a random seed if the experiment needs fresh ones, otherwise 1."""
    return random.SystemRandom().choice(DRAWN_SEEDS) if experiment.draws_seed else 1


def keep_failures(record: Record) -> None:
    """Let failed units run again. The failures stay in the record under other keys."""
    for unit in record.units:
        if unit.failure and FAILED_TRY not in unit.key:
            earlier = sum(key.startswith(f"{unit.key}{FAILED_TRY}") for key in record.keys)
            unit.key = f"{unit.key}{FAILED_TRY}{earlier + 1}"


class Units:
    """The units of one run. Several threads may run them at the same time.

    A unit begins only when one as long as the longest so far would end before `until_s`. The
    first unit of a run always begins.
    """

    def __init__(
        self,
        experiment: Experiment,
        record: Record,
        context: Context,
        save: Callable[[Record], None],
        until_s: float,
        is_unchanged: Callable[[], bool],
        now_s: Callable[[], float],
    ) -> None:
        self._experiment = experiment
        self._record = record
        self._context = context
        self._save = save
        self._until_s = until_s
        self._is_unchanged = is_unchanged
        self._now_s = now_s
        self._lock = threading.Lock()
        self._running: list[Unit] = []
        self._begun: dict[str, int] = {}
        self._longest_s = 0.0
        self._is_stopped = False

    def run(self, measure: Measure) -> None:
        """Run one unit after another until no unit is left, or until one raises an exception."""
        try:
            while (unit := self._begin()) is not None:
                began_s = self._now_s()
                try:
                    values, failure = measure(unit.key), ""
                except BrokenPromise as error:
                    values, failure = {}, str(error)
                    self._context.report(f"{self._experiment.name} {unit.key}: {error}")
                if not self._is_unchanged():
                    raise Refused(f"src/ changed during {unit.key}, which is not recorded.")
                self._end(unit, values, failure, round(self._now_s() - began_s, 1))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Begin no further unit."""
        self._is_stopped = True

    def _begin(self) -> Unit | None:
        with self._lock:
            if self._is_stopped:
                return None
            planned = replace(self._record, units=[*self._record.units, *self._running])
            key = self._experiment.next_unit(planned)
            is_late = self._longest_s and self._now_s() + self._longest_s > self._until_s
            if key is None or is_late:
                return None
            load = round(os.getloadavg()[0], 2)
            unit = Unit(key, records.now(), 0.0, load, failure=RUNNING)
            self._running.append(unit)
            self._begun[key] = len(self._begun)
            return unit

    def _end(self, unit: Unit, values: Values, failure: str, seconds: float) -> None:
        with self._lock:
            self._running.remove(unit)
            unit.values, unit.failure, unit.seconds = values, failure, seconds
            first = self._experiment.unit_s if not self._longest_s else 0.0
            self._longest_s = max(self._longest_s, seconds, first)
            self._record.units.append(unit)
            # In the order in which the units began; those of earlier runs come first.
            self._record.units.sort(key=lambda each: self._begun.get(each.key, -1))
            self._save(self._record)
        self._context.report(f"{self._experiment.name} {unit.key}: recorded, {seconds:.0f} s")


def run_units(
    experiment: Experiment,
    record: Record,
    context: Context,
    save: Callable[[Record], None],
    until_s: float,
    is_unchanged: Callable[[], bool] = lambda: True,
    now_s: Callable[[], float] = time.monotonic,
    jobs: int = 1,
) -> bool:
    """Do the missing units, `jobs` of them at a time. Return whether all are recorded."""
    if experiment.next_unit(record) is None:
        return True
    units = Units(experiment, record, context, save, until_s, is_unchanged, now_s)
    with experiment.session(record, context) as measure:
        if jobs == 1:
            units.run(measure)
        else:
            _run_in_threads(units, measure, context, jobs)
    return experiment.next_unit(record) is None


def _run_in_threads(units: Units, measure: Measure, context: Context, jobs: int) -> None:
    """Run units in threads. An interrupt of this process reaches all running commands."""
    with ThreadPoolExecutor(jobs) as threads:
        running = [threads.submit(units.run, measure) for _ in range(jobs)]
        try:
            for each in running:
                each.result()
        except KeyboardInterrupt:
            units.stop()
            for command in tuple(context.commands):
                command.send_signal(signal.SIGINT)
            raise


def run(
    experiment: Experiment,
    folder: Path,
    report: Callable[[str], None],
    *,
    minutes: float = MINUTES_MAX,
    scale: float = 1.0,
    seed: int | None = None,
    trial: bool = False,
    retry: bool = False,
    jobs: int = 1,
) -> Record:
    """Run an experiment. Its record is partial if the time was not enough for all units.

    Args:
        seed: The seed of a new record (default: `seed_of_new_record`).

    Raises:
        Refused: `src/` has uncommitted changes or changed since the first part of the record, or
            the experiment does not allow `jobs` units at the same time.
    """
    if jobs > experiment.jobs_max:
        raise Refused(f"At most {experiment.jobs_max} of its units may run at the same time.")
    until_s = time.monotonic() + minutes * 60 - RESERVE_S
    source = source_state.source()
    if source.modified and not trial:
        raise Refused("src/ has uncommitted changes. Commit them first, or add --trial --out DIR.")
    if not Path(odradek.__file__).resolve().is_relative_to(ROOT / source_state.SOURCE_FOLDER):
        raise Refused(
            f"Python imports odradek from {odradek.__file__}, which is not the src/ of this "
            "checkout. Set PYTHONPATH to it."
        )
    paths = records.published(experiment.name, folder), records.partial(experiment.name, folder)
    # A trial does not need to touch all free memory first.
    needs_memory = experiment.is_timed and scale >= TRIAL_SCALE
    memory = steady_memory(report) if needs_memory else contextlib.nullcontext(False)
    with (
        owned(paths[1]),
        alone(is_timed=needs_memory),
        work_directory(report) as work,
        memory as steady,
    ):
        found = earlier_record(*paths, source, keeps_earlier=experiment.keeps_earlier)
        machine = description(steady_memory=steady, peers=experiment.has_peer)
        del machine["date"]  # Each unit has its own.
        seed = seed_of_new_record(experiment) if seed is None else seed
        record = begin(experiment, source, machine, seed, scale, found)
        if retry:
            keep_failures(record)

        def save(now: Record) -> None:
            now.complete = experiment.next_unit(now) is None
            is_published = now.complete or experiment.keeps_earlier
            records.save(now, paths[0] if is_published else paths[1])
            if now.complete:
                paths[1].unlink(missing_ok=True)

        def is_unchanged() -> bool:
            return trial or source_state.source() == source

        context = Context(work, report)
        run_units(experiment, record, context, save, until_s, is_unchanged, jobs=jobs)
    return record


@contextmanager
def alone(*, is_timed: bool) -> Iterator[None]:
    """Keep experiments from running beside one that measures speed.

    Raises:
        Refused: A timed experiment runs, or this one is timed and any other experiment runs.
    """
    with _locked(
        cache_directory() / "evidence.lock",
        fcntl.LOCK_EX if is_timed else fcntl.LOCK_SH,
        "Another experiment is running, and one of the two measures speed, which needs the machine "
        "alone. Start this one when the other has ended.",
    ):
        yield


@contextmanager
def owned(partial: Path) -> Iterator[None]:
    """Keep other processes from writing this partial record.

    Raises:
        Refused: Another process runs this experiment, perhaps as a piece of a killed run.
    """
    partial.parent.mkdir(parents=True, exist_ok=True)
    reason = f"Another process runs this experiment and writes {partial}."
    with _locked(partial.with_suffix(".lock"), fcntl.LOCK_EX, reason):
        yield


@contextmanager
def _locked(path: Path, operation: int, reason: str) -> Iterator[None]:
    with path.open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(reason) from None
        yield
