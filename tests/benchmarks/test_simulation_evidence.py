"""The records of simulations and of the bugs planted in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.evidence import record as records
from benchmarks.evidence import simulations
from benchmarks.evidence.pages import is_publishable
from benchmarks.evidence.planted_bugs import BUGS, PlantedBugs, is_met
from benchmarks.evidence.record import Record, Unit, Values
from benchmarks.evidence.runner import DRAWN_SEEDS, begin
from benchmarks.evidence.simulation_import import NoBatchError, add, parse
from benchmarks.evidence.simulations import LOADS, Simulations, after_last_violation, hours

from testkit.source_state import Source
from tests.simulation.__main__ import Batch, _options
from tests.simulation.cluster_mutants import CLUSTER_MUTANTS
from tests.simulation.coordinator_mutants import COORDINATOR_MUTANTS
from tests.simulation.simulation import Outcome

SOURCE = Source("c" * 40, "t" * 40, False)
LATER = Source("d" * 40, "u" * 40, False)
MACHINE = {"processor": "2 x fast"}
HOUR_S = 3600.0


def batch(first: int = 0, source: Source = SOURCE, **values: Any) -> Values:
    found = {"brokers": 3, "replicas": 3, "load": "swarm", "first": first, "runs": 25,
             "simulated_s": HOUR_S, "cpu_s": 90.0, "coverage": {}, "violations": {},
             "commit": source.commit, "src_commit": source.commit,
             "src_tree": source.tree}  # fmt: skip
    return {**found, **values}


def record_of(*batches: Values, source: Source = SOURCE) -> Record:
    found = begin(Simulations(), source, MACHINE, 1, 1.0, None)
    for number, values in enumerate(batches):
        found.units.append(Unit(f"unit/{number}", "2026-11-25", 1.0, 0.0, values))
    return found


def test_batches_alternate_between_the_loads_and_their_seeds_never_repeat() -> None:
    experiment, record = Simulations(), record_of()
    seeds = set()
    for number in range(8):
        key = experiment.next_unit(record)
        assert key is not None
        command = experiment.command(record, key)
        assert ("--nominal" in command) == (LOADS[number % len(LOADS)].name == "nominal")
        load = next(each for each in LOADS if key.startswith(each.prefix))
        first = int(command[command.index("--seed") + 1])
        found = {(load.prefix, seed) for seed in range(first, first + 25)}
        assert not seeds & found
        seeds |= found
        record.units.append(Unit(key, "", 1.0, 0.0, batch(first)))


def test_a_batch_beside_a_running_one_has_other_seeds() -> None:
    experiment, record = Simulations(), record_of()
    keys = []
    for _ in range(5):
        keys.append(experiment.next_unit(record))
        record.units.append(Unit(str(keys[-1]), "", 0.0, 0.0, failure="running"))
    assert len(set(keys)) == 5


def test_runs_end_with_enough_hours_in_all_and_after_the_last_violation() -> None:
    experiment = Simulations()
    earlier = [batch(source=Source("b" * 40, "s" * 40, False))] * 380
    record = record_of(*earlier, *[batch()] * 29)
    assert experiment.next_unit(record) is not None
    record.units.append(Unit("last", "", 1.0, 0.0, batch()))
    assert experiment.next_unit(record) is None
    assert experiment.next_unit(record_of(*earlier[:369], *[batch()] * 30)) is not None
    record.units.append(Unit("bad", "", 1.0, 0.0, batch(violations={"7": "lost"})))
    assert experiment.next_unit(record) is not None
    assert "violations of this commit: 7" in experiment.defect(record)
    record.units += [Unit(f"more/{n}", "", 1.0, 0.0, batch()) for n in range(30)]
    record.complete = experiment.next_unit(record) is None
    assert record.complete
    assert not experiment.defect(record)


def test_the_last_hours_are_of_the_present_source() -> None:
    later = record_of(batch(), batch(source=LATER), source=LATER)
    assert hours(after_last_violation(later)) == 1
    assert hours(after_last_violation(record_of(batch(), batch()))) == 2
    assert after_last_violation(record_of(batch(violations={"1": "x"}))) == []
    assert (
        hours(after_last_violation(record_of(batch(), batch(source=LATER, violations={"1": "x"}))))
        == 1
    )


def test_the_sentence_on_the_last_hours_names_violations_of_the_same_commit() -> None:
    experiment = Simulations()
    clean = record_of(batch(), batch(source=LATER, violations={"1": "x"}), batch())
    assert experiment.snippets(clean)["simulation.summary"] == (
        "3.0 simulated hours in all, 75 runs, 1 with a violation. The last 2.0 hours are of commit "
        f"`{SOURCE.commit[:7]}` of src/ and have no violation."
    )
    bad = record_of(batch(), batch(violations={"1": "x", "2": "y"}), batch())
    assert experiment.snippets(bad)["simulation.summary"] == (
        "3.0 simulated hours in all, 75 runs, 2 with a violation. 2 of these runs are of commit "
        f"`{SOURCE.commit[:7]}` of src/. The record has 1.0 hours of that commit after the batch "
        "with the last of them."
    )


def test_a_record_of_simulations_keeps_the_batches_of_earlier_commits(tmp_path: Path) -> None:
    experiment, old = Simulations(), record_of(batch())
    found = begin(experiment, LATER, {"processor": "another"}, 9, 1.0, old)
    assert (found.commit, found.src_tree, found.seed) == (LATER.commit, LATER.tree, 1)
    assert found.units == old.units
    assert not records.is_due(replace(found, complete=True), LATER, found.settings)
    assert records.is_due(replace(found, complete=True), SOURCE, found.settings)
    assert is_publishable(found, experiment)
    assert not is_publishable(found, PlantedBugs())


def test_the_tables_have_a_row_for_each_commit_and_load() -> None:
    counts = {"operations": 1_000, "leader changes": 2}
    record = record_of(
        batch(0, coverage=counts),
        batch(25, coverage=counts, violations={"30": "a record is lost"}),
        batch(100, coverage=counts),
        batch(0, brokers=5),
        batch(7, replicas=1, runs=1, source=LATER),
    )
    text = Simulations().snippets(record)["simulation"]
    assert "| `ccccccc` | 3 | swarm | 0 to 49, 100 to 124 | 75 | 3.00 | 25.0 ms | 1 |" in text
    assert "| `ccccccc` | 5 | swarm | 0 to 24 | 25 | 1.00 | 25.0 ms | none |" in text
    assert "| `ddddddd` | 3, 1 replica | swarm | 7 | 1 | 1.00 | 25.0 ms | none |" in text
    assert "| 0 to 49, 100 to 124 | 3,000 | 6 |  |" in text
    assert "- `ccccccc`, seed 30: a record is lost" in text
    assert "5.0 simulated hours in all, 101 runs, 1 with a violation." in text


def outcome(seed: int, *violations: str) -> Outcome:
    found = Outcome(seed, [*violations], "", f"trace-{seed}", 1_000, 120.5)
    found.counts.update({"operations": 400, "polls": 7})
    return found


def test_the_simulator_prints_the_values_of_a_batch() -> None:
    found = Batch()
    found.add(outcome(5), 2.0)
    found.add(outcome(6, "lost", "and more"), 3.0)
    values = found.values(_options(["--brokers", "3", "--seed", "5", "--runs", "2", "--nominal"]))
    assert (values["first"], values["runs"], values["load"]) == (5, 2, "nominal")
    assert (values["simulated_s"], values["cpu_s"]) == (241.0, 5.0)
    assert values["violations"] == {"6": "lost"}
    kept = simulations.kept(values)["coverage"]
    assert kept["operations"] == 800
    assert [*kept] == [*simulations.COVERAGE]


OUTPUT = """seed 70: trace d8c6e772436f8f21, 62,073 steps, 20.0 ms/s
seed 71: trace 5e7b2af70a369c24, 69,125 steps, 30.0 ms/s
    78088095 plain:40215< 56 02720d11
  VIOLATION 78.188 s: other bytes
  VIOLATION 78.188 s: clients still wait for responses
  repeat: python -m tests.simulation --seed 71 --brokers 3
