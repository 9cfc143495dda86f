"""Reports of finished deletions to the controller, which may fail and are then repeated."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.broker import finished_deletions
from odradek.broker.finished_deletions import FinishedDeletions
from odradek.client.connection import TooManyRequests
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.image import MetadataImage, TopicDeletion
from odradek.metadata.persistent import PersistentMap
from odradek.protocol.messages.finish_deletions_response import FinishDeletionsResponse
from odradek.results import PendingResult, Result
from tests.helpers.virtual_loop import run_virtually

OWN, OTHER = BrokerId(1), BrokerId(2)
TOPICS = [Uuid(bytes([number]) * 16) for number in range(1, 8)]


def image(*brokers: BrokerId) -> MetadataImage:
    """Return an image in which these brokers have logs of all deleted topics."""
    deletion = TopicDeletion(TopicName("t"), brokers)
    return MetadataImage(deletions=PersistentMap(dict.fromkeys(TOPICS, deletion)))


class Controller:
    """A channel to a controller. Without an outcome it accepts a report."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, list[Uuid]]] = []
        self.outcomes: deque[Any] = deque()
        self.epoch = 5
        self.image = image(OWN, OTHER)
        self.deletions = FinishedDeletions(
            self,  # type: ignore[arg-type]
            broker_id=OWN,
            broker_epoch=lambda: self.epoch,
            image=lambda: self.image,
            timers=LoopTimers(),
        )

    def send(self, request: Any, _response: object) -> Result[Any]:
        self.reports.append((request.broker_epoch, list(request.topic_ids)))
        outcome = self.outcomes.popleft() if self.outcomes else ErrorCode.NONE
        if isinstance(outcome, ErrorCode):
            return Result(FinishDeletionsResponse(outcome))
        result: PendingResult[Any] = PendingResult()
        if isinstance(outcome, Exception):
            result.fail(outcome)
        return result


def run(test: Callable[[Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        controller = Controller()
        await test(controller)
        await controller.deletions.stop()

    run_virtually(main())


def test_a_finished_deletion_is_reported_once() -> None:
    async def test(controller: Controller) -> None:
        controller.deletions.add(TOPICS[:2])
        await asyncio.sleep(10)
        assert controller.reports == [(5, TOPICS[:2])]
        controller.deletions.add(TOPICS[2:3])
        await asyncio.sleep(10)
        assert controller.reports[1:] == [(5, TOPICS[2:3])]

    run(test)


def test_a_deletion_that_the_controller_does_not_wait_for_is_not_reported() -> None:
    async def test(controller: Controller) -> None:
        controller.image = image(OTHER)
        controller.deletions.add(TOPICS)
        await asyncio.sleep(10)
        assert not controller.reports

    run(test)


def test_a_report_that_failed_is_repeated() -> None:
    async def test(controller: Controller) -> None:
        failures = [
            TimeoutError("late"),
            ErrorCode.STALE_BROKER_EPOCH,
            TooManyRequests("many"),
            ErrorCode.NOT_CONTROLLER,
        ]
        controller.outcomes.extend(failures)
        controller.deletions.add(TOPICS[:1])
        await asyncio.sleep(10)
        assert controller.reports == [(5, TOPICS[:1])] * (len(failures) + 1)

    run(test)


def test_a_report_with_an_unexpected_error_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def test(controller: Controller) -> None:
        controller.outcomes.append(ValueError("a defect"))
        controller.deletions.add(TOPICS[:1])
        await asyncio.sleep(10)
        assert controller.reports == [(5, TOPICS[:1])] * 2
        controller.deletions.add(TOPICS[1:2])
        await asyncio.sleep(10)
        assert controller.reports[2:] == [(5, TOPICS[1:2])]
        assert "a defect" in caplog.text

    run(test)


def test_a_broker_that_is_not_registered_reports_later() -> None:
    async def test(controller: Controller) -> None:
        controller.epoch = -1
        controller.deletions.add(TOPICS[:1])
        await asyncio.sleep(10)
        assert not controller.reports
        controller.epoch = 6
        await asyncio.sleep(10)
        assert controller.reports == [(6, TOPICS[:1])]

    run(test)


def test_many_deletions_are_divided(monkeypatch: Any) -> None:
    monkeypatch.setattr(finished_deletions, "TOPICS_PER_REPORT_MAX", 3)

    async def test(controller: Controller) -> None:
        controller.deletions.add(TOPICS)
        await asyncio.sleep(10)
        assert [topics for _, topics in controller.reports] == [TOPICS[:3], TOPICS[3:6], TOPICS[6:]]

    run(test)


def test_deletions_are_added_while_a_report_is_in_flight() -> None:
    async def test(controller: Controller) -> None:
        controller.outcomes.append(None)  # no response
        controller.deletions.add(TOPICS[:1])
        await asyncio.sleep(1)
        controller.deletions.add(TOPICS[1:2])
        await asyncio.sleep(1)
        assert controller.reports == [(5, TOPICS[:1])], "one report at a time"
        await controller.deletions.stop()
        controller.deletions.add(TOPICS[2:3])
        await asyncio.sleep(1)
        assert len(controller.reports) == 1, "none after the stop"

    run(test)


def test_nothing_is_reported_after_a_stop_without_reports() -> None:
    async def test(controller: Controller) -> None:
        await controller.deletions.stop()
        controller.deletions.add(TOPICS)
        await asyncio.sleep(1)
        assert not controller.reports

    run(test)
