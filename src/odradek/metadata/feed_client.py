"""The client of the metadata feed: it keeps the image of a broker of a cluster up to date.

It polls the active controller with the position of its image, and publishes each change that the
response has. It fetches the whole image when the controller says so, and publishes the difference.
The broker that is the controller does the same, over the network: one path for all brokers.

`FeedState` decides which request is next and which responses are accepted. This module sends the
requests, applies the changes in time slices and calls the subscribers.

The polls are also the signs of life of the broker. A change of many partitions may take longer than
the session timeout to apply. Polls without changes are sent in the meantime, by the event loop that
applies it. A broker whose event loop stands still sends none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from odradek.client.connection import TooManyRequests, UnsupportedRequest
from odradek.config.broker import BrokerConfig
from odradek.environment.clock import Clock
from odradek.environment.timers import Timer, Timers
from odradek.ids import BrokerId
from odradek.metadata.controller_channel import ControllerChannel
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.feed_state import (
    FeedRefusal,
    FeedState,
    ImageTransfer,
    InvalidFeedResponse,
    changing,
    decoding,
    replacing,
)
from odradek.metadata.image import MetadataImage
from odradek.metadata.publisher import RECORDS_UNSLICED_MAX, MetadataPublisher, Subscriber
from odradek.metadata.records import InvalidRecord
from odradek.protocol.errors import UnencodableMessage
from odradek.protocol.freeing import arrays_of, freeing
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.metadata_feed_response import MetadataFeedResponse
from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
from odradek.protocol.messages.metadata_image_response import MetadataImageResponse
from odradek.result_tasks import wait
from odradek.results import Abandoned, Result
from odradek.slicing import end_slice, in_slices

logger = logging.getLogger(__name__)

DOUBLINGS_MAX = 10
"""Most doublings of the delay after failures."""
EARLY_IMAGES_BEFORE_WARNING = 30
"""First images without the registration of this broker until a warning. It is repeated."""

_NOT_SENT = (OSError, TooManyRequests, UnsupportedRequest, UnencodableMessage)


@dataclass(frozen=True, slots=True)
class FeedClientSettings:
    """Times of the client of the feed.

    Attributes:
        max_wait_ms: The time that the controller may hold a poll, and the interval of signs of life
            while a change is applied. The controller fences a broker that has not polled for a
            session timeout, so it is a fraction of that.
        timeout_ms: Limit of a request. Above it the connection ends, because it may be dead.
        retry_backoff_ms: Delay after the first failure. Each further one doubles it.
        retry_backoff_max_ms: Upper bound of the delay.
    """

    max_wait_ms: int = 3_000
    timeout_ms: int = 6_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000

    @staticmethod
    def for_session(timeout_ms: int) -> FeedClientSettings:
        """Return the settings for broker.session.timeout.ms."""
        return FeedClientSettings(timeout_ms // 3, timeout_ms * 2 // 3)


class _SubscriberFailed(Exception):
    """A subscriber has not processed a change."""


class _TooOld(Exception):
    """The first image must not be applied."""


class FeedClient:
    """The image of a broker of a cluster, and its subscribers. Owned by the event loop.

    Args:
        channel: Requests to the controller. This client owns it and closes it.
        config: The configuration of this broker. It gets the dynamic configs of each image.
        cluster_id: The id of the cluster.
        broker_id: This broker.
        broker_epoch: Returns the epoch of its newest registration.
        timers: Timers of the delays after failures.
        clock: The clock of `last_heard_ms`.
        on_failure: Called once with the error when a subscriber fails. The image is then newer than
            the state of the broker's parts, and no change is applied any longer: the broker has to
            stop.
        settings: Times.
        may_begin: Returns whether a whole image may be the first one that is applied.

    Attributes:
        last_heard_ms: The monotonic time of the last valid response, or of the start.
        others_heard_ms: The same for responses of other brokers than this one.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        *,
        config: BrokerConfig,
        cluster_id: str,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        timers: Timers,
        clock: Clock,
        on_failure: Callable[[Exception], object],
        settings: FeedClientSettings | None = None,
        may_begin: Callable[[MetadataImage], bool] = lambda _: True,
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._timers = timers
        self._clock = clock
        self._on_failure = on_failure
        self._settings = settings or FeedClientSettings()
        self._may_begin = may_begin
        self._state = FeedState(cluster_id, broker_id)
        self._publisher = MetadataPublisher(config, MetadataImage(cluster_id=cluster_id))
        self._first_end = asyncio.Event()
        self._has_caught_up = False
        self._failures = 0
        self._early_images = 0
        self._task: asyncio.Task[None] | None = None
        self.last_heard_ms = self.others_heard_ms = clock.monotonic_ms()

    @property
    def image(self) -> MetadataImage:
        """The image that was published last. Its offset is 0 before the first one."""
        return self._publisher.image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(delta, old_image, new_image)` at every change (`MetadataPublisher`)."""
        self._publisher.subscribe(subscriber)

    def start(self) -> None:
        """Begin to follow the feed."""
        assert self._task is None, "the client is started once"
        self.last_heard_ms = self.others_heard_ms = self._clock.monotonic_ms()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End all requests. A change that is being published is not finished."""
        self._first_end.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self._channel.close()

    async def caught_up(self) -> None:
        """Return when the image has been level with the end of the feed once.

        A response names the end, so the controller may have made further changes since.

        Raises:
            Abandoned: The client stopped or failed before.
        """
        await self._first_end.wait()
        if not self._has_caught_up:
            raise Abandoned()

    # --- requests ---

    async def _run(self) -> None:
        try:
            while True:
                await self._request()
        except Exception as error:
            logger.exception(
                "applying the metadata after offset %d failed. The broker stops",
                self._state.position.offset,
            )
            self._first_end.set()
            self._on_failure(error)

    async def _request(self) -> None:
        """Send the next request and apply its response. Wait for a delay after a failure."""
        request = self._state.next_request(self._broker_epoch(), self._settings.max_wait_ms)
        try:
            if isinstance(request, MetadataFeedRequest):
                await self._poll(request)
            else:
                await self._fetch(request)
        except FeedRefusal as error:
            logger.warning(
                "the controller refuses a poll after metadata offset %d: %s. It is repeated",
                self._state.position.offset,
                error,
            )
        except (InvalidFeedResponse, InvalidRecord) as error:
            logger.warning(
                "dropping a response after metadata offset %d, and its connection: %s",
                self._state.position.offset,
                error,
            )
            self._channel.disconnect()
        except _TooOld:
            self._early_images += 1
            self._report_early_image()
            self._state.did_not_fit()
        except TimeoutError as error:
            logger.info("dropping the connection to the controller: %s", error)
            self._channel.disconnect()
        except _NOT_SENT as error:
            logger.warning(
                "the metadata after offset %d cannot be requested: %r. It is tried again",
                self._state.position.offset,
                error,
            )
        else:
            self._failures = 0
            if self._state.is_level:
                self._has_caught_up = True
                self._first_end.set()
            return
        await self._back_off()

    def _report_early_image(self) -> None:
        if self._early_images % EARLY_IMAGES_BEFORE_WARNING:
            logger.info("waiting until the controller has registered this broker")
            return
        logger.warning(
            "the controller has not registered broker %d after %d attempts, so its start waits. If "
            "the broker was unregistered, start it again. Otherwise see the controller's log",
            self._broker_id,
            self._early_images,
        )

    async def _back_off(self) -> None:
        settings = self._settings
        delay_ms = settings.retry_backoff_ms << min(self._failures, DOUBLINGS_MAX)
        self._failures += 1
        await self._timers.sleep(min(delay_ms, settings.retry_backoff_max_ms) / 1000)

    async def _poll(self, request: MetadataFeedRequest) -> None:
        timeout_ms = self._settings.timeout_ms
        sent = self._channel.send(request, MetadataFeedResponse, timeout_ms=timeout_ms)
        response = await wait(sent)
        await self._apply_changes(response)
        # A controller in this process keeps the changes for other brokers. Their reference counts
        # show that, and they stay unchanged.
        arrays = arrays_of(response)
        del sent, response
        await in_slices(freeing(arrays))

    async def _apply_changes(self, response: MetadataFeedResponse) -> None:
        changes = self._state.changes(response)
        self._heard(response.controller_id)
        with self._signs_of_life():
            for change in changes:
                work = changing(self.image, BrokerId(response.controller_id), change)
                try:
                    delta, image = await in_slices(work)
                except InvalidRecord:
                    self._state.did_not_fit()
                    raise
                await self._publish(delta, image)
                self._state.applied(change)
                await in_slices(delta.releasing())

    @contextmanager
    def _signs_of_life(self) -> Iterator[None]:
        """Send polls without changes at an interval. Their responses are dropped."""
        sent: Result[MetadataFeedResponse] | None = None
        timer: Timer
        interval_s = self._settings.max_wait_ms / 1000

        def send() -> None:
            nonlocal sent, timer
            if sent is not None:
                sent.cancel()
            request = self._state.sign_of_life(self._broker_epoch())
            timeout_ms = self._settings.timeout_ms
            sent = self._channel.send(request, MetadataFeedResponse, timeout_ms=timeout_ms)
            timer = self._timers.call_later(interval_s, send)

        timer = self._timers.call_later(interval_s, send)
        try:
            yield
        finally:
            timer.cancel()
            if sent is not None:  # the next poll would wait for it
                sent.cancel()

    def _heard(self, controller_id: int) -> None:
        self.last_heard_ms = self._clock.monotonic_ms()
        if controller_id != self._broker_id:
            self.others_heard_ms = self.last_heard_ms

    async def _fetch(self, request: MetadataImageRequest) -> None:
        """Fetch a chunk of a whole image. Apply the difference after the last one."""
        timeout_ms = self._settings.timeout_ms
        sent = self._channel.send(request, MetadataImageResponse, timeout_ms=timeout_ms)
        response = await wait(sent)
        transfer = self._state.chunk(response)
        self._heard(response.controller_id)
        with self._signs_of_life():
            await self._apply_chunk(response, transfer)
        arrays = arrays_of(response)
        del sent, response
        await in_slices(freeing(arrays))

    async def _apply_chunk(self, response: MetadataImageResponse, transfer: ImageTransfer) -> None:
        try:
            frames = (each.frame for each in response.records)
            await in_slices(decoding(frames, transfer.delta))
            if response.next_position >= 0:
                return
            work = replacing(self.image, BrokerId(response.controller_id), transfer)
            delta, image = await in_slices(work)
        except InvalidRecord:
            self._state.did_not_fit()
            raise
        if not self.image.offset and not self._may_begin(image):
            raise _TooOld
        logger.info(
            "applying the difference to the whole metadata at offset %d: %d records",
            image.offset,
            len(delta.records),
        )
        await self._publish(delta, image)
        self._state.fetched(transfer)
        for each in (transfer.delta, delta):
            await in_slices(each.releasing())

    async def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if len(delta.records) > RECORDS_UNSLICED_MAX:
            await end_slice()
        try:
            await self._publisher.publish(delta, image)
        except Exception as error:
            # An OSError of a subscriber must not count as an error of the network.
            raise _SubscriberFailed(f"a subscriber to the metadata failed: {error!r}") from error
