"""Results: the order of their stages, and the results that are derived from them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.errors import ErrorCode, KafkaError
from odradek.results import Abandoned, PendingResult, Result, gather


def stages(result: Result[object]) -> list[str]:
    """Return a list to which the stages are added, in the order in which they are reached."""
    reached: list[str] = []
    result.on_executed(lambda: reached.append("executed"))
    result.on_done(lambda done: reached.append(repr(done.error or done.get())))
    return reached


def test_a_completed_result_is_its_value() -> None:
    result = Result(7)
    assert (result.value, result.get(), result.completed, result.executed, result.done) == (
        (7, 7) + (True,) * 3
    )
    assert stages(result) == ["executed", "7"]
    result.cancel()
    assert result.get() == 7


def test_a_completed_result_holds_nothing_but_its_value() -> None:
    assert Result.__slots__ == ("value",)
    assert not hasattr(Result(1), "__dict__")


def test_a_failed_result_is_done_and_executed() -> None:
    result: Result[int] = Result.failed(KafkaError(ErrorCode.INVALID_REQUEST))
    assert (result.completed, result.executed, result.done) == (False, True, True)
    with pytest.raises(KafkaError):
        result.get()


def test_the_stages_are_reached_one_after_the_other() -> None:
    result: PendingResult[int] = PendingResult(executed=False)
    reached = stages(result)
    assert (result.executed, result.done) == (False, False)
    result.mark_executed()
    assert (reached, result.executed, result.done) == (["executed"], True, False)
    result.mark_executed()
    result.complete(3)
    assert reached == ["executed", "3"]
    assert stages(result) == reached


@pytest.mark.parametrize("executed", [False, True])
def test_a_result_that_is_completed_is_executed(executed: bool) -> None:
    result: PendingResult[int] = PendingResult(executed=executed)
    reached = stages(result)
    result.complete(3)
    assert reached == ["executed", "3"]
    assert result.executed


def test_a_result_is_completed_or_fails_once() -> None:
    result: PendingResult[int] = PendingResult()
    result.complete(1)
    with pytest.raises(AssertionError):
        result.complete(1)
    with pytest.raises(AssertionError):
        result.fail(Abandoned())


@pytest.mark.parametrize("executed", [False, True])
def test_a_mapped_result_keeps_the_stages(executed: bool) -> None:
    result: PendingResult[int] = PendingResult(executed=executed)
    mapped = result.then(lambda value: value * 10)
    reached = stages(mapped)
    assert mapped.executed is executed
    result.mark_executed()
    assert reached == ["executed"]
    assert not mapped.done
    result.complete(4)
    assert reached == ["executed", "40"]
    assert Result(4).then(str).get() == "4"


@pytest.mark.parametrize("late", [False, True])
def test_an_exception_of_the_function_fails_the_mapped_result(late: bool) -> None:
    result: PendingResult[int] = PendingResult()
    if not late:
        result.complete(0)
    mapped = result.then(lambda value: 1 // value)
    chained: Result[int] = result.chain(lambda value: Result(1 // value))
    if late:
        result.complete(0)
    for each in (mapped, chained):
        with pytest.raises(ZeroDivisionError):
            each.get()


def test_an_error_is_passed_on_and_functions_are_not_called() -> None:
    called: list[object] = []
    result: PendingResult[int] = PendingResult(executed=False)
    mapped = result.then(called.append)
    chained: Result[int] = result.chain(lambda value: Result(value))
    result.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    for each in (mapped, chained, result.then(called.append)):
        assert isinstance(each.error, KafkaError)
        assert each.executed
    assert not called


def test_a_chained_result_is_executed_with_the_second_operation() -> None:
    first: PendingResult[int] = PendingResult(executed=True)
    second: PendingResult[str] = PendingResult(executed=False)
    chained = first.chain(lambda value: second)
    reached = stages(chained)
    assert not chained.executed
    first.complete(1)
    assert not chained.executed
    second.mark_executed()
    assert reached == ["executed"]
    second.complete("end")
    assert reached == ["executed", "'end'"]
    assert first.chain(lambda value: second) is second


@pytest.mark.parametrize("late", [False, True])
def test_an_error_of_one_kind_is_recovered_from(late: bool) -> None:
    def result_of(error: Exception) -> Result[int]:
        result: PendingResult[int] = PendingResult()
        if not late:
            result.fail(error)
        recovered = result.recover(KafkaError, lambda error: int(error.code))
        if late:
            result.fail(error)
        return recovered

    assert result_of(KafkaError(ErrorCode.NOT_COORDINATOR)).get() == ErrorCode.NOT_COORDINATOR
    assert isinstance(result_of(Abandoned()).error, Abandoned)
    assert Result(5).recover(KafkaError, lambda error: 0).get() == 5


def test_cancel_releases_the_delayed_operation_of_the_owner() -> None:
    released: list[str] = []
    result: PendingResult[int] = PendingResult(on_cancel=lambda: released.append("now"))
    mapped = result.then(str).chain(lambda text: Result(text)).recover(KafkaError, str)
    mapped.cancel()
    mapped.cancel()
    assert released == ["now"]


def test_the_second_operation_of_a_chain_is_cancelled() -> None:
    released: list[str] = []
    first: PendingResult[int] = PendingResult(on_cancel=lambda: released.append("first"))
    second: PendingResult[int] = PendingResult(on_cancel=lambda: released.append("second"))
    chained = first.chain(lambda value: second)
    first.complete(1)
    chained.cancel()
    assert released == ["second"]


def test_a_chain_that_is_cancelled_does_not_begin_its_second_operation() -> None:
    begun: list[int] = []

    def begin(value: int) -> Result[int]:
        begun.append(value)
        return Result(value)

    first: PendingResult[int] = PendingResult()
    chained = first.chain(begin)
    chained.cancel()
    first.complete(1)
    assert isinstance(chained.error, Abandoned)
    assert not begun


def test_a_write_that_cannot_be_cancelled_is_completed_for_its_other_readers() -> None:
    written: PendingResult[int] = PendingResult()
    one, other = written.then(str), written.then(str)
    one.cancel()
    written.complete(1)
    assert (one.get(), other.get()) == ("1", "1")


def test_a_result_follows_another_one() -> None:
    released: list[str] = []
    leader: PendingResult[int] = PendingResult(
        executed=False, on_cancel=lambda: released.append("leader")
    )
    result: PendingResult[int] = PendingResult(executed=False)
    result.follow(leader)
    reached = stages(result)
    leader.mark_executed()
    assert reached == ["executed"]
    result.cancel()
    assert released == ["leader"]
    leader.complete(2)
    assert reached == ["executed", "2"]


Action = Callable[[PendingResult[int]], None]
ACTIONS: list[Action] = [
    PendingResult.mark_executed,
    lambda result: result.complete(1),
    lambda result: result.fail(Abandoned()),
]


@given(st.lists(st.sampled_from([0, 1, 2]), max_size=4), st.data())
def test_results_are_gathered_when_the_last_one_is_done(
    kinds: list[int], data: st.DataObject
) -> None:
    results: list[PendingResult[int]] = [PendingResult(executed=False) for _ in kinds]
    before = data.draw(st.integers(0, len(kinds)))
    for result, kind in list(zip(results, kinds, strict=True))[:before]:
        ACTIONS[kind](result)
    gathered = gather(results)
    reached = stages(gathered)
    for result, kind in list(zip(results, kinds, strict=True))[before:]:
        assert not gathered.executed
        ACTIONS[kind](result)
    assert gathered.executed
    for result in results:
        if not result.done:
            assert not gathered.done
            result.complete(1)
    assert gathered.done
    assert reached[0] == "executed"
    assert len(reached) == 2
    if 2 in kinds:
        assert isinstance(gathered.error, Abandoned)
    else:
        assert gathered.get() == [1] * len(kinds)


def test_cancel_reaches_all_gathered_results() -> None:
    released: list[int] = []
    results: list[PendingResult[int]] = [
        PendingResult(on_cancel=lambda number=number: released.append(number))  # type: ignore[misc]
        for number in range(3)
    ]
    results[1].complete(0)
    gather(results).cancel()
    assert released == [0, 2]


def test_a_chain_that_only_finishes_the_value_is_executed_with_its_first_operation() -> None:
    first: PendingResult[int] = PendingResult(executed=False)
    chained = first.chain(lambda value: Result(str(value)), executed=True)
    first.mark_executed()
    assert (chained.executed, chained.done) == (True, False)
    first.complete(1)
    assert chained.get() == "1"
