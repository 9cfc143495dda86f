"""Blocking calls on threads that do not keep a process alive."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from odradek.environment.thread_pool import ThreadPool

TIMEOUT_S = 60


def test_results_and_exceptions_reach_the_caller() -> None:
    pool = ThreadPool(2, "calls")
    assert pool.submit(divmod, 7, 2).result(TIMEOUT_S) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 7, 0).result(TIMEOUT_S)
    assert pool.submit(dict, a=1).result(TIMEOUT_S) == {"a": 1}
    pool.shutdown()


def test_as_many_calls_as_threads_run_at_the_same_time() -> None:
    pool = ThreadPool(3, "calls")
    meeting = threading.Barrier(3)
    calls = [pool.submit(meeting.wait, TIMEOUT_S) for _ in range(3)]
    assert sorted(each.result(TIMEOUT_S) for each in calls) == [0, 1, 2]
    pool.shutdown()


def test_an_idle_thread_is_used_again_and_the_limit_is_kept() -> None:
    pool = ThreadPool(2, "calls")
    names = set()
    for _ in range(50):
        names.add(pool.submit(lambda: threading.current_thread().name).result(TIMEOUT_S))
    assert len(names) <= 2
    calls = [pool.submit(lambda: threading.current_thread().name) for _ in range(50)]
    assert {each.result(TIMEOUT_S) for each in calls} <= {"calls_0", "calls_1"}
    pool.shutdown()


def test_shutdown_waits_for_submitted_calls_and_refuses_more() -> None:
    before = threading.active_count()
    pool = ThreadPool(1, "calls")
    done: list[int] = []
    for number in range(20):
        pool.submit(done.append, number)
    pool.shutdown(wait=True)
    assert done == list(range(20))
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(done.append, 21)
    pool.shutdown(wait=True)


def test_a_pool_reports_its_end_when_the_last_call_has_ended() -> None:
    pool = ThreadPool(2, "calls")
    may_end = threading.Event()
    calls = [pool.submit(may_end.wait, TIMEOUT_S) for _ in range(3)]
    pool.shutdown(wait=False)
    assert not pool.ended.done()
    may_end.set()
    pool.ended.result(TIMEOUT_S)
    assert all(each.done() for each in calls)


def test_a_pool_without_calls_ends_with_its_shutdown() -> None:
    pool = ThreadPool(2, "calls")
    pool.shutdown(wait=False)
    assert pool.ended.done()
    pool.shutdown(wait=False)


def test_shutdown_cancels_calls_that_have_not_started() -> None:
    pool = ThreadPool(1, "calls")
    started, may_end = threading.Event(), threading.Event()

    def hold() -> bool:
        started.set()
        return may_end.wait(TIMEOUT_S)

    running = pool.submit(hold)
    assert started.wait(TIMEOUT_S)
    waiting = pool.submit(hold)
    pool.shutdown(wait=False, cancel_futures=True)
    may_end.set()
    assert running.result(TIMEOUT_S)
    assert waiting.cancelled()
    pool.shutdown(wait=True)


def test_a_program_ends_while_a_call_is_running() -> None:
    program = """
import threading
from odradek.environment.thread_pool import ThreadPool
pool, started = ThreadPool(1, "calls"), threading.Event()
pool.submit(lambda: (started.set(), threading.Event().wait()))
started.wait()
pool.shutdown(wait=False)
print("ends")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
