"""Time slices of a cluster: phases from the lines of the recorder, causes, tables, verdicts."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.evidence.catalogue import EXPERIMENTS
from benchmarks.evidence.record import Record, Unit
from benchmarks.evidence.time_slices import cause_table, phase_table, verdict, waits_table
from benchmarks.run_queue import Queued, RunQueue, busy_ms
from benchmarks.slice_figures import Mark, Process

from benchmarks import slice_figures, slice_recorder

EXPERIMENT = EXPERIMENTS["time-slices"]


def counted(at: float, callbacks: int, cpu_ms: float = 1.0) -> dict[str, Any]:
    return {"at": at, "callbacks": callbacks, "cpu_ms": cpu_ms, "wall_ms": 2 * cpu_ms,
            "by_ms": {str(int(cpu_ms)): callbacks}}  # fmt: skip


def long_slice(at: float, cpu_ms: float, **changes: Any) -> dict[str, Any]:
    found = {"at": at, "cpu_ms": cpu_ms, "wall_ms": 2 * cpu_ms, "callback": "task Connection.run",
             "stack": ["odradek.log.manager.LogManager.create:90", "asyncio.tasks.step:1"],
             "samples": [1, 1], "collections": [], "modules": 0}  # fmt: skip
    return {**found, **changes}


# --- phases ---


def test_callbacks_and_long_slices_belong_to_the_phase_in_which_they_began() -> None:
    lines = [counted(1.0, 5), counted(1.9, 7, 3.5), long_slice(1.95, 6.0), counted(2.0, 11)]
    processes = [Process(1, 0.0, 0.5, lines), Process(2, 0.0, 0.5, [counted(1.5, 100, 2.0)])]
    found = slice_figures.figures([Mark(1.0, "a"), Mark(2.0, "b")], 4.0, processes)
    first, second = found["phases"]
    assert (first["name"], first["seconds"], first["callbacks"]) == ("a", 1.0, 112)
    assert first["by_ms"] == {"1": 5, "3": 7, "2": 100}
    assert first["longest_ms"] == [3.5, 7.0]
    assert [(each["broker"], each["cpu_ms"]) for each in first["slices"]] == [(1, 6.0)]
    assert slice_figures.longest(first) == (6.0, 12.0)
    assert (second["seconds"], second["callbacks"], second["slices"]) == (2.0, 11, [])


def test_slices_before_the_first_response_of_a_process_are_counted_separately() -> None:
    lines = [long_slice(1.1, 70.0), counted(1.1, 3), long_slice(1.6, 7.0), counted(1.7, 4)]
    restarted = Process(3, 1.0, 1.5, lines)
    found = slice_figures.figures([Mark(1.0, "restart")], 3.0, [restarted])
    (phase,), (start,) = found["phases"], found["before_clients"]
    assert (phase["callbacks"], [each["cpu_ms"] for each in phase["slices"]]) == (4, [7.0])
    assert (start["name"], start["seconds"], start["callbacks"]) == ("start of broker 3", 0.5, 3)
    assert [each["cpu_ms"] for each in start["slices"]] == [70.0]


def test_lines_after_the_last_phase_do_not_count() -> None:
    found = slice_figures.figures(
        [Mark(1.0, "a")], 2.0, [Process(1, 0.0, 0.5, [long_slice(2.5, 9.0)])]
    )
    assert found["phases"][0]["slices"] == []


def test_the_incomplete_last_line_of_a_killed_process_is_ignored() -> None:
    text = f'{json.dumps(counted(1.0, 5))}\n{{"at": 1.1, "call'
    assert slice_figures.parse(text) == [counted(1.0, 5)]
    assert slice_figures.parse("") == []


# --- causes ---


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "log.manager.LogManager.create"),
        ({"collections": [[1, 0.5, 0], [2, 5.0, 9]]}, "garbage collection of generation 2"),
        ({"collections": [[2, 4.0, 0]]}, "log.manager.LogManager.create"),
        (
            {"stack": ["importlib._bootstrap._load:1", "odradek.broker.start.begin:7"]},
            "import in broker.start.begin",
        ),
        ({"stack": ["json.decoder.decode:1"]}, "json.decoder.decode"),
        ({"stack": []}, slice_figures.UNKNOWN),
    ],
)
def test_the_cause_is_the_innermost_function_of_odradek_or_a_long_collection(
    changes: dict[str, Any], cause: str
) -> None:
    assert slice_figures.cause(long_slice(1.0, 10.0, **changes)) == cause


def test_slices_of_one_cause_are_one_line_of_their_phase() -> None:
    slices = [long_slice(1.0, cpu_ms) for cpu_ms in (6.0, 9.0, 7.0)]
    slices += [long_slice(1.0, 8.0, stack=["odradek.log.log_flusher.LogFlusher.sync:5"])]
    found = slice_figures.causes([{"name": "a", "slices": slices}, {"name": "b", "slices": slices}])
    assert [(each.phase, each.cause, each.slices) for each in found] == [
        ("a", "log.manager.LogManager.create", 3),
        ("a", "log.log_flusher.LogFlusher.sync", 1),
        ("b", "log.manager.LogManager.create", 3),
        ("b", "log.log_flusher.LogFlusher.sync", 1),
    ]
    assert (found[0].median_ms, found[0].longest_ms, found[0].longest_wall_ms) == (7.0, 9.0, 18.0)


# --- the record ---


def phase(name: str, longest_ms: float, *slices: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "seconds": 1.0, "callbacks": 1200, "by_ms": {},
            "longest_ms": [longest_ms, 9.0], "slices": list(slices)}  # fmt: skip


def record(*phases: dict[str, Any]) -> Record:
    found = Record("time-slices", "c" * 40, "t" * 40, 7, {"processor": "fast"}, {})
    found.settings = EXPERIMENT.settings(1.0)
    values = {"phases": list(phases), "before_clients": [phase("start of broker 1", 0.1)]}
    found.units = [Unit("run/1", "2026-11-26T08:00:00", 1.0, 0.0, values)]
    return found


def test_a_phase_is_met_if_no_slice_exceeds_5_ms_of_cpu_time() -> None:
    assert verdict(phase("a", 4.99)) == "<= 5: met"
    assert verdict(phase("a", 5.0)) == "<= 5: met"
    assert verdict(phase("a", 1.0, long_slice(1.0, 5.2))) == "<= 5: **missed**"


def test_the_tables_have_each_phase_and_each_cause() -> None:
    phases = [phase("a", 4.2), phase("b", 1.0, long_slice(1.0, 6.0))]
    assert phase_table(phases)[2:] == [
        "| a | 1,200 | 0 | 4.2 | 9 | <= 5: met |",
        "| b | 1,200 | 1 | 6 | 12 | <= 5: **missed** |",
    ]
    assert cause_table(phases)[2:] == ["| b | `log.manager.LogManager.create` | 1 | 6 | 6 | 0 |"]
    assert cause_table(phases[:1]) == ["No time slice exceeds 5 ms."]


def test_the_texts_of_a_record_have_its_phases_starts_and_causes() -> None:
    found = EXPERIMENT.snippets(record(phase("a", 4.2), phase("b", 1.0, long_slice(1.0, 6.0))))
    assert "| b | 1,200 | 1 | 6 | 12 | <= 5: **missed** |" in found["time-slices"]
    assert "| start of broker 1 | 1,200 | 0 | 0.1 | 9 |" in found["time-slices"]
    assert "log.manager" in found["time-slices.causes"]
    assert found["time-slices.summary"] == (
        "2,400 callbacks in 2 phases. 1 of them, in 1 phases, took more than 5 ms of CPU time. "
        "The longest one took 6 ms."
    )


def test_a_record_needs_one_run_and_its_seed_is_that_of_the_record() -> None:
    done = record()
    assert EXPERIMENT.next_unit(done) is None
    done.units = []
    assert EXPERIMENT.next_unit(done) == "run/1"
    assert EXPERIMENT.command(done, "run/1")[-4:] == ["--seed", "7", "--scale", "1.0"]


# --- the waits for a processor ---


def waits(busy_above: int, busy: float, wall_above: int, wall: float) -> dict[str, Any]:
    return {"busy_above": busy_above, "longest_busy_ms": [busy, busy + 1],
            "wall_above": wall_above, "longest_wall_ms": wall}  # fmt: skip


def test_the_counts_of_wall_times_and_waits_are_added_over_the_lines_of_a_phase() -> None:
    lines = [
        {**counted(1.0, 5), **waits(1, 5.5, 2, 9.0)},
        {**counted(1.1, 5), **waits(0, 1.0, 1, 30.0)},
    ]
    (found,) = slice_figures.figures([Mark(1.0, "a")], 2.0, [Process(1, 0, 0.5, lines)])["phases"]
    assert {name: found[name] for name in waits(0, 0, 0, 0)} == waits(1, 5.5, 3, 30.0)
    assert waits_table([found])[2:] == [
        "| a, less waits | 3 | 30 | 1 | 5.5 | 6.5 | <= 5: **missed** |"
    ]


def test_both_measures_have_verdicts_of_their_own() -> None:
    """A callback that is blocked for 6 ms has little CPU time."""
    blocked = {**phase("a", 1.0, long_slice(1.0, 0.5)), **waits(1, 6.0, 1, 7.0)}
    assert phase_table([blocked])[2:] == ["| a | 1,200 | 0 | 1 | 9 | <= 5: met |"]
    assert waits_table([blocked])[2:] == [
        "| a, less waits | 1 | 7 | 1 | 6 | 7 | <= 5: **missed** |"
    ]
    found = EXPERIMENT.snippets(record(blocked))
    assert waits_table([blocked])[2] in found["time-slices"]
    assert found["time-slices.summary"].endswith(
        "took more than 5 ms of CPU time. The longest one took 1 ms. By wall time 1 took more than "
        "5 ms, at most 7 ms. Less the waits for a processor, 1 did, at most 6 ms."
    )
    assert waits_table([phase("a", 4.2)]) == []


def test_waits_do_not_count_and_blocked_time_does() -> None:
    assert busy_ms(cpu_ms=1.0, wall_ms=9.0, waited_ms=7.5) == 1.5
    assert busy_ms(cpu_ms=1.0, wall_ms=9.0, waited_ms=0.0) == 9.0
    assert busy_ms(cpu_ms=1.0, wall_ms=9.0, waited_ms=8.5) == 1.0


def test_the_run_queue_of_a_thread_is_read_from_the_system(tmp_path: Path) -> None:
    file = tmp_path / "schedstat"
    file.write_text("81 2500000 7\n")
    queue = RunQueue(str(file))
    assert queue.read() == Queued(2_500_000, 7)
    queue.close()
    assert RunQueue(str(tmp_path / "missing")).read() == Queued(0, 0)
    own = RunQueue()
    first, second = own.read(), own.read()
    own.close()
    assert first.waited_ns <= second.waited_ns
    assert 0 < first.scheduled <= second.scheduled


# --- the recorder ---


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock for CPU time and wall time, which callbacks move."""
    now = [0.0]
    monkeypatch.setattr(slice_recorder.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(slice_recorder.time, "monotonic", lambda: now[0])
    yield now


class Handle:
    """A handle of an event loop whose callback takes some time."""

    def __init__(self, clock: list[float], seconds: float) -> None:
        self._callback = self.take
        self._clock = clock
        self._seconds = seconds

    def take(self) -> None:
        self._clock[0] += self._seconds


def test_callbacks_are_counted_and_those_above_5_ms_are_written(clock: list[float]) -> None:
    output = io.StringIO()
    recorder = slice_recorder.Recorder(output, stacks=False)
    for seconds in (0.001, 0.0035, 0.0071, 0.2, 0.0):
        recorder.measure(Handle(clock, seconds), Handle.take)
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    first, second = (line for line in lines if "callback" in line)
    assert (first["cpu_ms"], first["callback"], first["stack"]) == (7.1, "Handle.take", [])
    assert second["cpu_ms"] == 200.0
    (bucket,) = (line for line in lines if "callbacks" in line)
    assert bucket["callbacks"] == 4
    assert bucket["by_ms"] == {"1": 1, "3": 1, "7": 1, "200": 1}
    assert (bucket["cpu_ms"], bucket["wall_ms"]) == (3.5, 3.5)


class Waits(RunQueue):
    """A thread that waits for a processor for so long in each callback."""

    def __init__(self, each_ms: float) -> None:
        self._each_ns = int(each_ms * 1e6)
        self._reads = 0

    def read(self) -> Queued:
        self._reads += 1
        return Queued(self._reads // 2 * self._each_ns, self._reads // 2)


def test_the_busy_time_of_a_callback_is_its_wall_time_less_the_waits(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slice_recorder.time, "thread_time", lambda: 0.0)
    output = io.StringIO()
    recorder = slice_recorder.Recorder(output, stacks=False, queue=Waits(4.0))
    for seconds in (0.006, 0.0095, 0.2):
        recorder.measure(Handle(clock, seconds), Handle.take)
    recorder.measure(Handle(clock, 0.0), Handle.take)
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    first, second = (line for line in lines if "callback" in line)
    assert (first["cpu_ms"], first["wall_ms"], first["busy_ms"]) == (0.0, 9.5, 5.5)
    assert (first["waited_ms"], first["scheduled"]) == (4.0, 1)
    assert second["busy_ms"] == 196.0
    (bucket,) = (line for line in lines if "callbacks" in line)
    assert (bucket["wall_above"], bucket["longest_wall_ms"]) == (3, 200.0)
    assert (bucket["busy_above"], bucket["longest_busy_ms"]) == (2, [196.0, 200.0])


def test_callbacks_below_the_limit_are_written_on_request(clock: list[float]) -> None:
    output = io.StringIO()
    recorder = slice_recorder.Recorder(output, stacks=False, above_ms=2.0)
    for seconds in (0.0019, 0.0025, 0.2, 0.0):
        recorder.measure(Handle(clock, seconds), Handle.take)
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [line["cpu_ms"] for line in lines if "callback" in line] == [2.5, 200.0]


def test_the_stack_of_a_slice_is_the_path_that_half_of_its_samples_share() -> None:
    outer, inner, other = ("odradek.a", "f", 9), ("odradek.b", "g", 1), ("odradek.b", "g", 2)
    leaves = [("odradek.c", f"leaf_{number}", 1) for number in range(3)]
    samples = [(leaf, inner, outer) for leaf in leaves] + [(other, outer), ()]
    assert slice_recorder.common_stack(samples) == ((inner, outer), 4)
    assert slice_recorder.common_stack([(inner, outer), (outer,)]) == ((inner, outer), 1)
    assert slice_recorder.common_stack([(), (), (outer,)]) == ((), 3)
    assert slice_recorder.common_stack([]) == ((), 0)


def test_a_task_has_the_names_of_its_coroutines() -> None:
    async def waits(event: asyncio.Event) -> None:
        await event.wait()

    async def outer() -> str:
        event = asyncio.Event()
        task = asyncio.ensure_future(waits(event))
        await asyncio.sleep(0)
        name = slice_recorder.callback_name(task.cancel)
        event.set()
        await task
        return name

    name = asyncio.run(outer())
    assert name.startswith("task ")
    assert name.split(" > ")[0].endswith("waits")
    assert "Event.wait" in name


def test_a_stack_begins_with_the_innermost_function_and_has_no_paths() -> None:
    first, *_ = slice_recorder.stack_of(sys._getframe())
    assert first[1] == "test_a_stack_begins_with_the_innermost_function_and_has_no_paths"
    assert "/" not in first[0]
