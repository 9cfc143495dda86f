"""Creation of topics for Metadata and FindCoordinator requests in a cluster.

The controller may be unknown for many seconds, for example after it was killed. A creation
therefore runs in the background, once for each topic (Kafka's ``AutoTopicCreationManager``). A
request waits for it at most `WAIT_MS`, because the later requests of its connection, for example
Produce and Fetch, wait for this one.

A single broker does not import this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from odradek.environment.timers import wait_at_most
from odradek.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.environment.timers import Timers
    from odradek.metadata.topic_changes import NewTopic

logger = logging.getLogger(__name__)

WAIT_MS = 1_000
"""The longest time for which a request waits for the creation of topics, in milliseconds.

A creation takes some ten milliseconds while there is a controller. The next request of the client
then finds the topics.
"""

TOPICS_MAX = 10_000
"""Number of topics in creation from which on further ones are refused."""

Errors = Sequence[KafkaError | None]
Create = Callable[[Sequence["NewTopic"]], Awaitable[Errors]]
"""Creates topics. Returns the error or None for each."""

_Outcome = dict[str, KafkaError | None]


class AutoTopicCreationManager:
    """The creations in flight of one broker. Owned by the event loop.

    Args:
        timers: The environment's timers.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._creations: dict[str, asyncio.Task[_Outcome]] = {}

    async def create_topics(
        self, topics: Sequence[NewTopic], create: Create
    ) -> list[KafkaError | None]:
        """Create topics, or wait for their creations in flight.

        Args:
            topics: The topics. Those without a creation in flight are created together.
            create: Creates them.

        Returns:
            The error or None for each topic. REQUEST_TIMED_OUT: its creation continues.
        """
        new = [topic for topic in topics if topic.name not in self._creations]
        if new and len(self._creations) < TOPICS_MAX:
            creation = asyncio.get_running_loop().create_task(self._run(new, create))
            self._creations.update((topic.name, creation) for topic in new)
        creations = {topic.name: self._creations.get(topic.name) for topic in topics}
        await wait_at_most(self._timers, {each for each in creations.values() if each}, WAIT_MS)
        return [_error_of(name, creation) for name, creation in creations.items()]

    def close(self) -> None:
        """Cancel all creations."""
        for creation in set(self._creations.values()):
            creation.cancel()

    async def _run(self, topics: Sequence[NewTopic], create: Create) -> _Outcome:
        try:
            errors = await create(topics)
        except KafkaError as error:  # for example NOT_CONTROLLER of a controller that is deposed
            errors = [error] * len(topics)
        except Exception as error:
            logger.exception("the automatic creation of topic %r failed", topics[0].name)
            failed = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The creation failed: {error}")
            errors = [failed] * len(topics)
        finally:
            for topic in topics:
                del self._creations[topic.name]
        return {topic.name: error for topic, error in zip(topics, errors, strict=True)}


def _error_of(name: str, creation: asyncio.Task[_Outcome] | None) -> KafkaError | None:
    if creation is None:
        reason = f"{TOPICS_MAX} topics are being created. Try again later."
        return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, reason)
    if not creation.done():
        reason = "The controller has not responded yet. The creation continues."
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)
    if creation.cancelled():
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The broker is stopping.")
    return creation.result()[name]
