"""Freeing of large messages in time slices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from odradek.protocol.freeing import FREED_PER_SLICE, arrays_of, freeing
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.slicing import run_to_completion

COUNT = 4 * FREED_PER_SLICE


class Partition(MetadataResponsePartition):
    living = 0

    def __init__(self) -> None:
        super().__init__(replica_nodes=[1, 2, 3])
        Partition.living += 1

    def __del__(self) -> None:
        Partition.living -= 1


@pytest.fixture(autouse=True)
def none_living() -> Iterator[None]:
    Partition.living = 0
    yield
    assert not Partition.living


def response(topics: int, partitions: int) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name=str(topic), partitions=[Partition() for _ in range(partitions)]
            )
            for topic in range(topics)
        ]
    )


@pytest.mark.parametrize(
    ("topics", "partitions"), [(1, COUNT), (COUNT, 1), (COUNT // 10, 10), (8, COUNT // 8)]
)
def test_a_response_is_freed_in_time_slices(topics: int, partitions: int) -> None:
    arrays = arrays_of(response(topics, partitions))
    living = [Partition.living, *(Partition.living for _ in freeing(arrays)), Partition.living]
    assert (living[0], living[-1], arrays) == (COUNT, 0, [])
    assert max(before - after for before, after in pairwise(living)) <= FREED_PER_SLICE
    assert len(living) <= 2 * COUNT // FREED_PER_SLICE + 3


def test_plain_values_are_freed_in_time_slices() -> None:
    topics = [MetadataRequestTopic(name=str(topic)) for topic in range(COUNT)]
    request = MetadataRequest(topics=topics)
    del topics
    arrays = arrays_of(request)
    del request
    assert len(list(freeing(arrays))) == COUNT // FREED_PER_SLICE - 1


def test_a_message_that_is_in_use_stays_unchanged() -> None:
    message = response(10, 300)
    run_to_completion(freeing(arrays_of(message)))
    assert [len(topic.partitions) for topic in message.topics] == [300] * 10


def test_elements_that_are_in_use_stay_unchanged() -> None:
    message = response(10, 300)
    topic, partitions = message.topics[3], message.topics[5].partitions
    iterator = iter(message.topics[7].partitions)
    arrays = arrays_of(message)
    del message
    run_to_completion(freeing(arrays))
    assert Partition.living == 3 * 300
    assert (len(topic.partitions), len(partitions), len(list(iterator))) == (300, 300, 300)


def test_an_array_that_is_released_between_two_slices_is_freed_in_slices() -> None:
    message = response(2, COUNT // 2)
    last = message.topics[0].partitions
    arrays = arrays_of(message)
    del message
    work = freeing(arrays)
    next(work)
    del last
    living = [Partition.living for _ in work]
    assert living
    assert not Partition.living


def test_integers_null_arrays_and_empty_messages_are_left_alone() -> None:
    assert arrays_of(Partition()) == []
    assert arrays_of(MetadataRequest(topics=None)) == []
    assert arrays_of(MetadataResponseTopic(partitions=())) == []  # type: ignore[arg-type]
    run_to_completion(freeing([]))
    run_to_completion(freeing([[], []]))
