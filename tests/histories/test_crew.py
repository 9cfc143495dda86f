"""The clients of a run and their groups."""

from __future__ import annotations

import pytest
from conformance.histories.mutants import MUTANTS, STABLE_S, options
from conformance.histories.nemesis import KILLS_SHARE, kill_times
from conformance.histories.run import MIXED, Plan, _options, crew
from conformance.histories.settings import TXN, TXN_V2, Settings
from hypothesis import given
from hypothesis import strategies as st

BASE = Settings(
    bootstrap="",
    process=0,
    slot=0,
    role="",
    mode="assign",
    seed=1,
    topics=["a"],
    partitions=1,
    group="g",
    transactional_id="",
)


def _crew(mode: str) -> list[Settings]:
    return list(crew(Plan(seed=1, seconds=1, mode=mode, clients=MIXED), BASE))


def test_transactors_of_both_protocols_that_subscribe_are_one_group() -> None:
    groups = {each.role: each.group for each in _crew("subscribe")}
    assert groups[TXN] == groups[TXN_V2]
    assert groups["consumer"] != groups[TXN]


@pytest.mark.parametrize("mode", ["assign", "both"])
def test_a_client_that_assigns_itself_has_its_own_group(mode: str) -> None:
    settings = _crew(mode)
    assert all(each.mode == "subscribe" for each in settings if each.role == TXN_V2)
    alone = [each.group for each in settings if each.mode == "assign"]
    shared = {each.group for each in settings if each.mode == "subscribe"}
    assert alone
    assert len(alone) == len(set(alone))
    assert not shared & set(alone)


def test_each_transactor_has_a_transactional_id_of_its_own() -> None:
    ids = [each.transactional_id for each in _crew("both") if each.transacts]
    assert len(set(ids)) == MIXED[TXN] + MIXED[TXN_V2]
    assert not any(each.transactional_id for each in _crew("both") if not each.transacts)


@given(st.integers(0, 8), st.floats(5.0, 120.0), st.integers(0, 1 << 32))
def test_each_scheduled_kill_has_its_own_part_of_the_run(
    kills: int, seconds: float, seed: int
) -> None:
    times = kill_times(kills, seconds, seed)
    assert len(times) == kills
    part = seconds * KILLS_SHARE / max(kills, 1)
    assert all(number * part <= at <= (number + 1) * part for number, at in enumerate(times))
    assert times == kill_times(kills, seconds, seed)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_arguments_of_a_run_against_a_mutant_are_its_own(name: str) -> None:
    found = _options([*options(name), "--seed", "4"])
    assert (found.seed, found.mode, found.stable_s) == (4, MUTANTS[name].mode, STABLE_S)
    assert found.faults == MUTANTS[name].faults and name in found.start
