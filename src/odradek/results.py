"""The result of a request, or of an operation inside the broker, in two stages.

1. *Executed*: the operation has taken effect, or failed. The next request of the connection may
   start.
2. *Done*: the value, or an error in its place, is known. The response may be sent.

A `Result` has reached both stages and holds its value. A `PendingResult` reaches them later. It may
be executed long before it is done. For example, a produce request with acks=all has appended its
records and waits for the high watermark. A JoinGroup request waits for the other members.

This module knows no event loop. Callbacks run inside `complete`, `fail` and `mark_executed`, in the
order in which they were added. `odradek.result_tasks` connects results with coroutines. A result
belongs to one event loop and is used on no other thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound=Exception)


class Abandoned(Exception):
    """The operation ends without a value, because the broker stops."""


class Result(Generic[T_co]):
    """A completed result. The attributes are read directly on the hot path.

    Attributes:
        value: The value. Set only while `completed` is true.
        completed: The value is known.
        executed: The next request of the connection may start.
        error: The reason why there will be no value, or None.
    """

    __slots__ = ("value",)

    completed: bool = True
    executed: bool = True
    error: Exception | None = None

    def __init__(self, value: T_co) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<result {self.value!r}>"

    @staticmethod
    def failed(error: Exception) -> Result[T]:
        """Return a result that is done and has no value."""
        result: PendingResult[T] = PendingResult()
        result.fail(error)
        return result

    @property
    def done(self) -> bool:
        """Whether there is a value or an error."""
        return self.completed or self.error is not None

    def get(self) -> T_co:
        """Return the value, or raise the error. Call it only when the result is done."""
        return self.value

    def then(self, function: Callable[[T_co], U]) -> Result[U]:
        """Return the result of `function(value)`, with the stages of this one.

        It fails if this result or `function` fails. `function` runs whenever there is a value, even
        after `cancel`.
        """
        try:
            return Result(function(self.value))
        except Exception as error:  # noqa: BLE001 - raised by `get`
            return Result.failed(error)

    def chain(self, function: Callable[[T_co], Result[U]], *, executed: bool = False) -> Result[U]:
        """Return the result that `function(value)` returns.

        Args:
            executed: True if `function` has no further effect: the result is executed as soon as
                this one is. False: it is executed when the result of `function` is.
        """
        try:
            return function(self.value)
        except Exception as error:  # noqa: BLE001 - as in `then`
            return Result.failed(error)

    def recover(self, kind: type[E], function: Callable[[E], T]) -> Result[T_co | T]:
        """Return this result, with `function(error)` as its value after an error of `kind`."""
        return self

    def on_executed(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when the operation is executed, immediately if it is already."""
        callback()

    def on_done(self, callback: Callable[[Result[T_co]], object]) -> None:
        """Call `callback(self)` when there is a value or an error, immediately if there is one.

        The callback must not raise.
        """
        callback(self)

    def cancel(self) -> None:
        """Report that the value is not needed, because the client is gone or the broker stops.

        The owner of a delayed operation releases it, and the result may never be done. A result
        whose owner has set no `on_cancel` is not affected: an appended record stays in the log.
        """


