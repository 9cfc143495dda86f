"""Reports to the controller that this broker has removed its logs of deleted topics.

A report that fails is sent again after a delay. Reports that this process has not sent when it ends
do no harm: the next start carries the recorded deletions out again, and reports them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from itertools import islice

from odradek.client.connection import TooManyRequests, UnsupportedRequest
from odradek.environment.timers import Timers
from odradek.ids import BrokerId, Uuid
from odradek.metadata.controller_channel import ControllerChannel
from odradek.metadata.image import UNKNOWN_BROKER_EPOCH, MetadataImage
from odradek.protocol.messages.finish_deletions_request import FinishDeletionsRequest
from odradek.protocol.messages.finish_deletions_response import FinishDeletionsResponse
from odradek.result_tasks import wait

logger = logging.getLogger(__name__)

TOPICS_PER_REPORT_MAX = 1_000
REPORT_RETRY_MS = 500.0
"""Delay before a report is sent again."""


class FinishedDeletions:
    """Owned by the event loop.

    Args:
        channel: Requests to the controller, for this purpose only.
        broker_id: This broker.
        broker_epoch: Returns the epoch of its registration.
        image: Returns the image of this broker.
        timers: The environment's timers.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        image: Callable[[], MetadataImage],
        timers: Timers,
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._timers = timers
        self._topics: dict[Uuid, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._is_stopped = False

    def add(self, topic_ids: Collection[Uuid]) -> None:
        """Report soon that the logs of these topics are removed, if the controller waits for it."""
        self._topics.update((each, None) for each in topic_ids if self._is_awaited(each))
        if self._topics and not self._is_stopped and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    def _is_awaited(self, topic_id: Uuid) -> bool:
        deletion = self._image().deletions.get(topic_id)
        return deletion is not None and self._broker_id in deletion.brokers

    async def _send(self) -> None:
        while self._topics:
            topics = list(islice(self._topics, TOPICS_PER_REPORT_MAX))
            if not await self._report(topics):
                await self._timers.sleep(REPORT_RETRY_MS / 1000)
                continue
            for topic_id in topics:
                del self._topics[topic_id]
        self._sending = None

    async def _report(self, topics: list[Uuid]) -> bool:
        """Return whether the controller has recorded the deletions."""
        epoch = self._broker_epoch()
        if epoch == UNKNOWN_BROKER_EPOCH:
            return False
        request = FinishDeletionsRequest(self._broker_id, epoch, topics)
        try:
            response = await wait(self._channel.send(request, FinishDeletionsResponse))
        except (OSError, TooManyRequests, UnsupportedRequest) as error:
            logger.info("finished deletions are not reported yet: %s", error)
            return False
        except Exception:
            logger.exception(
                "bug in the report of %d finished deletions. It is sent again. Report the "
                "traceback",
                len(topics),
            )
            return False
        if response.error_code:
            logger.info("finished deletions are not reported yet: error %d", response.error_code)
        return not response.error_code

    async def stop(self) -> None:
        """End the reports."""
        self._is_stopped = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
