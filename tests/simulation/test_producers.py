"""Tests of what the producers of a simulation report."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.simulation.invariants import PartitionModel
from tests.simulation.producers import Batch, GaveUp, SimulatedProducer
from tests.simulation.simulation import Simulation


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    simulation = Simulation(1, 3)
    yield simulation
    simulation.close()


@pytest.mark.parametrize(
    "error", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
@pytest.mark.parametrize("broker", [1, 2])
def test_only_a_deposed_leader_may_refuse_the_sequence_of_a_producer(
    simulation: Simulation, error: ErrorCode, broker: int
) -> None:
    """Broker 1 led in epoch 3, and broker 2 leads in epoch 4."""
    key = next(key for key in simulation.keys if key.durable)
    simulation.models[b"", key.partition] = PartitionModel(leaders={3: 1, 4: 2}, epoch=4)
    part = PartitionProduceResponse(key.partition, error)
    response = ProduceResponse([TopicProduceResponse(partition_responses=[part])])
    producer = SimulatedProducer(simulation, "producer", idempotent=True)
    address = simulation.bootstrap[broker - 1]
    with pytest.raises(GaveUp):
        producer._take(Batch(key, 7), address, response, 0, None)
    assert len(simulation.violations) == (broker == 2)
