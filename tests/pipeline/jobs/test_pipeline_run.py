"""Any number of tables in one driver, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from odradek.pipeline.errors import NoBroker, PipelineError
from odradek.pipeline.jobs.ingest import IngestSummary
from odradek.pipeline.jobs.pipeline_run import TABLES_MAX, PipelineRun
from odradek.pipeline.operation.retries import BROKER_AWAY_MAX_S, TASK_FAILURES_MAX
from odradek.pipeline.progress import Progress

Step = Exception | Progress
TASK_FAILED = RuntimeError("Job aborted due to stage failure: Task 1 failed")


class Waits(threading.Event):
    """A stop that advances the time where a table waits for its next start."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.now_s += timeout
        return self.is_set()


class ScriptedJob:
    """A job that does the next steps of its table, up to a failure."""

    def __init__(self, steps: list[Step], on_progress: Callable[[Progress], None]) -> None:
        self._steps = steps
        self._on_progress = on_progress

    def run(self, stop: threading.Event) -> IngestSummary:
        while self._steps:
            step = self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            self._on_progress(step)
        return IngestSummary()


def batch(number: int, rejected: int = 0) -> Progress:
    return Progress(number, 10 - rejected, rejected, 100, 0)


def thread(call: Callable[[], None], table: str) -> threading.Thread:
    return threading.Thread(target=call, name=table)


def pipeline(stop: Waits, **tables: list[Step]) -> PipelineRun:
    return PipelineRun(
        tuple(tables),
        lambda table, on_progress: ScriptedJob(tables[table], on_progress),
        lambda: stop.now_s,
        thread,
    )


def test_each_table_runs_to_its_end() -> None:
    stop = Waits()
    found = pipeline(stop, a=[batch(0), batch(1, rejected=3)], b=[]).run(stop)
    a, b = found["a"], found["b"]
    assert (a.batches, a.accepted, a.rejected, a.newest) == (2, 17, 3, batch(1, rejected=3))
    assert (b.batches, b.starts, b.has_ended, b.failure) == (0, 1, True, None)
    assert stop.waits == []


def test_table_is_started_again_after_failed_tasks_and_counts_from_its_last_batch() -> None:
    stop = Waits()
    failures: list[Step] = [TASK_FAILED] * TASK_FAILURES_MAX
    status = pipeline(stop, a=[*failures, batch(0), *failures, batch(1)]).run(stop)["a"]
    assert stop.waits == [1, 2, 4] * 2
    assert (status.batches, status.starts, status.problem) == (2, 1 + 2 * TASK_FAILURES_MAX, None)


def test_table_that_fails_for_good_does_not_stop_the_others() -> None:
    stop = Waits()
    refused = PipelineError("Another driver owns the directory.")
    found = pipeline(stop, a=[refused], b=[batch(0)]).run(stop)
    assert found["a"].failure is refused
    assert found["a"].problem == "Another driver owns the directory."
    assert (found["b"].failure, found["b"].batches) == (None, 1)


def test_table_waits_for_the_broker_for_its_time_and_then_fails() -> None:
    stop = Waits()
    steps: list[Step] = [NoBroker("The cluster did not respond.")] * 100
    status = pipeline(stop, a=steps).run(stop)["a"]
    assert stop.now_s == BROKER_AWAY_MAX_S
    assert isinstance(status.failure, NoBroker)


def test_stopped_pipeline_starts_no_table_again() -> None:
    stop = Waits()

    class StoppingJob(ScriptedJob):
        def run(self, event: threading.Event) -> IngestSummary:
            stop.set()
            raise TASK_FAILED

    run = PipelineRun(
        ("a",), lambda table, progress: StoppingJob([], progress), lambda: 0.0, thread
    )
    status = run.run(stop)["a"]
    assert (status.starts, status.failure, status.has_ended) == (1, None, True)


def test_status_names_the_problem_in_one_line_until_the_next_batch() -> None:
    stop = Waits()
    seen: list[str | None] = []

    class Job(ScriptedJob):
        def run(self, event: threading.Event) -> IngestSummary:
            seen.append(run.statuses["a"].problem)
            return super().run(event)

    steps: list[Step] = [RuntimeError("TASK_WRITE_FAILED: no space\n  at java"), batch(0)]
    run = PipelineRun(("a",), lambda table, progress: Job(steps, progress), lambda: 0.0, thread)
    run.run(stop)
    assert seen == [None, "TASK_WRITE_FAILED: no space"]
    assert run.statuses["a"].problem is None


def test_definition_with_too_many_tables_is_refused() -> None:
    names = tuple(f"t{number}" for number in range(TABLES_MAX + 1))
    with pytest.raises(PipelineError, match="Use several definitions"):
        PipelineRun(names, lambda table, progress: ScriptedJob([], progress), lambda: 0.0, thread)
