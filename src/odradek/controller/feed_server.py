"""The server of the feed of metadata: MetadataFeed (20000) and MetadataImage (20001).

A broker polls with its position, controller epoch and metadata offset. The response has the changes
after that position, or says that the broker needs the whole image, because its position is one of
another controller or was dropped from the log. A poll at the newest position waits for the next
change. A poll with `max_bytes` 0 gets no changes: the broker is alive, and still applies the last
ones. The whole image is sent in chunks of one consistent image: the response to the first chunk
names its position, and the requests of the other chunks repeat it.

The server is active between `begin` and `end`. All requests get NOT_CONTROLLER otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from odradek.controller.feed_log import FEED_LOG_BYTES_MAX, FeedLog
from odradek.controller.plan import SHORT_STAGE_MAX
from odradek.environment.timers import Timer, Timers
from odradek.errors import ErrorCode
from odradek.ids import BrokerId
from odradek.metadata.image import MetadataImage
from odradek.metadata.image_records import image_records
from odradek.metadata.records import MetadataRecord, encode_record
from odradek.protocol.messages import metadata_image_response
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.metadata_feed_response import (
    FeedDelta,
    FramedRecord,
    MetadataFeedResponse,
)
from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
from odradek.protocol.messages.metadata_image_response import MetadataImageResponse
from odradek.results import PendingResult, Result
from odradek.slicing import ELEMENTS_PER_SLICE, sliced

POLLS_WAITING_MAX = 1_000
"""Maximum number of polls that wait. The oldest one is completed without changes above it."""

TRANSFERS_MAX = 100
"""Maximum number of brokers that fetch an image at the same time. The oldest begins again."""

RESPONSE_BYTES_MAX = 1024 * 1024
"""Upper bound of `max_bytes` of a request."""

RESPONSE_RECORDS_MAX = 1_000
"""Number of records above which a response gets no further changes, and a chunk is complete. Small
records take longer to encode and decode than their bytes say."""


@dataclass(slots=True)
class _Poll:
    """A poll that waits for the next change."""

    request: MetadataFeedRequest
    result: PendingResult[MetadataFeedResponse]
    timer: Timer


@dataclass(slots=True)
class _Transfer:
    """The image that one broker fetches.

    A complete transfer has no reference to the image. It would keep an old one in memory until the
    end of the term, which would then free it in one time slice.

    Attributes:
        of: The controller epoch and the metadata offset of the image.
        records: The records that were not sent yet.
        position: The number of records that were sent.
        last: The position and the frames of the last chunk, for a repeated request.
    """

    of: tuple[int, int]
    records: Iterator[MetadataRecord]
    position: int = 0
    last: tuple[int, list[bytes]] = field(default_factory=lambda: (-1, []))
    is_complete: bool = False


class FeedServer:
    """The feed of the active controller. Owned by the event loop.

    Args:
        cluster_id: Returns the id of the cluster.
        controller_id: The id of this broker.
        timers: Timers of the long polls.
        polled: Called with each poll and with the offset that it has applied of this controller's
            changes, -1 if the position is not one of them. Returns the error of the poll.
        wait_ms_max: Upper bound of the time that a poll waits.
        log_bytes_max: Limit of the changes that are kept.
    """

    def __init__(
        self,
        cluster_id: Callable[[], str],
        controller_id: BrokerId,
        timers: Timers,
        polled: Callable[[MetadataFeedRequest, int], ErrorCode],
        *,
        wait_ms_max: float,
        log_bytes_max: int = FEED_LOG_BYTES_MAX,
    ) -> None:
        self._cluster_id = cluster_id
        self._controller_id = controller_id
        self._timers = timers
        self._polled = polled
        self._wait_ms_max = wait_ms_max
        self._log_bytes_max = log_bytes_max
        self._image: MetadataImage | None = None
        self._log = FeedLog(-1, -1)
        self._polls: dict[int, _Poll] = {}
        self._transfers: dict[int, _Transfer] = {}

    # --- called by the controller ---

    def begin(self, image: MetadataImage) -> None:
        """Serve the changes after this image."""
        self._image = image
        self._log = FeedLog(image.controller_epoch, image.offset, self._log_bytes_max)

    def publishing(
        self, records: Sequence[MetadataRecord], image: MetadataImage
    ) -> Generator[None, None, None]:
        """Append a change, in time slices, and answer the polls that wait for it."""
        if self._image is None:
            return
        delta = FeedDelta(image.controller_epoch, image.offset)
        for count, record in enumerate(records, 1):
            delta.records.append(FramedRecord(encode_record(record)))
            if not count % ELEMENTS_PER_SLICE:
                yield
        if self._image is not None and len(records) > SHORT_STAGE_MAX:
            yield  # The next slice encodes the responses.
        if self._image is None:  # the term has ended between two slices
            return
        self._log.append(delta)
        self._image = image
        for broker in list(self._polls):
            self._answer(broker)

    def end(self) -> None:
        """Answer all polls, because the controller is no longer active."""
        self._image = None
        self._transfers.clear()
        for broker in list(self._polls):
            self._answer(broker)

    # --- requests ---

    def poll(self, request: MetadataFeedRequest) -> Result[MetadataFeedResponse]:
        """Serve MetadataFeed."""
        error = self._refusal(request.cluster_id, request.controller_epoch)
        if error is ErrorCode.NONE:
            covered = self._log.covers(request.controller_epoch, request.metadata_offset)
            error = self._polled(request, request.metadata_offset if covered else -1)
        # `polled` may have begun a change, but has not published it yet.
        if error is not ErrorCode.NONE or not request.max_bytes:
            return Result(self._response(error))
        response = self._changes(request)
        if response is not None:
            return Result(response)
        self._answer(request.broker_id)
        if len(self._polls) >= POLLS_WAITING_MAX:
            self._answer(next(iter(self._polls)))
        return self._wait(request)

    def image_chunk(self, request: MetadataImageRequest) -> Result[MetadataImageResponse]:
        """Serve MetadataImage."""
        error = self._refusal(request.cluster_id, -1)
        if error is not ErrorCode.NONE:
            response = MetadataImageResponse(error_code=error)
            self._stamp(response)
            return Result(response)
        return sliced(self._sending(request))

    def _refusal(self, cluster_id: str, controller_epoch: int) -> ErrorCode:
        if self._image is None or controller_epoch > self._log.controller_epoch:
            return ErrorCode.NOT_CONTROLLER
        if cluster_id != self._cluster_id():
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return ErrorCode.NONE

    # --- polls ---

    def _changes(self, request: MetadataFeedRequest) -> MetadataFeedResponse | None:
        """Return the response, or None while there is no change for it."""
        response = self._response(ErrorCode.NONE)
        offset = request.metadata_offset
        if not self._log.covers(request.controller_epoch, offset):
            response.image_required = True
        elif offset == self._log.end_offset:
            return None
        else:
            bytes_max = _bytes_max(request.max_bytes)
            response.deltas.extend(self._log.after(offset, bytes_max, RESPONSE_RECORDS_MAX))
        return response

    def _wait(self, request: MetadataFeedRequest) -> Result[MetadataFeedResponse]:
        broker = request.broker_id

        def remove() -> None:
            poll = self._polls.get(broker)
            if poll is not None and poll.result is result:
                poll.timer.cancel()
                del self._polls[broker]

        result: PendingResult[MetadataFeedResponse] = PendingResult(on_cancel=remove)
        wait_ms = min(max(request.max_wait_ms, 0), self._wait_ms_max)
        timer = self._timers.call_later(wait_ms / 1000, self._answer, broker)
        self._polls[broker] = _Poll(request, result, timer)
        return result

    def _answer(self, broker: int) -> None:
        """Complete the poll of a broker that waits, with or without changes."""
        poll = self._polls.pop(broker, None)
        if poll is None:
            return
        poll.timer.cancel()
        if self._image is None:
            poll.result.complete(self._response(ErrorCode.NOT_CONTROLLER))
        else:
            poll.result.complete(self._changes(poll.request) or self._response(ErrorCode.NONE))

    def _response(self, error: ErrorCode) -> MetadataFeedResponse:
        response = MetadataFeedResponse(error_code=error)
        self._stamp(response)
        return response

    def _stamp(self, response: MetadataFeedResponse | MetadataImageResponse) -> None:
        """Set the controller and its newest offset, if it is active."""
        if self._image is not None:
            response.controller_id = self._controller_id
            response.controller_epoch = self._log.controller_epoch
            response.metadata_offset = self._log.end_offset

    # --- images ---

    def _sending(
        self, request: MetadataImageRequest
    ) -> Generator[None, None, Result[MetadataImageResponse]]:
        """Return the chunk that is requested, or the first one of the newest image."""
        # The transfer is out of the map while it reads, so no second request can read from it.
        transfer = self._transfer(request)
        if transfer.last[0] != request.position or not transfer.last[1]:
            yield from self._read(transfer, _bytes_max(request.max_bytes))
        if self._image is None:
            return Result(MetadataImageResponse(error_code=ErrorCode.NOT_CONTROLLER))
        while len(self._transfers) >= TRANSFERS_MAX:
            del self._transfers[next(iter(self._transfers))]
        self._transfers[request.broker_id] = transfer
        first, frames = transfer.last
        controller_epoch, offset = transfer.of
        response = MetadataImageResponse(
            image_controller_epoch=controller_epoch,
            image_metadata_offset=offset,
            next_position=-1 if transfer.is_complete else first + len(frames),
            records=[metadata_image_response.FramedRecord(frame) for frame in frames],
        )
        self._stamp(response)
        return Result(response)

    def _transfer(self, request: MetadataImageRequest) -> _Transfer:
        """Take the transfer at the requested position. A new one unless that one is kept."""
        found = self._transfers.pop(request.broker_id, None)
        if found is None or not _continues(found, request):
            image = self._image
            assert image is not None, "the caller has checked"
            found = _Transfer((image.controller_epoch, image.offset), image_records(image))
            request.position = 0
        return found

    @staticmethod
    def _read(transfer: _Transfer, bytes_max: int) -> Generator[None, None, None]:
        """Read the next chunk. It has one record at least."""
        frames: list[bytes] = []
        while bytes_max > 0 and len(frames) < RESPONSE_RECORDS_MAX:
            part = list(islice(transfer.records, ELEMENTS_PER_SLICE))
            if not part:
                transfer.is_complete = True
                break
            for record in part:
                frame = encode_record(record)
                frames.append(frame)
                bytes_max -= len(frame)
            yield
        transfer.last = (transfer.position, frames)
        transfer.position += len(frames)


def _continues(transfer: _Transfer, request: MetadataImageRequest) -> bool:
    """Return whether a request asks for the next chunk of a transfer, or for the last one again."""
    named = (request.image_controller_epoch, request.image_metadata_offset)
    return named == transfer.of and request.position in (
        transfer.position,
        transfer.last[0],
    )


def _bytes_max(requested: int) -> int:
    return min(max(requested, 1), RESPONSE_BYTES_MAX)
