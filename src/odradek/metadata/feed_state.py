"""State machine of a broker that follows the feed of metadata, without input and output. Pure.

The position of a broker is the controller epoch and the metadata offset of its image. Two requests
move it forward::

              image required, or a response that does not fit
    CHANGES -------------------------------------------------> IMAGE
       ^  MetadataFeed (20000)           MetadataImage (20001)  |
       '--------------------------------------------------------'
                          last chunk applied

A response is accepted only if it continues the position:

- It is not from a controller with an older epoch than one that has responded before.
- Its changes are of the epoch of the position, and their offsets follow without a gap.
- Chunks of an image follow without a gap, and the image is not older than the position.
- The records can be decoded and fit the image.

A refused response changes no state, except that the broker fetches the whole image when its changes
did not fit. The caller ends the connection.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from odradek.errors import ErrorCode, received_code
from odradek.ids import BrokerId
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import MetadataImage
from odradek.metadata.image_records import compared
from odradek.metadata.records import decode_record
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.metadata_feed_response import FeedDelta, MetadataFeedResponse
from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
from odradek.protocol.messages.metadata_image_response import MetadataImageResponse

FEED_BYTES_MAX = 1024 * 1024
"""Maximum size of the changes of a response, or of a chunk. One record may be larger."""

IMAGE_RECORDS_MAX = 10_000_000
"""Maximum number of records of a whole image."""


class InvalidFeedResponse(ValueError):
    """A response does not continue the position of this broker. It has no effect."""


class FeedRefusal(ValueError):
    """The controller has refused a request with an error code."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class FeedPosition(NamedTuple):
    """A position in the changes of the metadata."""

    controller_epoch: int
    offset: int


NO_POSITION = FeedPosition(-1, -1)


class ImageTransfer:
    """A whole image that is being fetched.

    Attributes:
        of: The position of the image, or NO_POSITION before the first chunk.
        received: The number of records that were received.
        delta: Their changes of an empty image.
    """

    def __init__(self, cluster_id: str) -> None:
        self.of = NO_POSITION
        self.received = 0
        self.delta = MetadataDelta(MetadataImage(cluster_id=cluster_id))


