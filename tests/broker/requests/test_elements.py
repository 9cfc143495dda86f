"""The elements of a request are processed once and in order, with other tasks in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker import handlers
from odradek.broker.requests.elements import each, each_partition
from odradek.environment.clock import ManualClock
from odradek.result_tasks import wait
from odradek.slicing import ELEMENTS_PER_SLICE, SLICE_MS
from tests.helpers.time_slices import count_slices


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """A list with one entry for each end of a time slice."""
    return count_slices(monkeypatch)


def test_few_elements_are_processed_without_an_event_loop() -> None:
    assert each(str, range(ELEMENTS_PER_SLICE)).get() == [str(n) for n in range(ELEMENTS_PER_SLICE)]
    assert each(str, []).get() == []


def test_many_elements_are_processed_in_slices(slices: list[None]) -> None:
    async def test() -> None:
        result = each(str, range(5 * ELEMENTS_PER_SLICE))
        assert not result.executed
        assert await wait(result) == [str(number) for number in range(5 * ELEMENTS_PER_SLICE)]
        assert len(slices) == 4

    asyncio.run(test())


def test_an_element_counts_by_its_size(slices: list[None]) -> None:
    async def test() -> None:
        await wait(each(lambda _: "x" * ELEMENTS_PER_SLICE, range(10), len))
        assert len(slices) == 9

    asyncio.run(test())


def test_many_topics_with_few_partitions_count_too(slices: list[None]) -> None:
    async def test() -> None:
        topics = range(3 * ELEMENTS_PER_SLICE)
        none = each_partition(topics, lambda _: (), lambda _, each: each, lambda _, values: values)
        assert await wait(none) == [[]] * len(topics)
        assert len(slices) >= 2

    asyncio.run(test())


def test_a_clock_ends_the_slices_of_slow_partitions(slices: list[None]) -> None:
    async def test() -> None:
        clock = ManualClock()

        def slow(_: int, partition: int) -> int:
            clock.advance(int(SLICE_MS))
            return partition

        values = each_partition(
            range(8), lambda topic: [topic], slow, lambda _, partitions: partitions, clock=clock
        )
        assert await wait(values) == [[topic] for topic in range(8)]
        assert len(slices) == 3

    asyncio.run(test())


def test_an_exception_ends_the_work() -> None:
    async def test() -> None:
        result = each(lambda number: 1 // (number - 300), range(1_000))
        with pytest.raises(ZeroDivisionError):
            await wait(result)

    asyncio.run(test())


@given(st.lists(st.integers(0, 500), max_size=6))
def test_partitions_stay_with_their_topics(counts: list[int]) -> None:
    async def test() -> None:
        topics = list(enumerate(counts))
        result = each_partition(
            topics,
            lambda topic: range(topic[1]),
            lambda topic, partition: (topic[0], partition),
            lambda topic, values: (topic[0], values),
        )
        assert await wait(result) == [
            (topic, [(topic, partition) for partition in range(count)]) for topic, count in topics
        ]

    asyncio.run(test())


HANDLERS = sorted(Path(handlers.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("path", HANDLERS, ids=lambda path: path.name)
def test_handlers_do_not_use_time_slices_directly(path: Path) -> None:
    source = path.read_text()
    assert "odradek.slicing" not in source
    assert "handle_long" not in source
