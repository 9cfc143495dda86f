"""Tests of the feed of metadata: its log, long polls and whole images."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.feed_log import FeedLog, size_of
from odradek.controller.feed_server import POLLS_WAITING_MAX, FeedServer
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import MetadataImage, TopicImage
from odradek.metadata.image_records import image_records, topic_records
from odradek.metadata.records import MetadataRecord, decode_record, encode_record
from odradek.metadata.topics import new_partition
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.metadata_feed_response import (
    FeedDelta,
    FramedRecord,
    MetadataFeedResponse,
)
from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
from odradek.protocol.messages.metadata_image_response import MetadataImageResponse
from odradek.result_tasks import wait
from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion
from tests.helpers.manual_timers import SteppedTimers

EPOCH = 3


class Feed:
    """A server with the polls that it has reported."""

    def __init__(self, offset: int = 10, topics: int = 0, log_bytes_max: int = 1_000) -> None:
        self.clock = ManualClock()
        self.timers = SteppedTimers(self.clock)
        self.polled: list[tuple[int, int]] = []
        self.error = ErrorCode.NONE
        self.server = FeedServer(
            lambda: "cluster",
            BrokerId(1),
            self.timers,
            self._on_poll,
            wait_ms_max=3_000,
            log_bytes_max=log_bytes_max,
        )
        delta = MetadataDelta(MetadataImage())
        for number in range(topics):
            partitions = [new_partition(0, (BrokerId(1),))]
            topic = TopicImage(TopicName(f"t{number}"), Uuid(number.to_bytes(16)), partitions)
            for record in topic_records(None, topic):
                delta.replay(record)
        self.image = delta.apply(MetadataProvenance(BrokerId(1), EPOCH, offset))
        self.server.begin(self.image)

    def _on_poll(self, request: MetadataFeedRequest, offset: int) -> ErrorCode:
        self.polled.append((request.broker_id, offset))
        return self.error

    def publish(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(MetadataProvenance(BrokerId(1), EPOCH, self.image.offset + 1))
        run_to_completion(self.server.publishing(delta.records, self.image))

    def poll(
        self, offset: int, epoch: int = EPOCH, broker: int = 2, **fields: object
    ) -> Result[MetadataFeedResponse]:
        request = MetadataFeedRequest("cluster", broker, 7, epoch, offset, 1_000, 10_000)
        for name, value in fields.items():
            setattr(request, name, value)
        return self.server.poll(request)


LEVEL = FeatureLevelRecord("group.version", 1)


def test_poll_behind_the_newest_position_returns_the_changes_after_it() -> None:
    feed = Feed()
    feed.publish(LEVEL)
    feed.publish(FeatureLevelRecord("group.version", 0))
    response = feed.poll(11).get()
    (delta,) = response.deltas
    assert (delta.controller_epoch, delta.metadata_offset) == (EPOCH, 12)
    assert [decode_record(each.frame) for each in delta.records] == [
        FeatureLevelRecord("group.version", 0)
    ]
    assert (response.controller_id, response.controller_epoch, response.metadata_offset) == (
        1,
        EPOCH,
        12,
    )
    assert [each.metadata_offset for each in feed.poll(10).get().deltas] == [11, 12]


def test_poll_at_the_newest_position_waits_for_the_next_change() -> None:
    feed = Feed()
    result = feed.poll(10)
    assert not result.done
    feed.publish(LEVEL)
    assert [each.metadata_offset for each in result.get().deltas] == [11]
    assert not feed.timers.armed


def test_poll_ends_without_changes_after_its_time() -> None:
    feed = Feed()
    result = feed.poll(10)
    feed.timers.advance(999)
    assert not result.done
    feed.timers.advance(1)
    response = result.get()
    assert (response.error_code, response.image_required, response.deltas) == (0, False, [])


def test_time_of_a_poll_has_an_upper_bound() -> None:
    feed = Feed()
    result = feed.poll(10, max_wait_ms=2**31 - 1)
    feed.timers.advance(3_000)
    assert result.done


def test_position_of_another_controller_or_before_the_log_requires_an_image() -> None:
    feed = Feed(log_bytes_max=200)
    assert feed.poll(10, epoch=EPOCH - 1).get().image_required
    assert feed.poll(-1, epoch=-1).get().image_required
    assert feed.poll(9).get().image_required
    assert feed.poll(11).get().image_required, "the future of this controller"
    for level in (1, 0, 1, 0):
        feed.publish(FeatureLevelRecord("group.version", level))
    assert feed.poll(10).get().image_required, "the log has dropped the change"
    assert not feed.poll(13).get().image_required


def test_position_of_a_later_controller_is_refused() -> None:
    feed = Feed()
    assert feed.poll(10, epoch=EPOCH + 1).get().error_code == ErrorCode.NOT_CONTROLLER
    assert feed.polled == []


def test_poll_of_another_cluster_is_refused() -> None:
    feed = Feed()
    response = feed.poll(10, cluster_id="other").get()
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert feed.polled == []


def test_error_of_the_controller_is_the_response() -> None:
    feed = Feed()
    feed.error = ErrorCode.STALE_BROKER_EPOCH
    assert feed.poll(10).get().error_code == ErrorCode.STALE_BROKER_EPOCH


def test_controller_gets_the_applied_offset_of_its_own_changes_only() -> None:
    feed = Feed()
    feed.poll(10)
    feed.poll(9)
    feed.poll(10, epoch=EPOCH - 1)
    assert feed.polled == [(2, 10), (2, -1), (2, -1)]


def test_end_of_the_term_completes_polls_and_refuses_requests() -> None:
    feed = Feed()
    result = feed.poll(10)
    feed.server.end()
    assert result.get().error_code == ErrorCode.NOT_CONTROLLER
    assert feed.poll(10).get().error_code == ErrorCode.NOT_CONTROLLER
    request = MetadataImageRequest("cluster", 2, 7, max_bytes=1000)
    assert feed.server.image_chunk(request).get().error_code == ErrorCode.NOT_CONTROLLER


def test_second_poll_of_a_broker_completes_the_first() -> None:
    feed = Feed()
    first = feed.poll(10)
    second = feed.poll(10)
    assert first.get().deltas == []
    assert not second.done
    assert feed.timers.armed == 1


def test_number_of_waiting_polls_has_a_limit() -> None:
    feed = Feed()
    oldest = feed.poll(10, broker=1)
    for broker in range(2, POLLS_WAITING_MAX + 1):
        feed.poll(10, broker=broker)
    assert not oldest.done
    feed.poll(10, broker=POLLS_WAITING_MAX + 1)
    assert oldest.done
    assert feed.timers.armed == POLLS_WAITING_MAX


def test_cancelled_poll_leaves_nothing() -> None:
    feed = Feed()
    feed.poll(10).cancel()
    assert not feed.timers.armed
    feed.publish(LEVEL)


def _chunks(feed: Feed, max_bytes: int, repeat: bool = False) -> list[bytes]:
    """Fetch the whole image, with a change after each chunk."""

    async def fetch() -> list[bytes]:
        frames: list[bytes] = []
        epoch, offset, position = -1, -1, 0
        while position >= 0:
            request = MetadataImageRequest("cluster", 2, 7, epoch, offset, position, max_bytes)
            for _ in range(1 + repeat):
                response = await _done(feed.server.image_chunk(request))
            if offset >= 0:
                assert (response.image_controller_epoch, response.image_metadata_offset) == (
                    epoch,
                    offset,
                )
            epoch, offset = response.image_controller_epoch, response.image_metadata_offset
            frames += [each.frame for each in response.records]
            position = response.next_position
            feed.publish(FeatureLevelRecord("group.version", feed.image.offset % 2))
        return frames

    return asyncio.run(fetch())


async def _done(result: Result[MetadataImageResponse]) -> MetadataImageResponse:
    return await wait(result)


def test_image_in_chunks_is_the_one_of_its_first_chunk() -> None:
    for repeat in (False, True):
        feed = Feed(topics=1_000)
        image = feed.image
        frames = _chunks(feed, 5_000, repeat)
        assert frames == [encode_record(each) for each in image_records(image)]


def test_lost_transfer_begins_again_with_the_newest_image() -> None:
    async def fetch() -> None:
        feed = Feed(topics=1_000)
        request = MetadataImageRequest("cluster", 2, 7, -1, -1, 0, 5_000)
        first = await _done(feed.server.image_chunk(request))
        feed.server.end()
        feed.publish(LEVEL)
        feed.server.begin(feed.image)
        again = MetadataImageRequest(
            "cluster", 2, 7, EPOCH, first.image_metadata_offset, first.next_position, 5_000
        )
        response = await _done(feed.server.image_chunk(again))
        assert response.image_metadata_offset == 11
        assert decode_record(response.records[0].frame) == LEVEL

    asyncio.run(fetch())


@given(
    sizes=st.lists(st.integers(0, 400), max_size=30),
    bytes_max=st.integers(1, 2_000),
    requested=st.integers(1, 2_000),
    offset=st.integers(-2, 40),
)
def test_log_returns_consecutive_changes_within_its_limits(
    sizes: list[int], bytes_max: int, requested: int, offset: int
) -> None:
    log = FeedLog(EPOCH, 5, bytes_max)
    deltas = []
    for number, size in enumerate(sizes, 6):
        deltas.append(FeedDelta(EPOCH, number, [FramedRecord(bytes(size))]))
        log.append(deltas[-1])
    assert log.end_offset == 5 + len(sizes)
    kept = log.after(log.start_offset, 10**9)
    assert list(kept) == deltas[log.start_offset - 5 :]
    assert len(kept) <= 1 or sum(map(size_of, kept)) <= bytes_max
    assert bool(kept) == bool(sizes)
    assert not log.covers(EPOCH - 1, offset)
    if log.covers(EPOCH, offset):
        found = list(log.after(offset, requested))
        assert found == deltas[offset - 5 : offset - 5 + len(found)]
        assert bool(found) == (offset < log.end_offset)
        assert len(found) <= 1 or sum(map(size_of, found)) <= requested
    else:
        assert not log.start_offset <= offset <= log.end_offset


def test_change_whose_publication_is_interrupted_by_the_end_of_the_term_is_dropped() -> None:
    feed = Feed()
    records: list[MetadataRecord] = [LEVEL] * (ELEMENTS_PER_SLICE + 1)
    delta = MetadataDelta(feed.image)
    after = delta.apply(MetadataProvenance(BrokerId(1), EPOCH, feed.image.offset + 1))
    publishing = feed.server.publishing(records, after)
    next(publishing)
    feed.server.end()
    assert not list(publishing)
    assert feed.poll(10).get().error_code == ErrorCode.NOT_CONTROLLER
