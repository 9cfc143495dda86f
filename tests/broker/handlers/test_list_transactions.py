"""ListTransactions over the wire: its filters."""

from __future__ import annotations

from typing import Any

import pytest
import re2

from odradek.broker.handlers.list_transactions import MATCH_ELEMENTS
from odradek.coordinator.regular_expressions import (
    EXPRESSION_CHARACTERS_MAX,
    REPETITIONS_MAX,
    UNICODE_CLASSES_MAX,
)
from odradek.errors import ErrorCode
from odradek.slicing import ELEMENTS_PER_SLICE
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.txn_calls import add, list_transactions, producer
from tests.helpers.time_slices import count_slices


@pytest.fixture
def ids(broker: Broker, client: WireClient) -> dict[str, int]:
    """The producer ids of three transactional ids, of which "open" has a transaction."""
    broker.create_topic("t")
    found = {name: producer(client, name) for name in ("open", "idle-1", "idle-2")}
    add(client, found["open"], "t0", name="open")
    return {name: who[0] for name, who in found.items()}


def names(response: Any) -> set[str]:
    assert response.error_code == 0
    return {each.transactional_id for each in response.transaction_states}


@pytest.mark.parametrize("version", range(3))
def test_all_are_listed_with_state_and_producer(
    client: WireClient, ids: dict[str, int], version: int
) -> None:
    response = list_transactions(client, version)
    assert response.unknown_state_filters == []
    found = {
        each.transactional_id: (each.producer_id, each.transaction_state)
        for each in response.transaction_states
    }
    assert found == {
        "open": (ids["open"], "Ongoing"),
        "idle-1": (ids["idle-1"], "Empty"),
        "idle-2": (ids["idle-2"], "Empty"),
    }


def test_states_filter(client: WireClient, ids: dict[str, int]) -> None:
    assert names(list_transactions(client, state_filters=["Ongoing"])) == {"open"}
    assert len(names(list_transactions(client, state_filters=["Ongoing", "Empty"]))) == 3
    assert names(list_transactions(client, state_filters=["Dead", "PrepareCommit"])) == set()
    response = list_transactions(client, state_filters=["Nonsense", "Ongoing", "ongoing"])
    assert response.unknown_state_filters == ["Nonsense", "ongoing"]
    assert names(response) == {"open"}
    assert names(list_transactions(client, state_filters=["Nonsense"])) == set()


def test_producer_ids_filter(client: WireClient, ids: dict[str, int]) -> None:
    producer_ids = [ids["open"], ids["idle-2"], 999_999]
    assert names(list_transactions(client, producer_id_filters=producer_ids)) == {"open", "idle-2"}
    both = list_transactions(client, producer_id_filters=producer_ids, state_filters=["Empty"])
    assert names(both) == {"idle-2"}


def test_duration_filters_transactions_by_age(client: WireClient, ids: dict[str, int]) -> None:
    hour_ms = 3_600_000
    # As in Kafka, a transaction that has not begun counts as begun long ago.
    assert names(list_transactions(client, 1, duration_filter=hour_ms)) == {"idle-1", "idle-2"}
    long = list_transactions(client, 1, duration_filter=hour_ms, state_filters=["Ongoing"])
    assert names(long) == set()
    assert len(names(list_transactions(client, 1, duration_filter=-1))) == 3


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, {"open", "idle-1", "idle-2"}),
        ("", {"open", "idle-1", "idle-2"}),
        ("idle-.*", {"idle-1", "idle-2"}),
        ("idle", set()),
        ("o[a-z]{3}|idle-2", {"open", "idle-2"}),
    ],
)
def test_pattern_matches_the_whole_id(
    client: WireClient, ids: dict[str, int], pattern: str | None, expected: set[str]
) -> None:
    assert names(list_transactions(client, transactional_id_pattern=pattern)) == expected


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1"])
def test_invalid_re2_patterns_are_refused(client: WireClient, pattern: str) -> None:
    response = list_transactions(client, transactional_id_pattern=pattern)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert response.transaction_states == []


# RE2 accepts this expression within its usual limits: 6.5 MB, and 131 ms on the event loop.
LARGE = r"(\pL{1,400}7)"


@pytest.mark.parametrize(
    "costly",
    [
        LARGE,
        r"\pL" * (UNICODE_CLASSES_MAX + 1),
        "a{1}" * (REPETITIONS_MAX + 1),
        "a" * (EXPRESSION_CHARACTERS_MAX + 1),
    ],
)
def test_costly_patterns_are_refused(client: WireClient, costly: str) -> None:
    response = list_transactions(client, transactional_id_pattern=costly)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_pattern_is_kept_after_its_request(client: WireClient, ids: dict[str, int]) -> None:
    assert names(list_transactions(client, transactional_id_pattern="o.*n")) == {"open"}
    assert re2._Regexp._make.cache_info().currsize == 0


def test_ids_are_matched_in_time_slices(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(ELEMENTS_PER_SLICE // MATCH_ELEMENTS + 1):
        producer(client, f"id-{number}")
    ended = count_slices(monkeypatch)
    every = names(list_transactions(client))
    assert not ended
    assert names(list_transactions(client, transactional_id_pattern="id-.*")) == every
    assert ended


def test_without_transactions_the_list_is_empty(client: WireClient) -> None:
    assert names(list_transactions(client)) == set()
