"""Publication of metadata: the newest image of a broker, and its subscribers.

The controller of a single broker publishes its own changes. A broker of a cluster publishes the
changes that it receives from the controller (`feed_client`). Both use this class, so the parts of a
broker do not know where a change comes from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator

from odradek.config.broker import BrokerConfig
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.slicing import end_slice, in_slices

logger = logging.getLogger(__name__)

RECORDS_UNSLICED_MAX = 20
"""Largest number of records of a change that all subscribers may process in one time slice."""

Subscriber = Callable[
    [MetadataDelta, MetadataImage, MetadataImage], Generator[None, None, None] | None
]


class MetadataPublisher:
    """The image that was published last. Owned by the event loop.

    Args:
        config: The configuration of this broker. It gets the dynamic configs of each image.
        image: The image before the first publication.
    """

    def __init__(self, config: BrokerConfig, image: MetadataImage) -> None:
        self.image = image
        self._config = config
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(delta, old_image, new_image)` on the loop at every change.

        The delta of the first change has the whole metadata. Dynamic broker configs are in effect
        before the call. A subscriber with much work is a generator, which is run in time slices
        (`odradek.slicing`). The delta is valid during the call and these slices only.
        """
        self._subscribers.append(subscriber)

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Replace the image, and call the subscribers in the order of their subscription.

        Return when all subscribers have processed the image, in any number of time slices. The
        caller publishes the next image only then.
        """
        old, self.image = self.image, image
        if delta.broker_configs.changed:
            own = image.broker_configs.get(str(self._config.node_id), {})
            refused = self._config.set_valid_dynamic(own, image.broker_configs.get("", {}))
            for name, reason in refused.items():
                logger.error(
                    "the dynamic config %s is not in effect on this broker: %s. Change it, or the "
                    "broker's own configs",
                    name,
                    reason,
                )
        for subscriber in self._subscribers:
            work = subscriber(delta, old, image)
            if work is not None:
                await in_slices(work)
                if len(delta.records) > RECORDS_UNSLICED_MAX:
                    await end_slice()
