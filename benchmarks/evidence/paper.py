"""Commits to ZooKeeper, as in Kafka's first paper, compared with the topic of offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import zookeeper_commits
from benchmarks.evidence.experiment import (
    Context,
    Experiment,
    Measure,
    NotRun,
    first_missing,
    pairs_at,
)
from benchmarks.evidence.record import Record, Values
from benchmarks.tables import median, show, table
from benchmarks.zookeeper_commits import COMMITS, ROWS, SIDES
from testkit.zookeeper import ZooKeeperUnavailable

ROUNDS = 9


class ZooKeeperCommits(Experiment):
    """Units `round/N`: each side once, in alternating order."""

    name = "zookeeper-commits"
    title = "offsets committed to ZooKeeper and to the topic of offsets"
    minutes = 10
    unit_s = 60.0
    is_timed = True

    def settings(self, scale: float) -> Values:
        return {"rounds": pairs_at(scale, ROUNDS), "commits": int(COMMITS * scale)}

    def next_unit(self, record: Record) -> str | None:
        rounds = range(1, record.settings["rounds"] + 1)
        return first_missing([f"round/{number}" for number in rounds], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        try:
            with zookeeper_commits.running(context.work) as measure_round:
                measure_round(0, record.scale)
                yield lambda key: measure_round(int(key.removeprefix("round/")), record.scale)
        except ZooKeeperUnavailable as error:
            raise NotRun(str(error)) from error

    def snippets(self, record: Record) -> dict[str, str]:
        units = list(record.values.values())
        if not units:
            return {self.name: record.taken}
        lines, values = [], []
        for row, (title, _, _) in ROWS.items():
            for metric, unit in (("rate", "commits/s"), ("cpu_us", "CPU-µs of the server")):
                each = {side: [found[side][row][metric] for found in units] for side in SIDES}
                middle = [show(median(each[side])) for side in SIDES]
                pairs = zip(each["offsets_topic"], each["zookeeper"], strict=True)
                ratio = show(median([ours / theirs for ours, theirs in pairs if theirs]))
                lines.append([title, unit, *middle, ratio])
                values += [
                    [title, unit, SIDES[side], ", ".join(map(show, each[side]))] for side in SIDES
                ]
        columns = ["", "unit", *SIDES.values(), "ratio, median"]
        text = [f"{len(units)} rounds in alternating order after a warm-up. {record.taken}", ""]
        text += [*table(columns, lines), ""]
        text += table(["all values", "unit", "", ""], values)
        return {self.name: "\n".join(text)}
