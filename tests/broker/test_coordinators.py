"""The creation of a coordinator for a partition that this broker is elected to lead."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from odradek.broker import coordinators
from odradek.broker.coordinators import IMPORT_RETRY_S, Coordinators
from odradek.config.broker import BrokerConfig
from odradek.environment.clock import ManualClock
from odradek.environment.randomness import SystemRandomness
from odradek.ids import TopicName, TopicPartition
from odradek.metadata.image import MetadataImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.helpers.manual_timers import SteppedTimers

RETRY_MS = int(IMPORT_RETRY_S * 1000)


class Leader:
    """A broker that leads the first partition of each internal topic, or none."""

    leads = True

    def on_leadership(self, changed: Callable[[TopicPartition], object]) -> None:
        pass

    def led_epoch(self, topic_partition: TopicPartition) -> int | None:
        return 1 if self.leads and topic_partition.partition == 0 else None


class Threads(Executor):
    """An executor without threads. The first `failures` imports fail."""

    failures = 0

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        if self.failures:
            self.failures -= 1
            done.set_exception(OSError(errno.EMFILE, "Too many open files"))
        else:
            done.set_result(None)
        return done


class Made:
    """A coordinator."""

    def __init__(self) -> None:
        self.is_started = False

    def start(self) -> None:
        self.is_started = True

    def stop(self) -> None:
        self.is_started = False


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leader, self.threads = Leader(), Threads()
        clock = ManualClock()
        self.timers = SteppedTimers(clock)
        monkeypatch.setattr(Coordinators, "_make_groups", lambda _: Made())
        monkeypatch.setattr(Coordinators, "_make_transactions", lambda _: Made())
        monkeypatch.setattr(MetadataImage, "partition_count", lambda _, __: 1)
        self.coordinators = Coordinators(
            BrokerConfig({}),
            clock,
            self.timers,
            lambda: MetadataImage(topics_by_name=PersistentMap()),
            self.leader,  # type: ignore[arg-type]
            self.threads,
            None,  # type: ignore[arg-type]
            SystemRandomness(),
            None,
        )
        self.coordinators._active = True

    async def elected(self, topic: TopicName) -> None:
        self.coordinators.leadership_changed(TopicPartition(topic, 0))
        await self.settled()

    async def settled(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def made(self, topic: TopicName) -> Any:
        found = self.coordinators
        return found.made_groups if topic == CONSUMER_OFFSETS else found.made_transactions


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_a_failed_import_is_repeated_without_a_request(
    topic: TopicName, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        world = World(monkeypatch)
        world.threads.failures = 2
        with caplog.at_level(logging.WARNING, coordinators.__name__):
            await world.elected(topic)
        assert world.made(topic) is None
        assert "Too many open files" in caplog.text
        for _ in range(2):
            world.timers.advance(RETRY_MS)
            await world.settled()
        assert world.made(topic).is_started

    asyncio.run(main())


def test_a_failed_import_is_not_repeated_after_the_leadership_or_the_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        world = World(monkeypatch)
        world.threads.failures = 2
        await world.elected(CONSUMER_OFFSETS)
        world.leader.leads = False
        world.timers.advance(RETRY_MS)
        await world.settled()
        world.leader.leads = True
        await world.elected(CONSUMER_OFFSETS)
        world.coordinators.stop()
        world.timers.advance(RETRY_MS)
        await world.settled()
        assert world.made(CONSUMER_OFFSETS) is None
        assert not world.threads.failures

    asyncio.run(main())
