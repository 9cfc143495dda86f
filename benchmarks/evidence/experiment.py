"""The contract of an experiment, and experiments whose units are commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.evidence.record import Record, Values
from benchmarks.tuning import Tuning, as_shipped
from testkit.peer.artifacts import ROOT

Measure = Callable[[str], Values]
"""Does the work of the unit with this key and returns its raw values."""

ENDS_WITHIN_S = 60.0
RUNNING = "running"
FAILURE_MAX = 500


class BrokenPromise(Exception):
    """A unit found a violation of a guarantee. It is recorded as a failure."""


class NotRun(Exception):
    """A unit could not be run. Nothing is recorded, and the next start tries it again."""


@dataclass(frozen=True, slots=True)
class Context:
    """The tools of a session: a directory for its files, and a function that shows progress.

    `commands` has the running commands, so that an interrupt can reach all of them.
    """

    work: Path
    report: Callable[[str], None]
    commands: set[subprocess.Popen[str]] = field(default_factory=set)


class Experiment(ABC):
    """One experiment. Everything but `session` is pure.

    Attributes:
        name: of its record, its make target and its markers in the pages.
        title: one line for the list.
        minutes: estimated duration of the experiment at full scale, in minutes.
        unit_s: estimated duration of a unit in seconds, until a unit has been measured.
        has_peer: whether another broker runs, so that the record needs its tuning.
        is_timed: whether speed is measured, which needs the machine alone.
        jobs_max: number of units that may run at the same time.
        keeps_earlier: whether the record keeps the units of earlier commits of src/. Such a record
            is published from its first unit on, and its units name their commit.
        not_run: the packages of `odradek` that the experiment does not run. A change of them makes
            the record older, and not the figures.
        draws_seed: whether a new record draws its seed at random, so that it repeats no random
            choice of an earlier record.
    """

    name: str
    title: str
    minutes: int
    unit_s: float = 60.0
    has_peer: bool = False
    is_timed: bool = False
    jobs_max: int = 1
    keeps_earlier: bool = False
    draws_seed: bool = False
    not_run: tuple[str, ...] = ("demo", "pipeline", "registry")

    @abstractmethod
    def settings(self, scale: float) -> Values:
        """Return the settings of the experiment, for the record."""

    @abstractmethod
    def next_unit(self, record: Record) -> str | None:
        """The key of the next unit; None when the record is complete.

        If units run at the same time, the record has the running ones with the failure `RUNNING`.
        """

    @abstractmethod
    def session(self, record: Record, context: Context) -> AbstractContextManager[Measure]:
        """Set up what units share, such as running brokers."""

    @abstractmethod
    def snippets(self, record: Record) -> dict[str, str]:
        """The text for each marker `NAME` or `NAME.part` in the pages."""

    def without_record(self) -> str:
        """The text for the pages before the first record."""
        return f"No record exists yet: `make evidence-{self.name}`."

    def tuning(self) -> Tuning | None:
        """Return the settings of both sides for the record, or None without a peer."""
        return as_shipped() if self.has_peer else None

    def verdict(self, record: Record) -> str:
        """Return one line for the list of experiments, or an empty string if the table has it."""
        return f"{len(record.failures)} failed" if record.failures else ""

    def defect(self, record: Record) -> str:
        """Return the verdict if it is a defect of Odradek, or an empty string."""
        return self.verdict(record)


def first_missing(keys: list[str], record: Record) -> str | None:
    """The next unit of an experiment with a fixed plan."""
    return next((key for key in keys if key not in record.keys), None)


def pairs_at(scale: float, pairs: int) -> int:
    """Return the number of pairs. A trial at a small scale needs only a few."""
    return pairs if scale >= 1.0 else max(2, round(pairs * scale))


class CommandExperiment(Experiment):
    """Each unit is a command. Its last line on stdout is the unit's values as a JSON object.

    An object with the key `failure` is a broken promise. A command that ends with an error and
    without such an object has not been run.
    """

    timeout_s: float = 1800.0
    jobs_max = 4

    @abstractmethod
    def command(self, record: Record, key: str) -> list[str]:
        """The arguments of the Python interpreter."""

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        yield lambda key: run_command(self.command(record, key), self.timeout_s, context)


def run_command(arguments: list[str], timeout_s: float, context: Context) -> Values:
    """Run Python with these arguments and return the object on its last line.

    When this process is interrupted the command is interrupted too, so that it can stop the
    brokers that it started.
    """
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    context.commands.add(process)
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _interrupt(process)
        raise NotRun(f"{' '.join(arguments)} did not end within {timeout_s:.0f} s") from None
    except BaseException:
        _interrupt(process)
        raise
    finally:
        context.commands.discard(process)
    lines = output.strip().splitlines()
    try:
        values = json.loads(lines[-1])
        assert isinstance(values, dict)
    except (IndexError, ValueError, AssertionError):
        shown = f"{output[-1500:]}{errors[-1500:]}"
        raise NotRun(f"{' '.join(arguments)} ended with {process.returncode}: {shown}") from None
    for line in lines[:-1]:
        context.report(line)
    if failure := values.get("failure"):
        raise BrokenPromise(one_line(str(failure)))
    return values


def one_line(text: str) -> str:
    """Return a text for a line of a table, without line breaks and column separators."""
    shown = " ".join(text.split()).replace("|", "\\|")
    return shown if len(shown) <= FAILURE_MAX else f"{shown[:FAILURE_MAX]} ..."


def _interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
