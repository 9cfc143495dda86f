"""Spark's checkpoint of an ingest: the query's id, and the offsets planned for each batch.

    checkpoint/metadata       {"id": QUERY}
    checkpoint/offsets/N      "v1", a line of Spark's metadata, and a line with the end offsets of
                              batch N, {TOPIC: {PARTITION: OFFSET}}; written before batch N runs
    checkpoint/commits/N      written after batch N has run
    checkpoint/sources/0/0    a zero byte, "v1", and a line with the start offsets of batch 0

Batch N starts at the end offsets of batch N-1. A partition without an end offset in batch N-1 is
new and starts at offset 0: Spark reads it from its earliest offset and reports data loss when that
is not 0. Spark keeps the newest 100 batches and writes each file under a temporary name first, so a
killed process leaves a file whole or missing. Spark does not sync local files, so after a power
failure a file may be empty.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import PlannedRange
from odradek.pipeline.ledger.verdicts import ADVICE
from odradek.pipeline.progress import Offsets

FORMAT_VERSION = "v1"
INITIAL_OFFSETS = "sources/0/0"
METADATA = "metadata"


class Plan(NamedTuple):
    """The planned offsets of a batch.

    `went_back` is true if a partition ends before its start. Spark then reads nothing there.
    """

    ranges: tuple[PlannedRange, ...]
    went_back: bool


class TextFiles(Protocol):
    """The reading half of `sinks.files.HadoopFiles`."""

    def exists(self, path: str) -> bool: ...

    def list_names(self, path: str) -> list[str]: ...

    def read_text(self, path: str) -> str: ...


class Checkpoint:
    """The checkpoint directory of one ingest. Only Spark writes there."""

    def __init__(self, files: TextFiles, path: str) -> None:
        self._files = files
        self._path = path

    def exists(self) -> bool:
        return self._files.exists(f"{self._path}/{METADATA}")

    def query_id(self) -> str:
        """Return the id of the query. Raise PipelineError if the file is torn."""
        try:
            query_id = json.loads(self._files.read_text(f"{self._path}/{METADATA}"))["id"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._torn(METADATA) from error
        assert isinstance(query_id, str)
        return query_id

    def has_finished_batch(self) -> bool:
        return self._newest_batch("commits") >= 0

    def has_unfinished_batch(self) -> bool:
        """Return whether the newest planned batch has not finished, as after a crash."""
        return self._newest_batch("offsets") > self._newest_batch("commits")

    def check_plans_exist(self) -> None:
        """Raise PipelineError if the newest finished batch has no plan.

        Spark writes the plan of a batch before it runs and keeps both files equally long, so the
        plans were removed. Spark would start again at batch 0, and after that batch wrongly report
        that another job uses the checkpoint.
        """
        finished = self._newest_batch("commits")
        if finished > self._newest_batch("offsets"):
            raise PipelineError(
                f"The checkpoint {self._path} has finished batch {finished}, and the file"
                f" offsets/{finished} with its offsets is missing. {ADVICE}"
            )

    def check_newest_files(self) -> None:
        """Raise PipelineError if a file is torn that Spark reads first.

        Spark would stop with an error that does not say how to continue.
        """
        planned, finished = self._newest_batch("offsets"), self._newest_batch("commits")
        if planned >= 0:
            self._read_offsets(INITIAL_OFFSETS, line=1)
            self._read_offsets(f"offsets/{planned}", line=2)
        if finished >= 0:
            self._read_json(f"commits/{finished}", line=1)

    def planned_ranges(self, batch_id: int) -> tuple[PlannedRange, ...]:
        """Return the ranges of `plan`."""
        return self.plan(batch_id).ranges

    def plan(self, batch_id: int) -> Plan:
        """Return the offsets that Spark planned for a batch, by topic and partition.

        Spark writes them before the batch runs. A partition that does not advance has no range.

        Raises:
            PipelineError: A file of the plan is missing or has an unknown format.
        """
        end = self._read_offsets(f"offsets/{batch_id}", line=2)
        if batch_id == 0:
            start = self._read_offsets(INITIAL_OFFSETS, line=1)
        else:
            start = self._read_offsets(f"offsets/{batch_id - 1}", line=2)
        return Plan(ranges_between(start, end), goes_back(start, end))

    def finished_offsets(self) -> Offsets:
        """Return the end offsets of the newest finished batch. Empty without one."""
        finished = self.newest_finished()
        return self._read_offsets(f"offsets/{finished}", line=2) if finished >= 0 else {}

    def known_offsets(self) -> Offsets:
        """Return the offsets from which the query continues. Empty if it has not begun.

        Spark continues each partition here. It takes another partition for a new one, and reads it
        from offset 0.
        """
        if self.newest_finished() >= 0:
            return self.finished_offsets()
        if not self._files.exists(f"{self._path}/{INITIAL_OFFSETS}"):
            return {}
        return self._read_offsets(INITIAL_OFFSETS, line=1)

    def newest_finished(self) -> int:
        """Return the newest finished batch, or -1."""
        return self._newest_batch("commits")

    def _newest_batch(self, name: str) -> int:
        names = self._files.list_names(f"{self._path}/{name}")
        return max((int(one) for one in names if one.isdigit()), default=-1)

    def _read_offsets(self, name: str, line: int) -> Offsets:
        path = f"{self._path}/{name}"
        if not self._files.exists(path):
            raise PipelineError(
                f"The checkpoint file {path} is missing, so the offsets of the batch are unknown."
                f" {ADVICE}"
            )
        offsets: Offsets = self._read_json(name, line)
        return offsets

    def _read_json(self, name: str, line: int) -> Any:
        """Return the JSON in the last line of a file, which has the number `line`."""
        path = f"{self._path}/{name}"
        lines = self._files.read_text(path).removeprefix("\0").splitlines()
        is_other_version = bool(lines) and lines[0] != FORMAT_VERSION
        if (is_other_version and lines[0].startswith("v")) or len(lines) > line + 1:
            raise PipelineError(
                f"The checkpoint file {path} has a format that this version does not know."
                " Use the version of Spark that wrote it, or continue from the tables with"
                " --rebuild-checkpoint."
            )
        if is_other_version or len(lines) < line + 1:
            raise self._torn(name)
        try:
            return json.loads(lines[line])
        except ValueError as error:
            raise self._torn(name) from error

    def _torn(self, name: str) -> PipelineError:
        return PipelineError(
            f"The checkpoint file {self._path}/{name} is torn, as after a power failure. {ADVICE}"
        )


def ranges_between(start: Offsets, end: Offsets) -> tuple[PlannedRange, ...]:
    """Return the ranges from `start` to `end` that hold offsets, by topic and partition.

    A partition whose end lies before its start (a topic that was created again) has no range: Spark
    reads nothing there.
    """
    found = []
    for topic, partitions in end.items():
        for partition, end_offset in partitions.items():
            start_offset = start.get(topic, {}).get(partition, 0)
            if start_offset < end_offset:
                found.append(PlannedRange(topic, int(partition), start_offset, end_offset))
    return tuple(sorted(found, key=lambda one: (one.topic, one.partition)))


def goes_back(start: Offsets, end: Offsets) -> bool:
    """Return whether a partition ends before its start."""
    return any(
        end_offset < start.get(topic, {}).get(partition, 0)
        for topic, partitions in end.items()
        for partition, end_offset in partitions.items()
    )
