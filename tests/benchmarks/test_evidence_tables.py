"""Tables from records: verdicts, the pages between their markers, and the check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.evidence import __main__ as evidence
from benchmarks.evidence import compared, histories, kills, leader_kills, pages, process_faults
from benchmarks.evidence import record as records
from benchmarks.evidence.catalogue import EXPERIMENTS
from benchmarks.evidence.experiment import RUNNING
from benchmarks.evidence.plots import PLOTS, Plot
from benchmarks.evidence.record import FOLDER, Record, Unit, Values
from conformance.faults.schedule import DECK
from conformance.histories.mutants import MUTANTS

from testkit.peer.artifacts import ROOT


def record_of(name: str, units: dict[str, Values], **changes: Any) -> Record:
    found = Record(name, "c" * 40, "t" * 40, 1, {"processor": "fast"}, {})
    found.settings = EXPERIMENTS[name].settings(1.0)
    found.units = [Unit(key, "2026-11-23T08:00:00", 1.0, 0.0, v) for key, v in units.items()]
    return replace(found, **changes)


# --- the pages ---


def test_each_table_in_the_pages_agrees_with_its_record() -> None:
    assert pages.problems(EXPERIMENTS, ROOT) == []


@pytest.mark.parametrize("name", PLOTS)
def test_each_picture_is_of_its_record(name: str) -> None:
    assert PLOTS[name].is_current(FOLDER), "make evidence-render"


def test_each_experiment_has_a_table_in_a_page() -> None:
    found = pages.pages(ROOT)
    shown = {name.partition(".")[0] for page in found for name in page.names}
    assert shown == {*EXPERIMENTS, pages.LIST, pages.MISSED}


class Site:
    """A repository with one page of one experiment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.page = root / "docs" / "page.md"
        self.page.parent.mkdir()
        self.page.write_text("# P\n\n<!-- evidence: mutants -->\n<!-- end of evidence -->\n\nend\n")
        self.folder = root / "docs" / "evidence"
        self.experiments = {"mutants": EXPERIMENTS["mutants"]}

    def save(self, **changes: Any) -> None:
        found = {"anomalies": {"duplicate": 2}}
        record = record_of("mutants", {"no-dedupe/1": found}, complete=True, **changes)
        records.save(record, records.published("mutants", self.folder))

    def problems(self) -> list[str]:
        return pages.problems(self.experiments, self.root)


