"""Placement of replicas over racks and brokers."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.replica_placer import placing_replicas
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.metadata.image import BrokerRegistration
from odradek.slicing import run_to_completion


def registered(
    racks: dict[int, str | None], fenced: set[int] | None = None
) -> dict[BrokerId, BrokerRegistration]:
    return {
        BrokerId(broker): BrokerRegistration(
            BrokerId(broker), "", 0, rack=rack, fenced=broker in (fenced or set())
        )
        for broker, rack in racks.items()
    }


def placed(
    brokers: dict[BrokerId, BrokerRegistration],
    count: int,
    factor: int,
    seed: int = 0,
    existing: tuple[int, ...] = (),
) -> list[tuple[int, ...]]:
    between = random.Random(seed).randint
    last = tuple(map(BrokerId, existing))
    placing = placing_replicas(brokers, count, factor, between, last)
    return [tuple(each) for each in run_to_completion(placing)]


@st.composite
def clusters(draw: st.DrawFn) -> dict[BrokerId, BrokerRegistration]:
    """Return brokers in up to four racks, of which at least one is not fenced."""
    rack = st.sampled_from(["a", "b", "c", None])
    racks = draw(st.dictionaries(st.integers(0, 20), rack, min_size=1, max_size=10))
    fenced = draw(st.sets(st.sampled_from(sorted(racks)), max_size=len(racks) - 1))
    return registered(racks, fenced)


seeds = st.integers(0, 1 << 16)


@given(brokers=clusters(), count=st.integers(1, 40), seed=seeds, data=st.data())
def test_replicas_are_on_different_brokers_and_racks(
    brokers: dict[BrokerId, BrokerRegistration], count: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    racks = {broker.rack for broker in brokers.values()}
    for replicas in placed(brokers, count, factor, seed):
        assert len(set(replicas)) == factor
        assert not brokers[BrokerId(replicas[0])].fenced
        used = {brokers[BrokerId(each)].rack for each in replicas}
        assert len(used) == min(factor, len(racks))


@given(brokers=clusters(), count=st.integers(1, 40), seed=seeds, data=st.data())
def test_fenced_broker_is_used_only_when_its_rack_has_no_other(
    brokers: dict[BrokerId, BrokerRegistration], count: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    for replicas in placed(brokers, count, factor, seed):
        for fenced in (each for each in replicas if brokers[BrokerId(each)].fenced):
            rack = brokers[BrokerId(fenced)].rack
            others = {b for b, each in brokers.items() if each.rack == rack and not each.fenced}
            assert others <= set(replicas)


@given(
    ids=st.sets(st.integers(0, 9), min_size=1),
    count=st.integers(1, 60),
    seed=seeds,
    data=st.data(),
)
def test_leaders_and_replicas_of_one_rack_are_balanced(
    ids: set[int], count: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(ids)))
    made = placed(registered(dict.fromkeys(ids)), count, factor, seed)
    leaders = Counter(replicas[0] for replicas in made)
    assert max(leaders.values()) - min(leaders[each] for each in ids) <= 1
    if count % len(ids) == 0:
        everyone = Counter(each for replicas in made for each in replicas)
        assert len(set(everyone.values())) == 1


@given(seed=seeds)
def test_equal_racks_get_equal_numbers_of_leaders_and_replicas(seed: int) -> None:
    brokers = registered({broker: "abc"[broker % 3] for broker in range(9)})
    made = placed(brokers, 30, 3, seed)
    leading = Counter(brokers[BrokerId(replicas[0])].rack for replicas in made)
    assert set(leading.values()) == {10}
    everyone = Counter(brokers[BrokerId(each)].rack for replicas in made for each in replicas)
    assert set(everyone.values()) == {30}


def test_start_is_random_and_the_same_randomness_gives_the_same_placement() -> None:
    brokers = registered(dict.fromkeys(range(5)))
    assert placed(brokers, 7, 3, seed=1) == placed(brokers, 7, 3, seed=1)
    firsts = {placed(brokers, 1, 1, seed)[0] for seed in range(100)}
    assert len(firsts) == 5


def test_added_partitions_continue_after_the_last_one() -> None:
    brokers = registered(dict.fromkeys(range(4)))
    for seed in range(5):
        assert placed(brokers, 2, 2, seed, existing=(1, 2)) == [(2, 3), (3, 0)]
    # The broker of the last partition is no longer registered.
    assert len(placed(brokers, 2, 2, existing=(9, 8))) == 2


def test_sets_of_brokers_vary_after_each_broker_has_led() -> None:
    brokers = registered(dict.fromkeys(range(6)))
    assert len({frozenset(each) for each in placed(brokers, 60, 3)}) > 6


def test_brokers_without_a_rack_are_one_rack() -> None:
    brokers = registered({0: None, 1: None, 2: "a"})
    assert all(2 in replicas for replicas in placed(brokers, 10, 2))


@pytest.mark.parametrize(
    ("fenced", "factor"), [(set(), 3), ({0, 1}, 1)], ids=["too few brokers", "all fenced"]
)
def test_impossible_placement_is_refused(fenced: set[int], factor: int) -> None:
    with pytest.raises(KafkaError) as caught:
        placed(registered({0: None, 1: None}, fenced), 1, factor)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
