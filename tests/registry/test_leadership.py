"""Effects of the election, performed: revocations that arrive while a step begins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from odradek.environment.clock import Clock, ManualClock, SystemClock
from odradek.environment.thread_pool import ThreadExecutors
from odradek.environment.timers import LoopTimers
from odradek.registry import leadership as leadership_module
from odradek.registry.applied_log import AppliedLog
from odradek.registry.election import (
    AnnounceWriter,
    Effect,
    FencePredecessor,
    Leader,
    LeaderRead,
    PartitionRevoked,
    Phase,
)
from odradek.registry.kafka_settings import KafkaSettings
from odradek.registry.leadership import OWN_URL_MS, WriterElection
from odradek.registry.log_identity import LogIdentityWatch
from odradek.registry.schemas_log import SchemasLog
from odradek.registry.state import RegistryState

URL = "http://a:1"


class EmptyLog:
    async def end_offset(self) -> int:
        return 0


class NoChange:
    async def verify(self) -> None:
        pass


class Member:
    """A membership whose leader is the one of the test."""

    def __init__(self) -> None:
        self.known: Leader | None = None

    async def leader(self) -> Leader | None:
        return self.known

    async def group_metadata(self) -> object:
        return "metadata"


class Election:
    """An election without brokers. `calls` has the calls of its producers."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        before: Callable[[Effect], None],
        clock: Clock | None = None,
    ) -> None:
        self.calls: list[str] = []
        calls = self.calls

        class Producer:
            def __init__(self, settings: KafkaSettings, cluster_id: str) -> None:
                pass

            def fence(self) -> None:
                calls.append("fence")

            def announce(self, position: int, leader: Leader, metadata: object) -> None:
                calls.append(f"announce {leader.epoch}")

            def close(self) -> None:
                calls.append("close")

        monkeypatch.setattr(leadership_module, "TransactionalProducer", Producer)
        self.member = Member()
        self.pool = ThreadExecutors().pool(1, "writer")
        applied = AppliedLog(RegistryState(), "_schemas")
        applied._is_ready.set()
        self.election = WriterElection(
            KafkaSettings("127.0.0.1:1"),
            "cluster",
            URL,
            cast(SchemasLog, EmptyLog()),
            cast(LogIdentityWatch, NoChange()),
            applied,
            self.pool,
            clock or SystemClock(),
            LoopTimers(),
            lambda _: None,
        )
        self.election._member = cast(Any, self.member)
        self.election.serving()
        perform = self.election._perform

        def perform_and_report(effect: Effect) -> None:
            perform(effect)
            before(effect)

        monkeypatch.setattr(self.election, "_perform", perform_and_report)

    async def settled(self) -> None:
        while self.election._tasks:
            await asyncio.wait(set(self.election._tasks))


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


@pytest.mark.parametrize(
    ("effect_type", "calls"), [(FencePredecessor, []), (AnnounceWriter, ["fence", "close"])]
)
def test_a_step_whose_term_has_ended_before_its_task_begins_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    effect_type: type[Effect],
    calls: list[str],
) -> None:
    async def test() -> None:
        def revoke(effect: Effect) -> None:
            if isinstance(effect, effect_type):
                tested.election._handle(PartitionRevoked("the group has another owner"))

        tested = Election(monkeypatch, revoke)
        tested.election.partition_assigned()
        await tested.settled()
        tested.pool.shutdown(wait=True)
        assert tested.election._state.phase is Phase.FOLLOWING
        assert tested.election._producer is None
        assert tested.calls == calls

    with caplog.at_level(logging.ERROR):
        run(test)
    assert caplog.records == []


def test_an_instance_becomes_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        tested = Election(monkeypatch, lambda _: None)
        tested.member.known = Leader("http://b:1", 4)
        tested.election.partition_assigned()
        await tested.settled()
        assert tested.election.writer is not None
        assert tested.election.known_epoch == 5
        tested.pool.shutdown(wait=True)
        assert tested.calls == ["fence", "announce 5"]

    run(test)


def test_a_second_instance_with_the_same_url_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        clock = ManualClock()
        tested = Election(monkeypatch, lambda _: None, clock)
        tested.election._handle(LeaderRead(Leader(URL, 3)))
        for pause_ms, lines in ((0, 0), (OWN_URL_MS - 1, 0), (1, 1), (OWN_URL_MS, 1)):
            clock.advance(int(pause_ms))
            assert await tested.election.leader() is None
            assert len(caplog.records) == lines

    with caplog.at_level(logging.WARNING):
        run(test)
    line = caplog.records[0].getMessage()
    assert URL in line and "--advertise" in line


def test_an_instance_between_two_terms_is_not_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        clock = ManualClock()
        tested = Election(monkeypatch, lambda _: None, clock)
        tested.election._handle(LeaderRead(Leader(URL, 3)))
        await tested.election.leader()
        clock.advance(int(OWN_URL_MS))
        tested.election._handle(LeaderRead(Leader("http://b:1", 4)))
        assert await tested.election.leader() == Leader("http://b:1", 4)
        tested.election._handle(LeaderRead(Leader(URL, 5)))
        await tested.election.leader()
        tested.election.partition_assigned()
        clock.advance(int(OWN_URL_MS))
        await tested.election.leader()
        await tested.settled()

    with caplog.at_level(logging.WARNING):
        run(test)
    assert caplog.records == []