def test_a_rendered_page_has_no_problems_until_text_or_record_changes(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.save()
    assert len(site.problems()) == 1
    assert pages.render(site.experiments, tmp_path) == [site.page]
    assert site.problems() == [] and pages.render(site.experiments, tmp_path) == []
    text = site.page.read_text()
    assert "| no-dedupe | a batch that comes again" in text and text.endswith("\n\nend\n")
    site.page.write_text(text.replace("| 1 | duplicate |", "| 2 | duplicate |"))
    assert len(site.problems()) == 1
    site.page.write_text(text)
    site.save(seed=2, machine={"processor": "slow"})
    assert len(site.problems()) == 1


def test_a_page_without_a_record_says_how_to_make_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    pages.render(site.experiments, tmp_path)
    assert "`make evidence-mutants`" in site.page.read_text()
    assert site.problems() == []


@pytest.mark.parametrize("change", [{"src_modified": True}])
def test_a_trial_is_not_published(tmp_path: Path, change: dict[str, Any]) -> None:
    site = Site(tmp_path)
    site.save(**change)
    pages.render(site.experiments, tmp_path)
    assert site.problems() == ["docs/evidence/mutants.json: a trial or incomplete"]


def test_a_record_that_no_page_shows_and_an_open_marker_are_problems(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.save()
    site.page.write_text("<!-- evidence: mutants -->\n")
    assert site.problems() == [
        "docs/page.md: a marker has no end",
        "docs/evidence/mutants.json: no page shows it",
    ]


def test_each_missed_target_is_listed_with_its_row(tmp_path: Path) -> None:
    rates = {"odradek": {"rate": 1.0, "cpu_ms": 1.0, "client_cpu_ms": 1.0},
             "kafka": {"rate": 2.0, "cpu_ms": 2.0, "client_cpu_ms": 1.0}}  # fmt: skip
    record = record_of("commits", {"commits_1/1": {"commits_1": rates}}, complete=True)
    records.save(record, records.published("commits", tmp_path))
    title = record.settings["rows"]["commits_1"]["title"]
    text = pages.missed(EXPERIMENTS, tmp_path)
    assert text.splitlines()[2:] == [f"| `commits` | {title}: commits/s | >= 1: **missed** |"]
    assert pages.missed(EXPERIMENTS, tmp_path / "none") == "Every row meets its target."


def test_values_with_a_page_of_their_own_are_no_record(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.save()
    pages.render(site.experiments, tmp_path)
    values = site.folder / "commits-1-2.json"
    values.write_text("{}")
    assert site.problems() == ["docs/evidence/commits-1-2.json: no such experiment"]
    values.with_suffix(".md").write_text("# Two commits\n")
    assert site.problems() == []


def test_the_age_of_each_record_is_listed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.save()
    cases = (
        (records.Age(0, 0), "current"),
        (records.Age(3, 1), "3 commits of src/ since, 1 of them in what it runs"),
        (None, "unknown"),
    )
    for age, shown in cases:
        (line,) = pages.ages(site.experiments, site.folder, lambda *_, age=age: age)
        assert line.startswith("mutants") and line.endswith(shown)
    (line,) = pages.ages(site.experiments, tmp_path)
    assert line.endswith("no record")


def test_a_picture_knows_the_record_that_it_was_made_from(tmp_path: Path) -> None:
    plot = Plot("mutants", lambda _: [("t", [("a", VALUES), ("b", VALUES)])])
    assert plot.is_current(tmp_path)
    path = records.published("mutants", tmp_path)
    records.save(record_of("mutants", {}), path)
    assert not plot.is_current(tmp_path)
    plot.write(tmp_path)
    assert plot.is_current(tmp_path)
    records.save(record_of("mutants", {}, seed=2), path)
    assert not plot.is_current(tmp_path)


VALUES = {"odradek": [1.0], "kafka": [2.0]}


# --- tables ---


def idempotent(plain: list[Values], with_it: list[Values]) -> Record:
    """Pairs of the load `large_batches`: by row the values of both brokers."""
    units = {
        f"large_batches/{n}": {
            "plain.large_batches": pair[0],
            "idempotent.large_batches": pair[1],
        }
        for n, pair in enumerate(zip(plain, with_it, strict=True), 1)
    }
    return record_of("idempotent", units)


def rates(ours: float, theirs: float) -> Values:
    return {name: {"rate": rate, "cpu_s": 1.0} for name, rate in
            (("odradek", ours), ("kafka", theirs))}  # fmt: skip


def test_idempotence_is_judged_by_the_two_ratios_of_the_table() -> None:
    record = idempotent(
        [rates(2, 1), rates(9, 3), rates(5, 5)], [rates(3, 2), rates(5, 2), rates(3, 2)]
    )
    # The median ratios are 2 and 1.5. The quotients of the pairs are 0.75, 0.83 and 1.5.
    assert compared.of_plain(record, "large_batches", "rate") == 0.75
    text = compared.of_plain_verdict(record, "idempotent.large_batches", "rate")
    assert text.startswith("0.75 of the plain one (by pair: 0.833, quartiles ")
    assert text.endswith(">= 0.9: **missed**")


def test_a_peer_that_grows_faster_while_it_is_measured_does_not_make_idempotence_look_worse() -> (
    None
):
    pairs = [rates(8, kafka) for kafka in (1, 2, 4)]
    assert compared.of_plain(idempotent(pairs, pairs), "large_batches", "rate") == 1.0


@pytest.mark.parametrize(
    ("ours", "expected"),
    [(10.0, ">= 0.9: met"), (9.0, ">= 0.9: met"), (8.9, ">= 0.9: **missed**")],
)
def test_every_row_with_idempotent_producers_is_judged(ours: float, expected: str) -> None:
    record = idempotent([rates(10, 1)] * 3, [rates(ours, 1)] * 3)
    text = compared.of_plain_verdict(record, "idempotent.large_batches", "rate")
    assert text.endswith(expected)
    assert compared.of_plain_verdict(record, "plain.large_batches", "rate") == ""


def test_all_produce_rows_of_the_first_table_have_a_row_with_idempotent_producers() -> None:
    rows = set(EXPERIMENTS["idempotent"].settings(1.0)["rows"])
    produce = {key for key in EXPERIMENTS["first-table"].settings(1.0)["rows"]
               if "fetch" not in key and key != "start"}  # fmt: skip
    assert rows == {f"{kind}.{key}" for key in produce for kind in ("plain", "idempotent")}


def test_latencies_under_a_millisecond_apart_are_equal_in_the_first_table() -> None:
    assert compared.judged_latency(9.0, ("<=", 1.1), [999.0, 1.0]).endswith("(under 1 ms apart)")
    assert compared.judged_latency(9.0, ("<=", 1.1), [1002.0, 1.0]).endswith("**missed**")


def run_of(seed: int, kills: int, **anomalies: int) -> Values:
    return {
        "seed": seed, "seconds": 60.0, "operations": 1000, "records_sent": 5, "records_read": 7,
        "transactions": {"1": {"ok": 4, "fail": 2}, "2": {"ok": 1, "info": 1}},
        "faults": {"broker-kill": kills, "broker-stop": 1, "net-cut": 2, "client-kill": 3},
        "anomalies": anomalies, "allowed": 9, "idle": [], "complete": True,
    }  # fmt: skip


def test_histories_continue_until_they_have_the_seconds_and_the_kills() -> None:
    experiment = EXPERIMENTS["histories"]
    record = record_of("histories", {}, seed=100)
    seeds = []
    while (key := experiment.next_unit(record)) is not None:
        seeds.append(int(key.removeprefix("seed ")))
        # One run in three is too slow for more than one kill.
        kills = 1 if len(seeds) % 3 == 0 else histories.KILLS_A_RUN
        record.units.append(Unit(key, "", 60.0, 0.0, run_of(seeds[-1], kills)))
    assert seeds == list(range(100, 100 + len(seeds)))
    assert len(seeds) == 120
    assert sum(map(histories.sigkills, record.values.values())) >= histories.KILLS_ALL
    modes = [histories.MODES[seed % len(histories.MODES)] for seed in seeds]
    assert set(modes) == set(histories.MODES)


def test_without_enough_kills_histories_continue_after_two_hours() -> None:
    units = {f"seed {n}": run_of(n, 2) for n in range(1, 121)}
    assert EXPERIMENTS["histories"].next_unit(record_of("histories", units)) == "seed 121"


def test_a_seed_that_could_not_be_run_is_run_again_and_no_seed_twice() -> None:
    """Two runs at the same time: the first one is not recorded, the second one is."""
    experiment = EXPERIMENTS["histories"]
    record = record_of("histories", {"seed 2": run_of(2, 4)})
    assert experiment.next_unit(record) == "seed 1"
    record.units.append(Unit("seed 1", "", 0.0, 0.0, failure=RUNNING))
    assert experiment.next_unit(record) == "seed 3"


def test_runs_against_one_mutant_are_not_made_at_the_same_time() -> None:
    first, second, *_ = histories.MUTANTS
    record = record_of("mutants", {})
    record.units.append(Unit(f"{first}/1", "", 0.0, 0.0, failure=RUNNING))
    assert EXPERIMENTS["mutants"].next_unit(record) == f"{second}/1"


@pytest.mark.parametrize(("name", "code"), [("histories", 1), ("histories-kafka", 0)])
def test_an_anomaly_of_odradek_makes_the_run_fail_and_one_of_kafka_does_not(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of(name, {"seed 1": run_of(1, 4, duplicate=3)}, complete=True)
    monkeypatch.setattr(evidence, "run", lambda *_, **__: record)
    monkeypatch.setattr(evidence, "handle_signals", lambda: None)
    assert evidence.main(["run", name, "--out", str(tmp_path)]) == code


def test_only_programs_that_fail_with_odradek_are_defects() -> None:
    record = record_of("delivery", {})
    record.units = [Unit("kafka/exactly_once", "", 1.0, 0.0, failure="no copies")]
    experiment = EXPERIMENTS["delivery"]
    assert experiment.verdict(record) == "1 failed" and experiment.defect(record) == ""
    record.units.append(Unit("odradek/exactly_once", "", 1.0, 0.0, failure="no copies"))
    assert experiment.defect(record) == "failed: odradek/exactly_once"


def test_each_run_of_the_histories_is_listed_with_its_anomalies() -> None:
    units = {"seed 11": run_of(11, 4), "seed 12": run_of(12, 0, duplicate=3)}
    found = EXPERIMENTS["histories"].snippets(record_of("histories", units))
    assert "| 11 | assign | 1,000 | 5/2/1 | 1/0/1 | 5/7 | 5 (4)/2/3 | 0 | 9 |" in found["histories"]
    assert "| **duplicate 3** |" in found["histories"]
    assert (
        "2 runs, 120 s in all, 4 SIGKILLs of the broker, 1 runs without any, 3 anomalies"
        in (found["histories.summary"])
    )


def leader_run_of(seed: int, kills: int, **values: object) -> Values:
    clients = dict.fromkeys(leader_kills.CLIENTS, 10)
    run = {"seed": seed, "records_read": 70, "faults": {"leader-kill": kills}, "anomalies": {},
           "acknowledged": clients, "complete": True}  # fmt: skip
    return {**run, **values}


def test_leaders_are_killed_until_there_are_enough_and_each_run_is_listed() -> None:
    experiment = EXPERIMENTS["leader-kills"]
    record = record_of("leader-kills", {}, seed=7)
    while (key := experiment.next_unit(record)) is not None:
        seed = int(key.removeprefix("seed "))
        record.units.append(Unit(key, "", 100.0, 0.0, leader_run_of(seed, 9)))
    assert len(record.units) == 6
    found = experiment.snippets(record)
    assert "| 7 | 9 | 10 | 10 | 10 | 10 | 10 | 70 | 0 |" in found["leader-kills"]
    assert found["leader-kills.summary"] == (
        "6 runs, 54 leaders killed, 300 acknowledged records, 0 anomalies."
    )
    assert experiment.verdict(record) == ""


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"anomalies": {"lost-write": 2}}, "**lost-write 2**"),
        ({"complete": False}, "**the final reads did not end**"),
        (
            {"acknowledged": {**dict.fromkeys(leader_kills.CLIENTS, 1), "kcat": 0}},
            "**no kcat succeeded**",
        ),
    ],
)
def test_a_run_with_killed_leaders_that_shows_nothing_is_a_defect(
    values: Values, text: str
) -> None:
    experiment = EXPERIMENTS["leader-kills"]
    record = record_of("leader-kills", {"seed 1": leader_run_of(1, 10, **values)})
    assert text in experiment.snippets(record)["leader-kills"]
    assert experiment.defect(record) == "runs with anomalies: 1"


