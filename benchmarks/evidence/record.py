"""Records of experiments: the file format, and the due records."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from testkit.peer.artifacts import ROOT
from testkit.source_state import SOURCE_FOLDER, Source, git

DOCS = ROOT / "docs"
FOLDER = DOCS / "evidence"
Values = dict[str, Any]


@dataclass(slots=True)
class Unit:
    """One recorded piece of work, with raw values or the failure that it found."""

    key: str
    date: str
    seconds: float
    load_average: float
    values: Values = field(default_factory=dict)
    failure: str = ""


@dataclass(slots=True)
class Record:
    """The contents of one file. See the docstring of the package for the format."""

    experiment: str
    commit: str
    src_tree: str
    seed: int
    machine: dict[str, str]
    settings: Values
    scale: float = 1.0
    tuning: dict[str, dict[str, str]] | None = None
    src_modified: bool = False
    complete: bool = False
    units: list[Unit] = field(default_factory=list)

    @property
    def values(self) -> dict[str, Values]:
        """The raw values of each unit that has no failure, by key."""
        return {unit.key: unit.values for unit in self.units if not unit.failure}

    @property
    def failures(self) -> dict[str, str]:
        return {unit.key: unit.failure for unit in self.units if unit.failure}

    @property
    def keys(self) -> set[str]:
        return {unit.key for unit in self.units}

    @property
    def date(self) -> str:
        """The days of the first and the last unit."""
        days = sorted(unit.date[:10] for unit in self.units)
        if not days:
            return "-"
        return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"

    @property
    def taken(self) -> str:
        """The date, the machine and the commit of the values, for the text above a table."""
        machine = ", ".join(self.machine.values())
        scaled = "" if self.scale == 1.0 else f" Scaled by {self.scale:g}."
        modified = " with uncommitted changes" if self.src_modified else ""
        copied = " Copied from an earlier page." if self.settings.get("origin") else ""
        where = f"of commit `{self.commit[:7]}`{modified}. Machine: {machine}."
        return f"Taken on {self.date} {where}{scaled}{copied}"


def load(path: Path) -> Record:
    found = json.loads(path.read_text(encoding="utf-8"))
    found.pop("date", None)  # of the units
    return Record(**{**found, "units": [Unit(**unit) for unit in found["units"]]})


def save(record: Record, path: Path) -> None:
    """Replace the file atomically, one unit a line, so that a stop never leaves a partial file."""
    found = {"experiment": record.experiment, "date": record.date, **asdict(record)}
    units = [{k: v for k, v in unit.items() if v != "" and v != {}} for unit in found.pop("units")]
    lines = ",\n  ".join(json.dumps(unit, ensure_ascii=False) for unit in units)
    head = json.dumps(found, indent=1, ensure_ascii=False).removesuffix("\n}")
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(f'{head},\n "units": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
    new.replace(path)


def published(name: str, folder: Path = FOLDER) -> Path:
    return folder / f"{name}.json"


def partial(name: str, folder: Path = FOLDER) -> Path:
    return folder / "partial" / f"{name}.json"


def is_of(record: Record, source: Source) -> bool:
    """Return whether the record was measured with this source."""
    same = record.src_tree == source.tree or record.commit == source.commit
    return same and record.src_modified == source.modified


def is_due(record: Record | None, source: Source, settings: Values, scale: float = 1.0) -> bool:
    """Return whether the experiment is due: no complete record of this source exists."""
    return record is None or not (
        record.complete
        and record.scale == scale
        and is_of(record, source)
        and record.settings == settings
    )


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Age(NamedTuple):
    """The commits that changed `src/` since a record's.

    Attributes:
        commits: The number of these commits.
        measured: How many of them changed what the experiment runs.
    """

    commits: int
    measured: int


def commits_since(record: Record, not_run: tuple[str, ...] = (), root: Path = ROOT) -> Age | None:
    """Return the commits since the record's, or None if git does not know it.

    Args:
        record: The record.
        not_run: The packages of `odradek` that its experiment does not run.
        root: The checkout.
    """
    try:
        if git("rev-parse", f"HEAD:{SOURCE_FOLDER}", root=root) == record.src_tree:
            return Age(0, 0)
        counted = ("rev-list", "--count", f"{record.commit}..HEAD", "--", SOURCE_FOLDER)
        without = [f":(exclude){SOURCE_FOLDER}/odradek/{package}" for package in not_run]
        return Age(int(git(*counted, root=root)), int(git(*counted, *without, root=root)))
    except LookupError:
        return None
