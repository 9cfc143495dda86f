"""Topics that are created automatically: one creation for each, and a wait that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from odradek.broker.requests import auto_topic_creation_manager
from odradek.broker.requests.auto_topic_creation_manager import AutoTopicCreationManager
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.topic_changes import NewTopic
from tests.helpers.manual_timers import SteppedTimers, settle


class Fixture:
    def __init__(self) -> None:
        self.timers = SteppedTimers(ManualClock())
        self.manager = AutoTopicCreationManager(self.timers)
        self.created: list[list[str]] = []
        self.outcome: asyncio.Future[list[KafkaError | None]] = asyncio.Future()

    async def create(self, topics: Sequence[NewTopic]) -> list[KafkaError | None]:
        self.created.append([topic.name for topic in topics])
        return await self.outcome

    async def request(self, *names: str) -> asyncio.Task[list[KafkaError | None]]:
        """Start a request that creates topics."""
        topics = [NewTopic(name) for name in names]
        task = asyncio.create_task(self.manager.create_topics(topics, self.create))
        await settle()
        return task


def run(test: Callable[[Fixture], Awaitable[None]]) -> None:
    async def main() -> None:
        it = Fixture()
        await test(it)
        it.manager.close()
        await settle()
        assert it.timers.armed == 0

    asyncio.run(main())


def codes(errors: Sequence[KafkaError | None]) -> list[ErrorCode | None]:
    return [None if error is None else error.code for error in errors]


def test_a_request_has_the_outcome_of_the_creation() -> None:
    async def test(it: Fixture) -> None:
        request = await it.request("a", "b")
        assert not request.done()
        it.outcome.set_result([None, KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "")])
        assert codes(await request) == [None, ErrorCode.INVALID_REPLICATION_FACTOR]

    run(test)


def test_a_request_does_not_wait_for_a_controller_that_is_unknown() -> None:
    """The creation continues without it."""

    async def test(it: Fixture) -> None:
        request = await it.request("a")
        it.timers.advance(int(auto_topic_creation_manager.WAIT_MS) - 1)
        await settle()
        assert not request.done()
        it.timers.advance(1)
        assert codes(await request) == [ErrorCode.REQUEST_TIMED_OUT]
        later = await it.request("a")
        it.outcome.set_result([None])
        assert codes(await later) == [None]
        assert it.created == [["a"]]

    run(test)


def test_each_topic_has_one_creation_in_flight() -> None:
    async def test(it: Fixture) -> None:
        requests = [await it.request("a", "b"), await it.request("b", "c"), await it.request("b")]
        assert it.created == [["a", "b"], ["c"]]
        it.outcome.set_result([None, None])
        assert codes(await requests[0]) == [None, None]
        assert codes(await requests[2]) == [None]
        requests[1].cancel()
        await it.request("a")
        assert it.created[-1] == ["a"], "its earlier creation has ended"

    run(test)


def test_the_number_of_topics_in_creation_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_topic_creation_manager, "TOPICS_MAX", 2)

    async def test(it: Fixture) -> None:
        first = await it.request("a", "b")
        refused = await it.request("c")
        assert codes(await refused) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        it.outcome.set_result([None, None])
        assert codes(await first) == [None, None]
        it.outcome = asyncio.Future()
        it.outcome.set_result([None])
        assert codes(await (await it.request("c"))) == [None]

    run(test)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.NOT_CONTROLLER, ""), ErrorCode.NOT_CONTROLLER),
        (ValueError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_creation_that_fails_is_an_error_of_each_topic(error: Exception, code: ErrorCode) -> None:
    async def test(it: Fixture) -> None:
        request = await it.request("a", "b")
        it.outcome.set_exception(error)
        assert codes(await request) == [code, code]

    run(test)


def test_requests_end_when_the_broker_stops() -> None:
    async def test(it: Fixture) -> None:
        request = await it.request("a")
        it.manager.close()
        assert codes(await request) == [ErrorCode.REQUEST_TIMED_OUT]

    run(test)
