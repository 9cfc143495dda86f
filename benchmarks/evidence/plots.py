"""Pictures that are made from records. Each holds the checksum of the record that it shows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evidence import paired
from benchmarks.evidence import record as records
from benchmarks.evidence.compared import peak_memory
from benchmarks.evidence.record import Record
from benchmarks.plot import MIB, Column, plot

COMMENT = "Comment"


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture beside its record, with the extension .png."""

    name: str
    columns: Callable[[Record], list[Column]]

    def path(self, folder: Path) -> Path:
        return records.published(self.name, folder).with_suffix(".png")

    def write(self, folder: Path) -> None:
        source = records.published(self.name, folder)
        columns = self.columns(records.load(source))
        plot(columns, self.path(folder), {COMMENT: checksum(source)})

    def is_current(self, folder: Path) -> bool:
        source, path = records.published(self.name, folder), self.path(folder)
        if not source.exists():
            return not path.exists()
        return path.exists() and checksum(source).encode() in path.read_bytes()


def checksum(path: Path) -> str:
    """Return the checksum that a picture stores to identify its record."""
    return f"sha256 of the record: {hashlib.sha256(path.read_bytes()).hexdigest()}"


def first_table(record: Record) -> list[Column]:
    """A column for each load: throughput (or p99) above, CPU below; memory and start come last."""
    described = record.settings["rows"]
    columns: list[Column] = []
    for row, about in described.items():
        if row == "start" or not paired.runs(record, row):
            continue
        metrics = about["metrics"]
        above = ("p99", "p99 in µs, less is better") if "p99" in metrics else (
            "rate", f"{metrics['rate']}, more is better")  # fmt: skip
        below = ("cpu_s", f"{metrics['cpu_s']}, less is better")
        panels = [
            (label, {name: paired.each(record, row, name, metric) for name in paired.NAMES})
            for metric, label in (above, below)
        ]
        columns.append((about["title"], panels))
    memory = {name: [value / MIB] for name, value in peak_memory(record).items()}
    starts = {name: paired.each(record, "start", name, "ms") for name in paired.NAMES}
    panels = [("ms to the first response", starts), ("MiB at the peak", memory)]
    return [*columns, ("start, and memory", panels)]


PLOTS = {"first-table": Plot("first-table", first_table)}
