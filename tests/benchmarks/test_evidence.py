"""Records of experiments: due records, continued runs, and refused records."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.evidence import __main__ as evidence
from benchmarks.evidence import record as records
from benchmarks.evidence import runner, work
from benchmarks.evidence.experiment import (
    BrokenPromise,
    Context,
    Experiment,
    Measure,
    NotRun,
    first_missing,
    run_command,
)
from benchmarks.evidence.record import Record, Unit, Values
from benchmarks.evidence.runner import Refused, begin, keep_failures, run_units
from hypothesis import given
from hypothesis import strategies as st

import odradek
from testkit import source_state
from testkit.peer.artifacts import ROOT
from testkit.source_state import Source

SOURCE = Source("c" * 40, "t" * 40, False)
MACHINE = {"processor": "2 x fast"}
SILENT = Context(Path(), lambda _: None)
KEYS = [f"row/{pair}" for pair in range(1, 6)]


class Numbers(Experiment):
    """Units that measure their own number, and a clock on which each takes ten seconds."""

    name = "numbers"
    title = "numbers"
    minutes = 1
    unit_s = 10.0

    def __init__(self, failing: str = "", crashing: str = "") -> None:
        self.failing, self.crashing = failing, crashing
        self.now_s = 0.0
        self.measured: list[str] = []
        self.sessions = 0

    def settings(self, scale: float) -> Values:
        return {"pairs": 5}

    def next_unit(self, record: Record) -> str | None:
        return first_missing(KEYS, record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        self.sessions += 1

        def measure(key: str) -> Values:
            self.now_s += 10
            self.measured.append(key)
            if key == self.crashing:
                raise NotRun("no broker")
            if key == self.failing:
                raise BrokenPromise("3 records are lost")
            return {"number": int(key[-1])}

        yield measure

    def snippets(self, record: Record) -> dict[str, str]:
        return {}

    def run(self, record: Record, until_s: float = 1000.0, **named: Any) -> bool:
        context = Context(Path(), lambda _: None)
        return run_units(self, record, context, named.pop("save", lambda _: None), until_s,
                         now_s=lambda: self.now_s, **named)  # fmt: skip


def record(**changes: Any) -> Record:
    found = begin(Numbers(), SOURCE, MACHINE, 1, 1.0, None)
    return replace(found, **changes)


def complete() -> Record:
    units = [Unit(key, "2026-11-23T08:00:00+00:00", 10.0, 0.5, {"number": 1}) for key in KEYS]
    return record(units=units, complete=True)


def test_an_experiment_is_due_without_a_complete_full_record_of_the_source() -> None:
    settings = {"pairs": 5}
    assert not records.is_due(complete(), SOURCE, settings)
    assert records.is_due(None, SOURCE, settings)
    assert records.is_due(replace(complete(), complete=False), SOURCE, settings)
    assert records.is_due(replace(complete(), scale=0.5), SOURCE, settings)
    assert records.is_due(complete(), Source("d" * 40, "u" * 40, False), settings)
    assert records.is_due(complete(), SOURCE, {"pairs": 9})
    # A trial on uncommitted changes is never evidence for what is committed.
    assert records.is_due(replace(complete(), src_modified=True), SOURCE, settings)


def test_a_rebase_that_leaves_src_as_it_was_makes_nothing_due() -> None:
    rebased = Source("e" * 40, SOURCE.tree, False)
    assert not records.is_due(complete(), rebased, {"pairs": 5})


def test_each_unit_is_saved_and_a_stopped_run_continues_where_it_was() -> None:
    found = record()
    saved: list[int] = []
    first = Numbers()
    assert not first.run(found, until_s=35.0, save=lambda now: saved.append(len(now.units)))
    assert first.now_s <= 35 and saved == [1, 2, 3]
    second = Numbers()
    assert second.run(found)
    assert first.measured + second.measured == KEYS
    assert [values["number"] for values in found.values.values()] == [1, 2, 3, 4, 5]
    third = Numbers()
    assert third.run(found) and not third.measured and not third.sessions


@given(st.lists(st.floats(10.0, 200.0), min_size=1, max_size=30))
def test_any_number_of_stops_measures_each_unit_once(limits: list[float]) -> None:
    found = record()
    measured: list[str] = []
    for until_s in [*limits, *[1000.0] * 5]:
        piece = Numbers()
        piece.run(found, until_s)
        assert piece.now_s <= until_s
        measured += piece.measured
    assert measured == KEYS


def test_a_broken_promise_is_recorded_and_the_run_goes_on() -> None:
    found = record()
    assert Numbers(failing="row/2").run(found)
    assert found.failures == {"row/2": "3 records are lost"}
    assert len(found.values) == 4


def test_a_unit_that_could_not_be_run_is_not_recorded() -> None:
    found = record()
    with pytest.raises(NotRun):
        Numbers(crashing="row/3").run(found)
    assert [unit.key for unit in found.units] == KEYS[:2]


def test_a_unit_during_which_the_source_changed_is_not_recorded() -> None:
    found = record()
    states = iter([True, False])
    with pytest.raises(Refused):
        Numbers().run(found, is_unchanged=lambda: next(states))
    assert [unit.key for unit in found.units] == KEYS[:1]


def test_a_failed_unit_that_runs_again_leaves_its_failure_in_the_record() -> None:
    found = record()
    for _ in range(2):
        assert Numbers(failing="row/2").run(found)
        keep_failures(found)
    again = Numbers()
    assert again.run(found) and again.measured == ["row/2"]
    assert found.failures == {
        f"row/2/failed try {number}": "3 records are lost" for number in (1, 2)
    }
    assert set(found.values) == set(KEYS)


def test_a_record_of_another_source_is_begun_again() -> None:
    other = Source("d" * 40, "u" * 40, False)
    found = begin(Numbers(), other, MACHINE, 7, 1.0, complete())
    assert not found.units and found.commit == other.commit and found.seed == 7


def test_a_record_of_the_same_source_keeps_its_seed_and_units() -> None:
    assert begin(Numbers(), SOURCE, MACHINE, 7, 1.0, complete()) == complete()


@pytest.mark.parametrize(
    "change", [{"machine": {"processor": "4 x slow"}}, {"scale": 0.5}, {"settings": {"pairs": 9}}]
)
def test_units_of_another_machine_scale_or_plan_are_not_mixed(change: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=next(iter(change))):
        begin(Numbers(), SOURCE, MACHINE, 1, 1.0, record(**change))


def test_a_record_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    found = replace(complete(), tuning={"odradek": {"send buffer": "1 byte"}})
    found.units[1] = replace(found.units[1], values={}, failure="lost µ")
    path = records.published("numbers", tmp_path)
    records.save(found, path)
    assert records.load(path) == found
    assert path.read_text(encoding="utf-8").count("\n") < 40  # one unit a line
    assert [each.name for each in tmp_path.iterdir()] == ["numbers.json"]


def repository(path: Path, files: tuple[str, ...] = ("src/a", "docs/b", "src/c")) -> Path:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=path, check=True, capture_output=True)

    git("init", "--quiet")
    for number, name in enumerate(files):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(str(number))
        git("add", ".")
        git("commit", "--quiet", "-m", name)
    return path


def test_commits_of_packages_that_an_experiment_does_not_run_are_counted_apart(
    tmp_path: Path,
) -> None:
    root = repository(tmp_path, ("src/odradek/log/a", "src/odradek/pipeline/b", "src/odradek/c"))
    first = record(commit=source_state.git("rev-parse", "HEAD~2", root=root))
    assert records.commits_since(first, ("pipeline", "registry"), root) == (2, 1)
    assert records.commits_since(first, (), root) == (2, 2)


def test_each_package_that_an_experiment_does_not_run_exists() -> None:
    named = {name for experiment in evidence.EXPERIMENTS.values() for name in experiment.not_run}
    assert named and all((ROOT / "src" / "odradek" / name).is_dir() for name in named)


def test_the_commit_of_a_record_is_the_last_one_that_changed_src(tmp_path: Path) -> None:
    root = repository(tmp_path)
    head = source_state.git("rev-parse", "HEAD", root=root)
    first = source_state.git("rev-parse", "HEAD~2", root=root)
    found = source_state.source(root)
    assert found.commit == head and not found.modified
    assert records.commits_since(record(commit=head, src_tree=found.tree), (), root) == (0, 0)
    assert records.commits_since(record(commit=first), (), root) == (1, 1)
    assert records.commits_since(record(commit="f" * 40), (), root) is None
    (root / "docs" / "b").write_text("other")
    assert not source_state.source(root).modified
    (root / "src" / "new").write_text("not added")
    assert source_state.source(root).modified


def test_the_values_of_a_command_are_its_last_line() -> None:
    lines: list[str] = []
    program = "print('seed 4'); print('{\"kills\": 3}')"
    assert run_command(["-c", program], 30.0, Context(Path(), lines.append)) == {"kills": 3}
    assert lines == ["seed 4"]


def test_a_command_that_reports_a_failure_breaks_a_promise() -> None:
    with pytest.raises(BrokenPromise, match="lost"):
        run_command(["-c", 'print(\'{"failure": "7 is lost"}\'); exit(1)'], 30.0, SILENT)


def test_a_failure_is_one_line_of_a_table() -> None:
    program = "import json; print(json.dumps({'failure': 'a | b\\nc ' + 'x' * 999}))"
    with pytest.raises(BrokenPromise) as found:
        run_command(["-c", program], 30.0, SILENT)
    assert str(found.value).startswith("a \\| b c xxx") and len(str(found.value)) < 510


@pytest.mark.parametrize("program", ["raise OSError('no port')", "pass", "print(7)"])
def test_a_command_without_values_was_not_run(program: str) -> None:
    with pytest.raises(NotRun):
        run_command(["-c", program], 30.0, SILENT)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Source]:
    """The states of src/ in git. The last item of the list is the current state."""
    found = [SOURCE]
    # The lock of the experiments, and the directories of killed runs.
    for name in ("XDG_CACHE_HOME", "TMPDIR"):
        path = tmp_path.parent / f"{tmp_path.name}-{name}"
        path.mkdir()
        monkeypatch.setenv(name, str(path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(source_state, "source", lambda: found[-1])
    return found


def run_in(folder: Path, experiment: Experiment, **options: Any) -> Record:
    return runner.run(experiment, folder, lambda _: None, **options)


def test_uncommitted_changes_of_src_are_refused_and_a_trial_is_marked(
    tmp_path: Path, sources: list[Source]
) -> None:
    sources.append(replace(SOURCE, modified=True))
    with pytest.raises(Refused, match="uncommitted"):
        run_in(tmp_path, Numbers())
    assert not list(tmp_path.iterdir())
    assert run_in(tmp_path, Numbers(), trial=True).src_modified
    assert records.load(records.published("numbers", tmp_path)).src_modified


def test_a_partial_record_is_published_when_it_is_complete(
    tmp_path: Path, sources: list[Source]
) -> None:
    published = records.published("numbers", tmp_path)
    with pytest.raises(NotRun):
        run_in(tmp_path, Numbers(crashing="row/4"), seed=7)
    assert not published.exists()
    partial = records.load(records.partial("numbers", tmp_path))
    assert [unit.key for unit in partial.units] == KEYS[:3] and not partial.complete
    found = run_in(tmp_path, Numbers(), seed=9)
    assert found.complete and found.seed == 7
    assert records.load(published) == found
    assert not records.partial("numbers", tmp_path).exists()


def test_a_new_record_draws_its_seed_where_it_needs_fresh_seeds(
    tmp_path: Path, sources: list[Source]
) -> None:
    assert run_in(tmp_path / "fixed", Numbers()).seed == 1
    drawing, drawn = Numbers(), []
    drawing.draws_seed = True
    for number in range(3):
        drawn.append(run_in(tmp_path / str(number), drawing).seed)
        assert run_in(tmp_path / str(number), drawing).seed == drawn[-1]
    assert len(set(drawn)) == 3 and set(drawn) <= set(runner.DRAWN_SEEDS)
    assert run_in(tmp_path / "by hand", drawing, seed=7).seed == 7


def test_a_record_of_an_older_source_stays_until_the_new_one_is_complete(
    tmp_path: Path, sources: list[Source]
) -> None:
    old = run_in(tmp_path, Numbers())
    sources.append(Source("d" * 40, "u" * 40, False))
    with pytest.raises(NotRun):
        run_in(tmp_path, Numbers(crashing="row/2"))
    assert records.load(records.published("numbers", tmp_path)) == old
    new = run_in(tmp_path, Numbers())
    assert records.load(records.published("numbers", tmp_path)) == new != old


def test_a_partial_record_of_another_source_is_refused_and_kept(
    tmp_path: Path, sources: list[Source]
) -> None:
    with pytest.raises(NotRun):
        run_in(tmp_path, Numbers(crashing="row/4"))
    partial = records.partial("numbers", tmp_path)
    before = partial.read_text()
    sources.append(Source("d" * 40, "u" * 40, False))
    with pytest.raises(Refused, match=r"3 units of commit ccccccc.* is ddddddd now"):
        run_in(tmp_path, Numbers())
    assert partial.read_text() == before
    sources.append(SOURCE)
    rest = Numbers()
    assert run_in(tmp_path, rest).complete and rest.measured == KEYS[3:]


class Parallel(Numbers):
    """Units that end only when another unit has begun, and the last one when all others ended."""

    jobs_max = 2

    def __init__(self, failing: str = "", crashing: str = "") -> None:
        super().__init__(failing, crashing)
        self.meeting = threading.Barrier(2)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        with super().session(record, context) as measure:

            def measure_together(key: str) -> Values:
                if key != KEYS[-1]:
                    self.meeting.wait(60)
                return measure(key)

            yield measure_together


def test_two_units_at_a_time_are_each_measured_once_and_recorded_in_their_order(
    tmp_path: Path, sources: list[Source]
) -> None:
    found = run_in(tmp_path, Parallel(failing="row/2"), jobs=2)
    assert found.complete and [unit.key for unit in found.units] == KEYS
    assert found.failures == {"row/2": "3 records are lost"}
    assert [values["number"] for values in found.values.values()] == [1, 3, 4, 5]


def test_a_unit_that_could_not_be_run_lets_the_unit_beside_it_end(
    tmp_path: Path, sources: list[Source]
) -> None:
    with pytest.raises(NotRun):
        run_in(tmp_path, Parallel(crashing="row/3"), jobs=2)
    partial = records.load(records.partial("numbers", tmp_path))
    assert [unit.key for unit in partial.units][:2] == KEYS[:2]
    assert "row/3" not in partial.keys and not partial.failures


def test_an_experiment_that_measures_speed_has_one_unit_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="At most 1"):
        run_in(tmp_path, Numbers(), jobs=2)


def test_nothing_runs_beside_an_experiment_that_measures_speed(sources: list[Source]) -> None:
    with runner.alone(is_timed=False), runner.alone(is_timed=False):
        with pytest.raises(Refused), runner.alone(is_timed=True):
            pass
    with runner.alone(is_timed=True):
        with pytest.raises(Refused), runner.alone(is_timed=False):
            pass


def test_two_processes_do_not_run_the_same_experiment(
    tmp_path: Path, sources: list[Source]
) -> None:
    with runner.owned(records.partial("numbers", tmp_path)):
        with pytest.raises(Refused, match="Another process"):
            run_in(tmp_path, Numbers())
    assert run_in(tmp_path, Numbers()).complete


def test_the_processes_of_a_killed_run_end_when_the_next_run_begins(
    tmp_path: Path, sources: list[Source]
) -> None:
    program = (
        "import subprocess, sys, time\n"
        "from benchmarks.evidence.work import work_directory\n"
        "with work_directory(print) as work:\n"
        "    child = subprocess.Popen(['sleep', '600'], cwd=work, stdout=subprocess.DEVNULL)\n"
        "    print(work, child.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE,
                             text=True)  # fmt: skip
    assert owner.stdout is not None
    path, pid = owner.stdout.readline().split()
    assert pid in map(str, work.processes_in(Path(path)))
    lines: list[str] = []
    with work.work_directory(lines.append) as other:
        assert Path(path).exists() and other != Path(path) and not lines
    owner.kill()
    owner.communicate()
    with work.work_directory(lines.append):
        assert not Path(path).exists()
    assert lines == [f"killing process {pid}, which a killed run left in {path}"]
    wait_until(lambda: not work.processes_in(Path(path)) and not is_alive(int(pid)))


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A process that ended and has no parent to read it does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_temporary_files_of_a_run_are_in_its_directory(sources: list[Source]) -> None:
    with work.work_directory(print) as path:
        assert Path(tempfile.mkdtemp()).parent == path
        program = "import tempfile, os; print(os.path.dirname(tempfile.mkdtemp()))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stdout.strip() == str(path)
    assert not path.exists() and Path(tempfile.mkdtemp()).parent == path.parent


def test_another_copy_of_odradek_is_refused(
    tmp_path: Path, sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(odradek, "__file__", str(tmp_path / "src" / "odradek" / "__init__.py"))
    with pytest.raises(Refused, match="PYTHONPATH"):
        run_in(tmp_path, Numbers())


@pytest.fixture
def pieces(
    tmp_path: Path, sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Experiment], list[list[str]]]:
    """Experiments that the next pieces run, one each, and the commands of the pieces."""
    planned: list[Experiment] = []
    commands: list[list[str]] = []

    def piece(command: list[str]) -> int:
        commands.append(command)
        try:
            return 0 if run_in(tmp_path, planned.pop(0)).complete else 2
        except NotRun:
            return 1

    monkeypatch.setattr(evidence, "_piece", piece)
    monkeypatch.setattr(evidence, "handle_signals", lambda: None)
    monkeypatch.setattr(evidence, "EXPERIMENTS", {"numbers": Numbers()})
    return planned, commands


def run_several(tmp_path: Path) -> int:
    return evidence.main(["run", "--out", str(tmp_path), "--jobs", "9"])


def test_a_piece_that_fails_is_repeated_while_units_are_recorded(
    tmp_path: Path, pieces: tuple[list[Experiment], list[list[str]]]
) -> None:
    planned, commands = pieces
    planned += [Numbers(crashing="row/2"), Numbers(crashing="row/4"), Numbers()]
    assert run_several(tmp_path) == 0
    assert len(commands) == 3
    assert commands[0][commands[0].index("--jobs") + 1] == "1"


def test_a_piece_that_fails_without_a_new_unit_is_not_repeated(
    tmp_path: Path, pieces: tuple[list[Experiment], list[list[str]]]
) -> None:
    planned, commands = pieces
    planned += [Numbers(crashing="row/2"), Numbers(crashing="row/2")]
    assert run_several(tmp_path) == 1
    assert len(commands) == 2 and not planned


def test_a_broken_promise_is_reported_by_a_run_of_several(
    tmp_path: Path, pieces: tuple[list[Experiment], list[list[str]]]
) -> None:
    planned, _ = pieces
    planned.append(Numbers(failing="row/2"))
    assert run_several(tmp_path) == 1


def test_failed_units_run_again_on_request(tmp_path: Path, sources: list[Source]) -> None:
    assert run_in(tmp_path, Numbers(failing="row/2")).failures
    again = Numbers()
    assert run_in(tmp_path, again, retry=True).complete
    assert again.measured == ["row/2"]
    found = records.load(records.published("numbers", tmp_path))
    assert set(found.failures) == {"row/2/failed try 1"}


def test_an_interrupt_reaches_the_command_and_its_child_processes(tmp_path: Path) -> None:
    """The command removes its file on the way out, as a harness stops its broker."""
    program = (
        "import sys, time\n"
        "path = sys.argv[1]\n"
        "try:\n"
        "    open(path, 'w').close()\n"
        "    time.sleep(60)\n"
        "finally: __import__('os').remove(path)\n"
    )
    path = tmp_path / "running"
    runner_program = (
        "from pathlib import Path\n"
        "from benchmarks.evidence.experiment import Context, run_command\n"
        f"run_command(['-c', {program!r}, {str(path)!r}], 60.0, Context(Path(), print))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", runner_program], cwd=ROOT,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    wait_until(path.exists)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert not path.exists()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
