"""Byte quotas: the sliding window, the precedence of quotas, and the length of pauses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.requests import quotas
from odradek.broker.requests.quotas import ByteQuota, ClientQuotas, SlidingWindow
from odradek.metadata.quotas import CLIENT_ID, PRODUCER_BYTE_RATE, USER, Entity, entity_of

SAMPLES, SAMPLE_MS = 11, 1000
ME, OTHER = "ANONYMOUS", "somebody"


def quota(*limits: tuple[Entity, float]) -> ByteQuota:
    made = ByteQuota(PRODUCER_BYTE_RATE, SAMPLES, SAMPLE_MS)
    made.update({entity: {PRODUCER_BYTE_RATE: limit} for entity, limit in limits})
    return made


def user(name: str | None) -> Entity:
    return ((USER, name),)


def client(name: str | None) -> Entity:
    return ((CLIENT_ID, name),)


def both(user_name: str | None, client_name: str | None) -> Entity:
    return entity_of([(USER, user_name), (CLIENT_ID, client_name)])


# A list of (time in ms, bytes), then a time with its rate and its measured interval. The interval
# is at least ten whole samples plus the incomplete one.
WINDOWS: list[tuple[list[tuple[int, int]], int, float, int]] = [
    ([], 5, 0, 10_000),
    ([(0, 1000)], 0, 100, 10_000),
    ([(0, 1000)], 500, 1000 / 10.5, 10_500),
    ([(0, 1000), (500, 1000)], 500, 2000 / 10.5, 10_500),
    ([(0, 1000), (1000, 1000)], 1000, 200, 10_000),
    ([(0, 1000), (1000, 1000)], 2500, 2000 / 10.5, 10_500),
    ([(second * 1000, 100) for second in range(11)], 10_000, 1100 / 10, 10_000),
    ([(second * 1000, 100) for second in range(12)], 11_000, 1100 / 10, 10_000),
    ([(0, 1000)], 10_999, 1000 / 10.999, 10_999),
    ([(0, 1000)], 11_000, 0, 10_000),
    ([(0, 1000), (20_000, 10)], 20_000, 1, 10_000),
    ([(0, 1000), (0, -1000)], 0, 0, 10_000),
]


@pytest.mark.parametrize(("added", "now_ms", "rate", "over_ms"), WINDOWS)
def test_window_rates_equal_kafkas(
    added: list[tuple[int, int]], now_ms: int, rate: float, over_ms: int
) -> None:
    window = SlidingWindow(SAMPLES, SAMPLE_MS)
    for at_ms, size in added:
        window.add(size, at_ms)
    measured, over = window.measure(now_ms)
    assert measured == pytest.approx(rate)
    assert over == over_ms


# Entities with a quota, in the order of precedence. The limit of each is 1 more than the limit of
# the entity before it.
ORDER: list[tuple[Entity, float]] = [
    (both(ME, "c"), 1),
    (both(ME, None), 2),
    (user(ME), 3),
    (both(None, "c"), 4),
    (both(None, None), 5),
    (user(None), 6),
    (client("c"), 7),
    (client(None), 8),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_entity_applies(first: int) -> None:
    found = quota(*ORDER[first:]).limit(ME, "c")
    assert found is not None
    assert found[0] == ORDER[first][1]


@pytest.mark.parametrize(
    ("limits", "who", "limit"),
    [
        ([(both(ME, "c"), 1)], (ME, "d"), None),
        ([(both(ME, "c"), 1)], (OTHER, "c"), None),
        ([(user(OTHER), 1), (client("d"), 2)], (ME, "c"), None),
        ([(user(None), 1)], (ME, ""), 1),
        ([(client(None), 1), (both(None, None), 2)], (ME, ""), None),
        ([(user(ME), 1), (both(ME, None), 2)], (ME, ""), 1),
    ],
)
def test_clients_without_an_entity_have_no_quota(
    limits: list[tuple[Entity, float]], who: tuple[str, str], limit: float | None
) -> None:
    found = quota(*limits).limit(*who)
    assert (found and found[0]) == limit


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        (user(ME), True),
        (user(None), True),
        (client(None), False),
        (both(ME, None), False),
        (both(None, None), False),
    ],
)
def test_clients_of_a_users_quota_share_it_and_others_do_not(entity: Entity, shared: bool) -> None:
    limited = quota((entity, 1000))
    assert limited.record(ME, "c", 10_000, 0) == 0
    assert (limited.record(ME, "d", 10_000, 0) > 0) == shared


def test_pause_brings_the_rate_over_the_window_down_to_the_quota() -> None:
    limited = quota((client("c"), 1000))
    assert limited.record(ME, "c", 10_000, 0) == 0
    # 15,000 bytes over 10 s are 1500/s. After 5 s more they are 1000/s.
    assert limited.record(ME, "c", 5_000, 0) == 5_000
    assert limited.record(ME, "c", 5_000, 500) == round(10_500 * (20_000 / 10.5 / 1000 - 1))


def test_unrecorded_bytes_are_not_counted() -> None:
    limited = quota((client("c"), 1000))
    assert limited.record(ME, "c", 20_000, 0) == 10_000
    limited.unrecord(ME, "c", 20_000, 0)
    assert limited.record(ME, "c", 10_000, 0) == 0
    limited.unrecord(ME, "nobody", 1, 0)


def test_the_bytes_of_a_whole_window_may_be_used_in_one_request() -> None:
    limited = quota((client("c"), 1000))
    burst = limited.burst_bytes(ME, "c")
    assert burst == 10_000
    assert limited.record(ME, "c", burst, 0) == 0
    assert limited.burst_bytes(ME, "d") is None


def test_quotas_change_while_clients_are_counted() -> None:
    limited = quota((client("c"), 1000))
    assert limited.record(ME, "c", 11_000, 0) == 1_000
    limited.update({client("c"): {PRODUCER_BYTE_RATE: 2000.0}})
    assert limited.record(ME, "c", 0, 0) == 0
    limited.update({client("c"): {"consumer_byte_rate": 1.0}})
    assert not limited.enabled
    assert limited.record(ME, "c", 1 << 40, 0) == 0


def test_each_kind_has_its_own_quota() -> None:
    broker = ClientQuotas(SAMPLES, SAMPLE_MS)
    assert not broker.produce.enabled
    assert not broker.fetch.enabled
    broker.update({client("c"): {PRODUCER_BYTE_RATE: 1.0}})
    assert broker.produce.enabled
    assert not broker.fetch.enabled


def test_the_least_recently_used_windows_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "WINDOWS_MAX", 3)
    limited = quota((client(None), 1000))
    for name in "abcabcd":
        limited.record(ME, name, 10_000, 0)
    assert limited.record(ME, "b", 1, 0) > 0
    assert limited.record(ME, "a", 1, 0) == 0
    assert len(limited._windows) == 3


def test_names_of_clients_are_bounded_in_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "WINDOW_NAME_CHARACTERS_MAX", 1_000)
    limited = quota((client(None), 1000))
    for number in range(50):
        limited.record(ME, f"{number:0100}", 10_000, 0)
        held = sum(len(user) + len(name) for user, name in limited._windows)
        assert held == limited._name_characters <= 1_000
    assert len(limited._windows) > 5
    limited.record(ME, "c" * 5_000, 10_000, 0)
    assert len(limited._windows) == 1
    limited.update({client(None): None})
    assert limited._name_characters == 0


@given(
    st.integers(1000, 10_000),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), max_size=60),
)
def test_a_client_that_pauses_as_requested_meets_the_quota(
    limit: int, requests: list[tuple[int, int]]
) -> None:
    """This holds on average. The bytes of a window may come in one request, which is not split."""
    limited = quota((client("c"), limit))
    now_ms = total = 0
    for later_ms, size in requests:
        now_ms += later_ms
        pause_ms = limited.record(ME, "c", size, now_ms)
        assert pause_ms >= 0
        now_ms += pause_ms
        total += size
        assert total <= limit * (now_ms + SAMPLES * SAMPLE_MS) / 1000 + max(
            each for _, each in requests
        )
