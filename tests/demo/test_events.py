"""The generator of usage events: reproducible, ordered and according to the schema."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta

import pytest

from odradek.demo.events import CUT_OFF_ONE_IN, DAY, ONE_MORE, SCHEMA, usage_events

COUNT = 20_000


def whole_events(seed: int = 1) -> list[dict[str, object]]:
    values = [value for _, value in usage_events(COUNT, seed)]
    return [json.loads(value) for value in values if value.endswith(b"}")]


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_number_of_events_is_the_requested_one(count: int) -> None:
    assert len(list(usage_events(count, seed=3))) == count


def test_same_seed_gives_the_same_bytes() -> None:
    assert list(usage_events(2000, 7)) == list(usage_events(2000, 7))
    assert list(usage_events(2000, 7)) != list(usage_events(2000, 8))


def test_events_are_in_order_of_time_and_of_one_day() -> None:
    times = [datetime.fromisoformat(str(event["time"])) for event in whole_events()]
    assert times == sorted(times)
    assert times[0] >= DAY
    assert times[-1] < DAY + timedelta(days=1)


def test_key_is_the_session() -> None:
    for key, value in usage_events(500, 5):
        if value.endswith(b"}"):
            assert json.loads(value)["session"].encode() == key


def test_some_events_are_truncated() -> None:
    cut_off = COUNT - len(whole_events())
    assert 0 < cut_off < 5 * COUNT / CUT_OFF_ONE_IN


def test_clicks_follow_impressions_follow_page_views() -> None:
    counts = Counter(event["type"] for event in whole_events())
    assert set(counts) == {"page_view", "impression", "click"}
    assert counts["impression"] > counts["page_view"] > counts["click"] > 0


def test_fields_are_the_fields_of_the_schema() -> None:
    names = {column.split()[0] for column in SCHEMA.split(", ")}
    assert {name for event in whole_events() for name in event} == names


def test_event_to_send_after_the_demo_has_all_required_fields() -> None:
    required = {column.split()[0] for column in SCHEMA.split(", ") if "NOT NULL" in column}
    assert {name for name, value in json.loads(ONE_MORE).items() if value} == required
