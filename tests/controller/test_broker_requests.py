"""Requests of brokers and administrators that need several changes of the metadata."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.controller.broker_plans import DrainStep
from odradek.controller.broker_requests import BrokerRequests
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName
from odradek.protocol.messages.drain_broker_request import DrainBrokerRequest
from odradek.result_tasks import wait
from tests.helpers.event_loop import on_loop


class Drains:
    """A controller whose steps of a drain are given."""

    def __init__(self, *steps: DrainStep | KafkaError) -> None:
        self.steps = list(steps)
        self.calls: list[tuple[BrokerId, bool, bool]] = []

    async def drain_broker(self, broker: BrokerId, drained: bool, *, is_first: bool) -> DrainStep:
        self.calls.append((broker, drained, is_first))
        step = self.steps.pop(0)
        if isinstance(step, KafkaError):
            raise step
        return step


async def drained(controller: Any) -> Any:
    return await wait(BrokerRequests(controller).drain_broker(DrainBrokerRequest(2, drained=True)))


@pytest.mark.parametrize("further", [0, 1, 3])
@on_loop
async def test_steps_of_a_drain_follow_each_other_up_to_the_last_one(further: int) -> None:
    steps = [DrainStep(is_last=False, remaining=[(TopicName("t"), 7)])] * further
    controller = Drains(*steps, DrainStep(remaining=[(TopicName("t"), 1), (TopicName("t"), 2)]))
    response = await drained(controller)
    assert response.error_code == ErrorCode.NONE
    assert [(each.topic, each.partitions) for each in response.remaining] == [("t", [1, 2])]
    assert controller.calls == [(2, True, True)] + [(2, True, False)] * further


@on_loop
async def test_error_of_a_step_is_the_response_to_a_drain() -> None:
    refused = KafkaError(ErrorCode.NOT_CONTROLLER, "moved")
    response = await drained(Drains(DrainStep(is_last=False), refused))
    assert (response.error_code, response.error_message) == (ErrorCode.NOT_CONTROLLER, "moved")
