"""The computations of the benchmarks, without measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.amqp import Confirmed
from benchmarks.evidence import measured
from benchmarks.evidence.experiment import Context, NotRun
from benchmarks.evidence.measured import Partitions
from benchmarks.evidence.record import Record, Unit
from benchmarks.tables import judged
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import many_partitions, other_brokers, tuning


@given(st.permutations(range(1, 30)), st.sets(st.integers(1, 29)))
def test_confirmations_in_any_order_are_all_counted(tags: list[int], multiple: set[int]) -> None:
    confirmed = Confirmed()
    seen: set[int] = set()
    for tag in tags:
        seen |= set(range(1, tag + 1)) if tag in multiple else {tag}
        confirmed.take(tag, multiple=tag in multiple)
        assert set(range(1, confirmed.upper + 1)) <= seen
        assert confirmed.upper + 1 not in seen
    assert confirmed.upper == 29


def test_a_target_is_met_or_missed_by_its_sign() -> None:
    assert judged(1.0, (">=", 1.0)) == ">= 1: met"
    assert judged(1.0, ("<", 1.0)) == "< 1: **missed**"
    assert judged(0.3, ("<=", 0.3)) == "<= 0.3: met"
    assert judged(7.0, None) == ""


def test_a_verdict_that_the_rounded_ratio_contradicts_gives_more_digits() -> None:
    assert judged(1.0981, (">=", 1.1)) == ">= 1.1: **missed** (1.098)"
    assert judged(1.1019, ("<=", 1.1)) == "<= 1.1: **missed** (1.102)"
    assert judged(1.089, (">=", 1.1)) == ">= 1.1: **missed**"


def test_of_many_partitions_the_pairs_alternate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order: list[str] = []

    class Broker:
        def __init__(self, directory: Path) -> None:
            self.name = directory.name

        def stop(self) -> None:
            order.append("stop")

    def restarted(broker: Any, _: int) -> tuple[Any, dict[str, float]]:
        order.append(broker.name.removeprefix("many-"))
        return broker, {"stop_s": float(len(order))}

    monkeypatch.setattr(many_partitions, "STARTERS", {"odradek": Broker, "kafka": Broker})
    monkeypatch.setattr(many_partitions, "figures", lambda _: {"open_files": 7.0})
    monkeypatch.setattr(many_partitions, "fill", lambda *_: 0.5)
    monkeypatch.setattr(many_partitions, "restarted", restarted)
    with many_partitions.running(("odradek", "kafka"), 10, tmp_path) as pair:
        found = [pair(number) for number in (0, 1)]
    assert order == ["odradek", "kafka", "kafka", "odradek", "stop", "stop"]
    before = {"empty": {"open_files": 7.0}, "create_s": 0.5}
    assert found[1] == {"kafka": {"stop_s": 3.0, **before}, "odradek": {"stop_s": 4.0, **before}}


def test_the_cost_of_an_idle_partition_excludes_the_broker_without_topics() -> None:
    def broker(open_files: float) -> dict[str, Any]:
        values = dict.fromkeys(
            ("start_s", "served_s", "stop_s", "memory_bytes", "mapped_files"), 1.0
        )
        empty = {"open_files": 10.0, "memory_bytes": 1.0, "mapped_files": 1.0}
        return {**values, "open_files": open_files, "empty": empty, "create_s": 1.0}

    units = [
        Unit(f"pair/{n}", "", 1.0, 0.0, {"odradek": broker(files), "kafka": broker(50.0)})
        for n, files in enumerate((30.0, 28.0, 40.0))
    ]
    settings = {"pairs": 3, "partitions": 10}
    text = Partitions().snippets(Record("partitions", "c", "t", 1, {}, settings, units=units))
    assert "| an idle partition | files | 2 | 4 | 0.5 |  |" in text["partitions"]


def test_the_file_system_of_a_path_is_that_of_the_longest_mount_point() -> None:
    mounts = ["/dev/a / ext4 rw 0 0", "tmpfs /srv tmpfs rw 0 0", "/dev/b /srv xfs rw 0 0"]
    assert tuning.file_system(mounts, Path("/srv/x")) == "xfs"
    assert tuning.file_system(mounts, Path("/srvfiles")) == "ext4"
    assert tuning.file_system([], Path("/srv")) == "unknown"


def test_the_table_of_the_first_paper_is_not_taken_without_all_its_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_brokers, "RABBIT_LIBRARY", tmp_path)
    experiment = measured.FirstPaper()
    record = Record("first-paper", "c", "t", 1, {}, {"pairs": 2})
    context = Context(tmp_path, print)
    with pytest.raises(NotRun, match="rabbitmq-server"), experiment.session(record, context):
        pass