def fault_run_of(seed: int, **values: object) -> Values:
    run = {"seed": seed, "src_commit": "a1b2c3d4e5", "faults_all": 25, "sigkills": 15,
           "processes_killed": 20, "prepared_kills": 2, "during": 3, "complete": True,
           "faults": {"kill-leader": 5, "one-way": 1}, "sessions": {"SIGKILL": 15},
           "acknowledged": {"producer": 600, "plain": 400}, "records_read": 7_000,
           "transactions": {"1": {"ok": 90, "fail": 10}}, "network": "TCP proxies",
           "clients": "txn=2,plain=1", "anomalies": {}, "broken": ""}  # fmt: skip
    return {**run, **values}


def test_faults_on_processes_go_on_until_there_are_enough_faults_and_sigkills() -> None:
    experiment = EXPERIMENTS["process-faults"]
    record = record_of("process-faults", {}, seed=7)
    while (key := experiment.next_unit(record)) is not None:
        seed = int(key.removeprefix("seed "))
        record.units.append(Unit(key, "", 100.0, 0.0, fault_run_of(seed, sigkills=14)))
    assert [unit.key for unit in record.units] == [f"seed {seed}" for seed in range(7, 29)]
    found = experiment.snippets(record)
    assert (
        "| 7 | `a1b2c3d` | 25 | 14 | 20 | 2 | 3 | 1,000 | 90 | 7,000 | 15 | TCP proxies | 0 |"
        in found["process-faults"]
    )
    assert found["process-faults.summary"] == (
        "22 runs, 550 faults, of which 308 are SIGKILLs of 440 processes. 22,000 acknowledged "
        "records outside of transactions, 0 anomalies, 0 failed runs. Faults: kill-leader 110, "
        "one-way 22. Expired sessions by cause: SIGKILL 330. Clients: txn 2, plain 1."
    )
    assert experiment.verdict(record) == ""


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"anomalies": {"lost-write": 2}}, "**lost-write 2**"),
        ({"complete": False}, "**the final reads did not end**"),
        ({"broken": "waited 90 s for a leader"}, "**waited 90 s for a leader**"),
    ],
)
def test_a_run_with_faults_on_processes_that_has_failed_is_a_defect_of_its_commit(
    values: Values, text: str
) -> None:
    experiment = EXPERIMENTS["process-faults"]
    record = record_of("process-faults", {"seed 1": fault_run_of(1, **values)})
    assert text in experiment.snippets(record)["process-faults"]
    assert experiment.verdict(record) == ""
    record.commit = "a1b2c3d4e5"
    assert experiment.verdict(record) == "runs of this commit with anomalies: 1"


