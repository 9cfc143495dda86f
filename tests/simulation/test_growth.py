"""The simulated growth of a cluster: messages and CPU time for a record by brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.api_keys import ApiKey
from tests.simulation.growth import (
    BATCH_RECORDS,
    PARTITIONS_EACH,
    Growth,
    GrowthWorld,
    RequestHeads,
)

BATCHES = 3
ROOT = Path(__file__).parents[2]


def grown(brokers: int, seed: int = 1) -> Growth:
    world = GrowthWorld(brokers, seed, BATCHES)
    try:
        return world.run()
    finally:
        world.close()


@given(
    st.lists(st.tuples(st.sampled_from([*ApiKey]), st.binary(max_size=20)), max_size=5),
    st.lists(st.integers(1, 30), max_size=40),
)
def test_apis_of_requests_are_found_in_any_division_of_their_bytes(
    requests: list[tuple[ApiKey, bytes]], sizes: list[int]
) -> None:
    data = b"".join(
        (2 + len(body)).to_bytes(4) + api.to_bytes(2, signed=True) + body for api, body in requests
    )
    heads, names = RequestHeads(), []
    for size in [*sizes, len(data)]:
        names += heads.found(data[:size])
        data = data[size:]
    assert names == [api.name for api, _ in requests]


def test_messages_of_a_seed_are_the_same_in_two_interpreters() -> None:
    arguments = ["--brokers", "3", "--seed", "1", "--batches", str(BATCHES)]
    command = [sys.executable, "-m", "tests.simulation.growth", *arguments]
    found = [
        json.loads(
            subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for hash_seed in ("1", "2")
    ]
    for values in found:
        assert values.pop("cpu_s") > 0
    assert found[0] == found[1]
    assert found[0]["broker_requests"]["FETCH"] > 0


def test_each_broker_adds_the_same_load() -> None:
    for brokers in (1, 2):
        growth = grown(brokers)
        batches = brokers * PARTITIONS_EACH * BATCHES
        assert growth.requests == {"PRODUCE": batches}
        assert growth.records == batches * BATCH_RECORDS
        assert growth.replicas == brokers


def test_single_broker_sends_no_messages_to_brokers() -> None:
    growth = grown(1)
    assert (growth.broker_requests, growth.broker_bytes) == ({}, 0)


def test_messages_for_a_record_stay_bounded_above_three_brokers() -> None:
    """A follower has one fetch session with each leader, so its fetches grow with the leaders."""
    three, five = grown(3), grown(5)
    bytes_each = [each.broker_bytes / each.records for each in (three, five)]
    assert bytes_each[1] < 1.3 * bytes_each[0], "each record is copied twice"
    fetches = [each.broker_requests["FETCH"] / each.records for each in (three, five)]
    assert 0 < fetches[1] < 2 * fetches[0]


def test_cpu_time_of_the_brokers_is_counted_without_that_of_the_clients() -> None:
    ticks = count(0, 5)
    world = GrowthWorld(2, 1, BATCHES, cpu_ns=lambda: next(ticks))
    try:
        growth = world.run()
    finally:
        world.close()
    steps = next(ticks) // 10
    assert growth.cpu_ns == 5 * steps > 0
