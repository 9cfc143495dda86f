"""Who runs, and in which group."""

from __future__ import annotations

import pytest
from conformance.histories.run import MIXED, Plan, crew
from conformance.histories.settings import TXN, TXN_V2, Settings

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
def test_who_assigns_itself_has_a_group_alone(mode: str) -> None:
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