def test_the_faults_of_the_experiment_are_a_deck() -> None:
    assert sum(DECK.values()) == process_faults.FAULTS_A_RUN


def test_a_mutant_is_run_until_it_is_found_and_at_most_five_times() -> None:
    experiment = EXPERIMENTS["mutants"]
    record = record_of("mutants", {})
    tried = []
    while (key := experiment.next_unit(record)) is not None:
        tried.append(key)
        kinds = {"duplicate": 1} if key == "no-dedupe/3" else {"poll-skip": 1}
        record.units.append(Unit(key, "", 60.0, 0.0, {"anomalies": kinds}))
    first, *others = histories.MUTANTS
    assert tried == [
        *(f"{first}/{n}" for n in (1, 2, 3)),
        *(f"{name}/{n}" for name in others for n in range(1, 6)),
    ]
    text = experiment.snippets(record)["mutants"]
    assert "| duplicate | 3 | duplicate |" in text
    assert text.count("**not found** in 5") == len(others)
    assert experiment.verdict(record) == f"not found: {', '.join(others)}"


def test_the_mutants_of_the_experiment_are_those_of_the_checker() -> None:
    found = {name: mutant.found_by for name, mutant in MUTANTS.items()}
    assert {name: kinds for name, (_, kinds) in histories.MUTANTS.items()} == found


