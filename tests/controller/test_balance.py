"""Balance of leaders (leader.imbalance.*)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek.controller.balance import ELECTIONS_PER_CHECK_MAX, imbalanced_partitions
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.persistent import PersistentMap
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion

ID = Uuid(b"t" * 16)


def image(partitions: Sequence[tuple[int, Sequence[int], Sequence[int]]]) -> MetadataImage:
    """Return an image of one topic from (leader, replicas, ISR) of its partitions."""
    topic = TopicImage(
        TopicName("t"),
        ID,
        [
            PartitionImage(
                number,
                BrokerId(leader),
                0,
                0,
                tuple(map(BrokerId, replicas)),
                tuple(map(BrokerId, isr)),
            )
            for number, (leader, replicas, isr) in enumerate(partitions)
        ],
    )
    return MetadataImage(topics_by_name=PersistentMap({topic.name: topic}))


def found(
    partitions: Sequence[tuple[int, Sequence[int], Sequence[int]]],
    percentage: int = 10,
    acceptable: Sequence[int] = (1, 2, 3),
) -> list[int]:
    search = imbalanced_partitions(image(partitions), lambda b: b in acceptable, percentage)
    return [number for _, number in run_to_completion(search)]


BOTH = (1, 2)
LED_BY_ONE = (1, BOTH, BOTH)
LED_BY_TWO = (2, BOTH, BOTH)


def test_partition_returns_to_its_first_replica() -> None:
    assert found([LED_BY_ONE, LED_BY_TWO]) == [1]
    assert found([LED_BY_ONE, LED_BY_ONE]) == []


@pytest.mark.parametrize(("percentage", "moved"), [(49, [3, 4]), (50, []), (0, [3, 4])])
def test_only_a_broker_above_the_percentage_gets_its_leaderships(
    percentage: int, moved: list[int]
) -> None:
    partitions = [LED_BY_ONE, LED_BY_ONE, (2, (2, 1), BOTH), LED_BY_TWO, LED_BY_TWO]
    assert found(partitions, percentage) == moved


@pytest.mark.parametrize(
    ("partition", "acceptable"),
    [
        ((2, BOTH, (2,)), (1, 2)),  # the first replica is not in the ISR
        ((2, BOTH, BOTH), (2,)),  # it may not lead
        ((-1, BOTH, BOTH), (1, 2)),  # no leader: an election is due for another reason
    ],
)
def test_first_replica_that_may_not_lead_gets_nothing(
    partition: tuple[int, Sequence[int], Sequence[int]], acceptable: Sequence[int]
) -> None:
    assert found([partition], acceptable=acceptable) == []


def test_number_of_elections_and_the_time_slices_are_bounded() -> None:
    partitions = [LED_BY_TWO] * (ELECTIONS_PER_CHECK_MAX + ELEMENTS_PER_SLICE)
    search = imbalanced_partitions(image(partitions), lambda _: True, 10)
    slices = sum(1 for _ in search)
    assert slices >= len(partitions) // ELEMENTS_PER_SLICE
    assert found(partitions) == list(range(ELECTIONS_PER_CHECK_MAX))