seed 72: trace 5e7b2af70a369c24, 69,125 steps, 100.0 s, 30.0 ms/s
"""
END = """coverage: ELRs 1,816, operations 2,021, transactions committed, protocol 1 12
320 simulated s, 25.0 ms of CPU a second
seeds with violations: [71]
"""


def test_the_output_of_a_batch_becomes_a_unit() -> None:
    values = parse(OUTPUT + END, 3, "swarm")
    assert (values["first"], values["runs"]) == (70, 3)
    assert (values["simulated_s"], values["cpu_s"]) == (320.0, 8.0)
    assert values["violations"] == {"71": "78.188 s: other bytes"}
    assert values["coverage"]["operations"] == 2_021


def test_an_interrupted_batch_counts_with_its_finished_seeds() -> None:
    values = parse(OUTPUT, 3, "swarm")
    assert values["runs"] == 3
    assert values["simulated_s"] == 220.0, "the length of a run with a violation is not known"
    assert values["cpu_s"] == pytest.approx(5.4)
    assert values["coverage"] == {}
    for text in ("", "seed 70: trac", OUTPUT.replace("seed 71", "seed 75")):
        with pytest.raises(NoBatchError):
            parse(text, 3, "swarm")


def test_a_batch_that_is_added_again_replaces_the_earlier_one() -> None:
    record = record_of()
    for runs in (3, 4):
        add(record, batch(70, runs=runs), "2026-11-25")
    add(record, batch(70, source=LATER), "2026-11-25")
    assert [unit.values["runs"] for unit in record.units] == [4, 25]


# -- planted bugs ----------------------------------------------------------------------------------


def test_the_planted_bugs_are_those_of_the_simulated_cluster() -> None:
    mutants = (*CLUSTER_MUTANTS, *COORDINATOR_MUTANTS)
    assert [*BUGS] == [mutant.name for mutant in mutants]


def test_each_bug_has_five_attempts_with_seeds_of_their_own() -> None:
    experiment, seeds = PlantedBugs(), []
    for number in (1, DRAWN_SEEDS[0], DRAWN_SEEDS[0] + 1, DRAWN_SEEDS[-1]):
        record = begin(experiment, SOURCE, MACHINE, number, 1.0, None)
        while (key := experiment.next_unit(record)) is not None:
            command = experiment.command(record, key)
            seeds.append(int(command[command.index("--seed") + 1]))
            record.units.append(Unit(key, "", 1.0, 0.0, attempt(3)))
        assert len(record.units) == 5 * len(BUGS)
        assert not experiment.defect(record)
    assert all(b - a >= 200 for a, b in zip(sorted(seeds), sorted(seeds)[1:], strict=False))


def test_a_new_record_of_planted_bugs_repeats_no_run_of_an_earlier_one() -> None:
    assert PlantedBugs.draws_seed


def attempt(found_in: int | None) -> Values:
    what = "1.0 s: log end 7" if found_in else ""
    return {"seed": 5_000, "found_in": found_in, "violation": what}


def test_a_bug_is_found_in_each_attempt_and_early_in_the_median_one() -> None:
    assert is_met([1, 2, 40, 199, 200])
    assert not is_met([1, 2, 41, 199, 200])
    assert not is_met([1, 2, 3, 4, None])
    assert not is_met([])
    experiment = PlantedBugs()
    record = begin(experiment, SOURCE, MACHINE, 1, 1.0, None)
    for number, runs in enumerate((1, None, 3, 4, 5), start=1):
        for name in BUGS:
            values = attempt(runs if name == "no-maximal-isr" else 1)
            record.units.append(Unit(f"{name}/{number}", "", 1.0, 0.0, values))
    assert experiment.defect(record) == "not found soon enough: no-maximal-isr"
    text = experiment.snippets(record)["planted-bugs"]
    assert (
        "| 1, **not found**, 3, 4, 5 | 4 | each within 200, median within 40: **missed** |" in text
    )
    assert "| 1, 1, 1, 1, 1 | 1 | each within 200, median within 40: met |" in text
    assert text.count("\n- `no-maximal-isr`, seed ") == 4
    assert "\n- `no-maximal-isr`, seed 5004: 1.0 s: log end 7\n" in text
