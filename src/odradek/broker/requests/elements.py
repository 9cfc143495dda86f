"""Functions that process the elements of a request in time slices if there are many of them.

One request may name 200,000 topics, groups or partitions, each of which costs some microseconds.
Other connections are served after every `ELEMENTS_PER_SLICE` elements. The end of a slice depends
on the number of elements and not on the clock, so a test can reproduce it. With a clock, a slice of
`each_partition` also ends after `SLICE_MS`.

Between two slices other requests may change any state. The function looks state up for each
element. The next request of the same connection waits for the last element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, TypeVar

from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE, SLICE_MS, sliced

if TYPE_CHECKING:
    from odradek.environment.clock import Clock

I = TypeVar("I")  # noqa: E741 - an item
K = TypeVar("K")
R = TypeVar("R")
A = TypeVar("A")


COMMITS_UNSLICED_MAX = ELEMENTS_PER_SLICE
"""Largest number of offsets that a request commits in one time slice. Their records take 0.5 ms."""


def each(
    function: Callable[[I], R], items: Iterable[I], size: Callable[[R], int] | None = None
) -> Result[list[R]]:
    """Return ``list(map(function, items))``. `items` must not change until the result is executed.

    The result fails with the first exception of `function`.

    Args:
        size: Returns the number of further elements that a value of `function` counts as. Used if a
            value may be large.
    """
    try:
        return sliced(_each(function, items, size))
    except Exception as error:  # noqa: BLE001 - the reader of the result meets it
        return Result.failed(error)


def _each(
    function: Callable[[I], R], items: Iterable[I], size: Callable[[R], int] | None
) -> Generator[None, None, Result[list[R]]]:
    values: list[R] = []
    left = ELEMENTS_PER_SLICE
    for item in items:
        if left <= 0:
            left = ELEMENTS_PER_SLICE
            yield
        left -= 1
        value = function(item)
        if size is not None:
            left -= size(value)
        values.append(value)
    return Result(values)


def each_partition(
    topics: Iterable[K],
    partitions: Callable[[K], Iterable[I]],
    function: Callable[[K, I], R],
    topic_response: Callable[[K, list[R]], A],
    size: Callable[[R], int] | None = None,
    clock: Clock | None = None,
) -> Result[list[A]]:
    """Return `topic_response(topic, values)` for each topic of a request.

    The "topics" may be any other elements that contain lists.

    Args:
        topics: The topics of the request.
        partitions: Returns the partitions of a topic.
        function: Returns the value for a partition of a topic.
        topic_response: Makes one entry of the response from a topic and its values.
        size: As for `each`.
        clock: Ends slices of slow elements.
    """
    try:
        return sliced(_each_partition(topics, partitions, function, topic_response, size, clock))
    except Exception as error:  # noqa: BLE001 - the reader of the result meets it
        return Result.failed(error)


def _each_partition(
    topics: Iterable[K],
    partitions: Callable[[K], Iterable[I]],
    function: Callable[[K, I], R],
    topic_response: Callable[[K, list[R]], A],
    size: Callable[[R], int] | None,
    clock: Clock | None,
) -> Generator[None, None, Result[list[A]]]:
    responses: list[A] = []
    left, ends_ms = ELEMENTS_PER_SLICE, math.inf
    if clock is not None:
        ends_ms = clock.monotonic_ms() + SLICE_MS
    for topic in topics:
        values: list[R] = []
        left -= 1  # so that topics with few or no partitions count, too
        for partition in partitions(topic):
            if left <= 0 or (clock is not None and clock.monotonic_ms() > ends_ms):
                yield
                left, ends_ms = ELEMENTS_PER_SLICE, _end_of_slice(clock)
            left -= 1
            value = function(topic, partition)
            if size is not None:
                left -= size(value)
            values.append(value)
        if left <= 0:
            yield
            left, ends_ms = ELEMENTS_PER_SLICE, _end_of_slice(clock)
        responses.append(topic_response(topic, values))
    return Result(responses)


def _end_of_slice(clock: Clock | None) -> float:
    return math.inf if clock is None else clock.monotonic_ms() + SLICE_MS