def test_runs_against_mutants_have_consecutive_seeds() -> None:
    experiment = histories.Mutants()
    record = record_of("mutants", {}, seed=50)
    commands = [
        experiment.command(record, f"{name}/{attempt}")
        for name in histories.MUTANTS
        for attempt in range(1, 6)
    ]
    seeds = [int(command[command.index("--seed") + 1]) for command in commands]
    assert seeds == list(range(50, 50 + len(commands)))


def test_a_broken_promise_of_a_program_is_bold_and_a_program_without_it_is_not() -> None:
    outcome = {"records": 4500, "program_kills": 20, "broker_kills": 10, "lost": 8, "doubled": 2}
    units = {f"odradek/{program}": {program: outcome} for program in kills.PROGRAMS}
    text = EXPERIMENTS["delivery"].snippets(record_of("delivery", units))["delivery"]
    assert "| at most once | 4,500 | 20 | 10 | 8 | **2** |" in text
    assert "| at least once | 4,500 | 20 | 10 | **8** | 2 |" in text
    assert "| exactly once | 4,500 | 20 | 10 | **8** | **2** |" in text


def test_kills_are_summed_over_the_seeds_and_a_failure_is_listed() -> None:
    units = {
        f"seed {seed}": {"seed": seed, "kills": 20, "messages": 900, "torn_tails": 4}
        for seed in (1, 2)
    }
    record = record_of("sigkills", units)
    record.units.append(Unit("seed 3", "", 1.0, 0.0, failure="17 is lost"))
    text = EXPERIMENTS["sigkills"].snippets(record)["sigkills"]
    assert "| all | 40 | 1,800 | 8 | 0 | 0 | 0 |" in text
    assert "- **failed**: seed 3: 17 is lost" in text
    assert EXPERIMENTS["sigkills"].next_unit(record) == "seed 4"


def test_peak_memory_is_the_largest_of_all_units() -> None:
    units = {
        f"fetch_all/{n}": {"memory": {"odradek": {"peak_bytes": n}, "kafka": {"peak_bytes": 9}}}
        for n in (1, 3, 2)
    }
    assert compared.peak_memory(record_of("first-table", units)) == {"odradek": 3, "kafka": 9}
