"""Several instances on one topic: forwarding, own writes, and the end of the writer."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import httpx
import pytest

from odradek.testing import Broker, Registry
from tests.registry.writer_kills import (
    GROUP_CONFIG,
    TIMEOUT_S,
    kill_writers,
    register,
    schema,
    two_processes,
    wait_until,
    writer_of,
)

KILLS = 1
"""Kills of the writer in each run of the tests. `make evidence-registry-kills` has 50."""


@pytest.fixture
def pair(kafka: Broker) -> Iterator[tuple[Registry, Registry]]:
    """The writer and a follower."""
    with Registry(kafka) as first:
        wait_until("a writer", lambda: first.is_writer)
        with Registry(kafka) as second:
            yield first, second


def test_a_follower_forwards_writes_and_reads_its_own(pair: tuple[Registry, Registry]) -> None:
    writer, follower = pair
    for number in range(20):
        response = register(follower.url, f"s{number}", schema(number))
        assert response.status_code == 200, response.text
        found = httpx.get(f"{follower.url}/schemas/ids/{response.json()['id']}", timeout=TIMEOUT_S)
        assert found.status_code == 200
    assert writer.is_writer and not follower.is_writer


def test_the_writer_keeps_its_role_when_another_instance_joins(
    pair: tuple[Registry, Registry],
) -> None:
    writer, follower = pair
    assert register(follower.url, "a", schema(1)).status_code == 200
    assert writer.is_writer and not follower.is_writer


def test_both_instances_give_the_same_id_to_the_same_schema(
    pair: tuple[Registry, Registry],
) -> None:
    ids = [register(each.url, "a", schema(1)).json()["id"] for each in pair]
    ids += [register(each.url, "b", schema(1)).json()["id"] for each in pair]
    assert len(set(ids)) == 1


def test_errors_of_the_writer_are_the_errors_of_the_follower(
    pair: tuple[Registry, Registry],
) -> None:
    responses = [register(each.url, "a", '{"type":"nothing"}') for each in pair]
    assert [each.status_code for each in responses] == [422, 422]
    assert responses[0].json() == responses[1].json()


def test_a_follower_takes_over_when_the_writer_stops(kafka: Broker) -> None:
    first = Registry(kafka).start()
    wait_until("a writer", lambda: first.is_writer)
    with Registry(kafka) as second:
        ids = [register(second.url, "a", schema(1)).json()["id"]]
        first.close()
        response = register(second.url, "b", schema(2))
        assert response.status_code == 200, response.text
        ids.append(response.json()["id"])
        assert ids == [1, 2]
        assert second.is_writer


def test_registries_of_two_topics_are_independent(kafka: Broker) -> None:
    with Registry(kafka) as one, Registry(kafka, topic="schemas.two") as two:
        assert register(one.url, "a", schema(1)).json()["id"] == 1
        assert register(two.url, "a", schema(2)).json()["id"] == 1
        subjects = [
            httpx.get(f"{each.url}/subjects", timeout=TIMEOUT_S).json() for each in (one, two)
        ]
    assert subjects == [["a"], ["a"]]


def test_no_id_is_given_twice_or_lost_when_the_writer_is_killed_under_load(seed: int) -> None:
    assert kill_writers(KILLS, seed)["schemas"] > KILLS


def test_an_instance_ends_on_sigterm_and_the_other_one_takes_over() -> None:
    with Broker(GROUP_CONFIG) as broker, two_processes(broker.bootstrap_servers) as instances:
        stopped = writer_of(instances)
        began_s = time.monotonic()
        assert instances[stopped].end(signal.SIGTERM) == 0
        assert time.monotonic() - began_s < 10.0
        other = instances[1 - stopped]
        assert register(other.url, "a", schema(1)).status_code == 200
        wait_until("the other writer", lambda: other.is_writer)