class PendingResult(Result[T]):
    """A result that reaches its stages later. Its creator owns it and completes or fails it once.

    Args:
        executed: Whether the operation is executed already and only the value is missing.
        on_cancel: Called by the first `cancel` before the result is done.
    """

    __slots__ = ("_on_cancel", "_on_done", "_on_executed", "completed", "error", "executed")

    def __init__(
        self, *, executed: bool = True, on_cancel: Callable[[], object] | None = None
    ) -> None:
        self.completed = False
        self.executed = executed
        self.error = None
        self._on_cancel = on_cancel
        self._on_executed: list[Callable[[], object]] = []
        self._on_done: list[Callable[[Result[T]], object]] = []

    def __repr__(self) -> str:
        if self.completed:
            return f"<result {self.value!r}>"
        if self.error is not None:
            return f"<failed result: {self.error!r}>"
        return f"<pending result, {'executed' if self.executed else 'executing'}>"

    # Called by the owner.

    def mark_executed(self) -> None:
        """Reach the first stage. Does nothing in a result that has reached it."""
        if self.executed:
            return
        self.executed = True
        callbacks, self._on_executed = self._on_executed, []
        for callback in callbacks:
            callback()

    def complete(self, value: T) -> None:
        """Reach the second stage with a value."""
        assert not self.done, "a result is completed once"
        self.value = value
        self.completed = True
        self._finish()

    def fail(self, error: Exception) -> None:
        """Reach the second stage with an error."""
        assert not self.done, "a result fails once"
        self.error = error
        self._finish()

    def follow(self, result: Result[T]) -> None:
        """Take the stages, the value and the cancellation of `result` from now on."""
        if result.completed:
            self.complete(result.value)
            return
        self._on_cancel = result.cancel
        if result.executed:
            self.mark_executed()
        else:
            result.on_executed(self.mark_executed)
        result.on_done(self._take)

    def _take(self, result: Result[T]) -> None:
        if self.done:
            return
        if result.error is None:
            self.complete(result.value)
        else:
            self.fail(result.error)

    def _finish(self) -> None:
        self._on_cancel = None
        self.mark_executed()
        callbacks, self._on_done = self._on_done, []
        for callback in callbacks:
            callback(self)

    # Called by readers.

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value

    def then(self, function: Callable[[T], U]) -> Result[U]:
        if self.completed:
            return super().then(function)
        result: PendingResult[U] = PendingResult(executed=False, on_cancel=self.cancel)

        def finish(done: Result[T]) -> None:
            result.follow(done.then(function) if done.error is None else Result.failed(done.error))

        self.on_executed(result.mark_executed)
        self.on_done(finish)
        return result

    def chain(self, function: Callable[[T], Result[U]], *, executed: bool = False) -> Result[U]:
        if self.completed:
            return super().chain(function)
        result: PendingResult[U] = PendingResult(executed=False)

        def abandon() -> None:
            self.cancel()
            if not result.done:
                result.fail(Abandoned())

        def resume(done: Result[T]) -> None:
            if not result.done:
                next_result = done.chain(function) if done.error is None else None
                result.follow(next_result or Result.failed(done.error or Abandoned()))

        result._on_cancel = abandon
        if executed:
            self.on_executed(lambda: None if self.done else result.mark_executed())
        self.on_done(resume)
        return result

    def recover(self, kind: type[E], function: Callable[[E], U]) -> Result[T | U]:
        if self.completed:
            return self
        result: PendingResult[T | U] = PendingResult(executed=False, on_cancel=self.cancel)

        def finish(done: Result[T]) -> None:
            error = done.error
            if isinstance(error, kind):
                result.follow(Result(error).then(function))
            else:
                result.follow(done)

        self.on_executed(result.mark_executed)
        self.on_done(finish)
        return result

    def on_executed(self, callback: Callable[[], object]) -> None:
        if self.executed:
            callback()
        else:
            self._on_executed.append(callback)

    def on_done(self, callback: Callable[[Result[T]], object]) -> None:
        if self.done:
            callback(self)
        else:
            self._on_done.append(callback)

    def cancel(self) -> None:
        on_cancel, self._on_cancel = self._on_cancel, None
        if on_cancel is not None:
            on_cancel()


def gather(results: Sequence[Result[T]]) -> Result[list[T]]:
    """Return the values of all `results`, in their order.

    It is executed when all of them are, and done when all of them are. It fails with the error of
    the first one in the list that failed.
    """
    if all(result.completed for result in results):
        return Result([result.value for result in results])
    gathered: PendingResult[list[T]] = PendingResult(
        executed=False, on_cancel=lambda: _cancel_all(results)
    )
    executing = missing = len(results)

    def executed() -> None:
        nonlocal executing
        executing -= 1
        if not executing:
            gathered.mark_executed()

    def done(_: Result[T]) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            _finish_gathered(gathered, results)

    for result in results:
        result.on_executed(executed)
        result.on_done(done)
    return gathered


def _finish_gathered(gathered: PendingResult[list[T]], results: Sequence[Result[T]]) -> None:
    for result in results:
        if result.error is not None:
            gathered.fail(result.error)
            return
    gathered.complete([result.value for result in results])


def _cancel_all(results: Sequence[Result[T]]) -> None:
    for result in results:
        result.cancel()