class FeedState:
    """The position of one broker, and the next request. Owned by its `FeedClient`.

    Attributes:
        position: The position of the image that was applied last.
        is_level: Whether the position was the end of the feed in the last response.
    """

    def __init__(self, cluster_id: str, broker_id: BrokerId) -> None:
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self.position = NO_POSITION
        self._end = NO_POSITION
        self._transfer: ImageTransfer | None = None

    @property
    def is_level(self) -> bool:
        return self.position == self._end != NO_POSITION

    def next_request(
        self, broker_epoch: int, max_wait_ms: int
    ) -> MetadataFeedRequest | MetadataImageRequest:
        """Return the request for what follows the position."""
        transfer = self._transfer
        if transfer is None:
            return MetadataFeedRequest(
                self._cluster_id,
                self._broker_id,
                broker_epoch,
                *self.position,
                max_wait_ms,
                FEED_BYTES_MAX,
            )
        return MetadataImageRequest(
            self._cluster_id,
            self._broker_id,
            broker_epoch,
            *transfer.of,
            transfer.received,
            FEED_BYTES_MAX,
        )

    def sign_of_life(self, broker_epoch: int) -> MetadataFeedRequest:
        """Return a poll without changes, for the time in which the last changes are applied."""
        return MetadataFeedRequest(self._cluster_id, self._broker_id, broker_epoch, *self.position)

    # --- changes ---

    def changes(self, response: MetadataFeedResponse) -> Sequence[FeedDelta]:
        """Return the changes that follow the position.

        Raises:
            FeedRefusal: The controller has refused the request.
            InvalidFeedResponse: They do not follow.
        """
        end = self._accepted(response)
        if response.image_required:
            if response.deltas:
                raise InvalidFeedResponse("changes of an image that is required")
            self._transfer = ImageTransfer(self._cluster_id)
        elif not self._follow(response.deltas, end):
            self._transfer = ImageTransfer(self._cluster_id)
            raise InvalidFeedResponse(
                f"{len(response.deltas)} changes up to {end} do not follow {self.position}"
            )
        self._end = end
        return response.deltas

    def _follow(self, deltas: Sequence[FeedDelta], end: FeedPosition) -> bool:
        epoch, offset = self.position
        for delta in deltas:
            offset += 1
            if (delta.controller_epoch, delta.metadata_offset) != (epoch, offset):
                return False
        return epoch == end.controller_epoch and (
            offset <= end.offset if deltas else offset == end.offset
        )

    def applied(self, delta: FeedDelta) -> None:
        """Move the position to a change that was applied."""
        self.position = FeedPosition(delta.controller_epoch, delta.metadata_offset)

    def did_not_fit(self) -> None:
        """Fetch the whole image, because a record cannot be decoded or does not fit."""
        self._transfer = ImageTransfer(self._cluster_id)

    # --- whole images ---

    def chunk(self, response: MetadataImageResponse) -> ImageTransfer:
        """Return the transfer that the records of a chunk belong to.

        Raises:
            FeedRefusal: The controller has refused the request.
            InvalidFeedResponse: The chunk does not follow the chunks before it.
        """
        transfer = self._transfer
        assert transfer is not None, "a chunk was requested"
        end = self._accepted(response)
        of = FeedPosition(response.image_controller_epoch, response.image_metadata_offset)
        if of != transfer.of:  # the controller begins with another image
            transfer = ImageTransfer(self._cluster_id)
        received = transfer.received + len(response.records)
        follows = response.next_position == -1 or (
            response.next_position == received and response.records
        )
        if (
            not follows
            or received > IMAGE_RECORDS_MAX
            or of.controller_epoch != end.controller_epoch
            or not self.position.offset <= of.offset <= end.offset
        ):
            self._transfer = ImageTransfer(self._cluster_id)
            raise InvalidFeedResponse(f"a chunk of the image {of}, at the position {self.position}")
        transfer.of, transfer.received = of, received
        self._transfer = transfer
        self._end = end
        return transfer

    def fetched(self, transfer: ImageTransfer) -> None:
        """Move the position to an image that was applied."""
        self.position = transfer.of
        self._transfer = None

    def _accepted(self, response: MetadataFeedResponse | MetadataImageResponse) -> FeedPosition:
        """Return the end of the feed.

        Raises:
            FeedRefusal: The controller has refused the request.
            InvalidFeedResponse: The response is stale or malformed.
        """
        if response.error_code:
            raise FeedRefusal(received_code(response.error_code))
        end = FeedPosition(response.controller_epoch, response.metadata_offset)
        newest = max(self._end.controller_epoch, self.position.controller_epoch)
        if end.controller_epoch < newest:
            # Only the epoch of the position is certain. The other one may be of a damaged response,
            # and refuses one response: the client connects to the controller of the store again.
            self._end = NO_POSITION
        if response.controller_id < 0 or end.controller_epoch < max(newest, 0) or end.offset < 0:
            raise InvalidFeedResponse(
                f"a response of controller {response.controller_id} with the epoch "
                f"{end.controller_epoch} and the offset {end.offset}, after the epoch {newest}"
            )
        return end


# --- application, in time slices ---


def decoding(
    frames: Iterable[bytes | memoryview], delta: MetadataDelta
) -> Generator[None, None, None]:
    """Decode and replay the records of a response.

    Raises:
        InvalidRecord: A record cannot be decoded or does not fit.
    """
    yield from delta.replaying(map(decode_record, frames))


def changing(
    image: MetadataImage, controller_id: BrokerId, change: FeedDelta
) -> Generator[None, None, tuple[MetadataDelta, MetadataImage]]:
    """Return the delta of a change and the image after it.

    Raises:
        InvalidRecord: A record cannot be decoded or does not fit.
    """
    delta = MetadataDelta(image)
    yield from decoding((each.frame for each in change.records), delta)
    at = MetadataProvenance(controller_id, change.controller_epoch, change.metadata_offset)
    return delta, (yield from delta.applying(at))


def replacing(
    image: MetadataImage, controller_id: BrokerId, transfer: ImageTransfer
) -> Generator[None, None, tuple[MetadataDelta, MetadataImage]]:
    """Return the difference to a whole image that was fetched, and the image after it.

    Raises:
        InvalidRecord: The partitions of a topic are not consecutive.
    """
    at = MetadataProvenance(controller_id, *transfer.of)
    whole = yield from transfer.delta.applying(at)
    delta = MetadataDelta(image)
    yield from delta.replaying(compared(image, whole))
    return delta, (yield from delta.applying(at))
