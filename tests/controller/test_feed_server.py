"""Tests of the feed of metadata: its log, long polls and whole images."""

from __future__ import annotations

import asyncio
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller import feed_server
from odradek.controller.feed_log import FeedLog, size_of
from odradek.controller.feed_server import (
    POLLS_WAITING_MAX,
    RESPONSE_BYTES_MAX,
    RESPONSE_RECORDS_MAX,
    FeedServer,
)
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import MetadataImage, TopicImage
from odradek.metadata.image_records import image_records, topic_records
from odradek.metadata.records import MetadataRecord, decode_record, encode_record
from odradek.metadata.topics import new_partition
from odradek.protocol.codec import encode
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


def test_complete_transfer_keeps_no_image() -> None:
    """The end of the term would free the images of all transfers in one time slice."""
    offset = 123_456_789
    feed = Feed(offset, topics=5)
    frames = _chunks(feed, RESPONSE_BYTES_MAX)
    gc.collect()
    images = [each for each in gc.get_objects() if isinstance(each, MetadataImage)]
    assert offset not in [each.offset for each in images]
    last = MetadataImageRequest("cluster", 2, 7, EPOCH, offset, 0, RESPONSE_BYTES_MAX)
    repeated = asyncio.run(_done(feed.server.image_chunk(last)))
    assert [each.frame for each in repeated.records] == frames


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
    records_max=st.integers(1, 30),
    offset=st.integers(-2, 40),
)
def test_log_returns_consecutive_changes_within_its_limits(
    sizes: list[int], bytes_max: int, requested: int, records_max: int, offset: int
) -> None:
    log = FeedLog(EPOCH, 5, bytes_max)
    deltas = []
    for number, size in enumerate(sizes, 6):
        deltas.append(FeedDelta(EPOCH, number, [FramedRecord(bytes(size))]))
        log.append(deltas[-1])
    assert log.end_offset == 5 + len(sizes)
    kept = log.after(log.start_offset, 10**9, 10**9)
    assert list(kept) == deltas[log.start_offset - 5 :]
    assert len(kept) <= 1 or sum(map(size_of, kept)) <= bytes_max
    assert bool(kept) == bool(sizes)
    assert not log.covers(EPOCH - 1, offset)
    if log.covers(EPOCH, offset):
        found = list(log.after(offset, requested, records_max))
        assert found == deltas[offset - 5 : offset - 5 + len(found)]
        assert bool(found) == (offset < log.end_offset)
        assert len(found) <= 1 or sum(map(size_of, found)) <= requested
        assert len(found) <= records_max
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


def test_log_keeps_changes_up_to_its_limit() -> None:
    deltas = [FeedDelta(EPOCH, offset, [FramedRecord(bytes(50))]) for offset in (6, 7, 8)]
    log = FeedLog(EPOCH, 5, 2 * size_of(deltas[0]))
    starts = []
    for delta in deltas:
        log.append(delta)
        starts.append(log.start_offset)
    assert starts == [5, 5, 6]


@given(st.lists(st.integers(0, 20_000), max_size=20))
def test_size_of_a_change_is_an_upper_bound_of_its_encoded_size(sizes: list[int]) -> None:
    delta = FeedDelta(2**31 - 1, 2**63 - 1, [FramedRecord(bytes(size)) for size in sizes])
    without = len(encode(MetadataFeedResponse(), 0))
    assert len(encode(MetadataFeedResponse(deltas=[delta]), 0)) - without <= size_of(delta)


# --- limits ---


def test_poll_without_time_to_wait_is_completed_at_once() -> None:
    async def poll() -> None:
        feed = Feed()
        for wait_ms in (0, -1):
            result = feed.poll(10, max_wait_ms=wait_ms)
            await asyncio.sleep(0)
            assert result.get().error_code == 0

    asyncio.run(poll())


def test_second_poll_of_a_broker_counts_once_for_the_limit() -> None:
    feed = Feed()
    polls = [feed.poll(10, broker=broker) for broker in range(1, POLLS_WAITING_MAX + 1)]
    again = feed.poll(10, broker=POLLS_WAITING_MAX)
    assert [result.done for result in polls] == [False] * (POLLS_WAITING_MAX - 1) + [True]
    assert not again.done


def test_cancelled_poll_does_not_count_for_the_limit() -> None:
    feed = Feed()
    first = feed.poll(10, broker=1)
    feed.poll(10, broker=2).cancel()
    for broker in range(3, POLLS_WAITING_MAX + 2):
        feed.poll(10, broker=broker)
    assert not first.done
    feed.poll(10, broker=2)
    assert first.done


def test_size_of_a_response_has_the_limit_of_the_request() -> None:
    feed = Feed(log_bytes_max=10_000_000)
    for level in (1, 0, 1):
        feed.publish(FeatureLevelRecord("group.version", level))
    size = size_of(feed.poll(12).get().deltas[0])
    for count, max_bytes in ((1, -1), (0, 0), (1, 2 * size - 1), (2, 2 * size), (3, 2**31 - 1)):
        response = feed.poll(10, max_bytes=max_bytes).get()
        assert len(response.deltas) == count, max_bytes
        assert response.metadata_offset == 13


def test_size_of_a_response_has_a_limit_of_the_server() -> None:
    feed = Feed(log_bytes_max=10_000_000)
    name = "x" * 30_000
    count = RESPONSE_BYTES_MAX // len(name) + 2
    for _ in range(count):
        feed.publish(FeatureLevelRecord(name, 1))
    response = feed.poll(10, max_bytes=2**31 - 1).get()
    assert count - 4 <= len(response.deltas) < count - 1
    assert sum(map(size_of, response.deltas)) <= RESPONSE_BYTES_MAX


def test_number_of_records_of_a_response_has_a_limit() -> None:
    feed = Feed(topics=RESPONSE_RECORDS_MAX, log_bytes_max=10_000_000)
    for count in (1, RESPONSE_RECORDS_MAX - 1, 1):
        feed.publish(*[LEVEL] * count)
    response = feed.poll(10, max_bytes=2**31 - 1).get()
    assert [len(each.records) for each in response.deltas] == [1, RESPONSE_RECORDS_MAX - 1]

    async def chunk() -> MetadataImageResponse:
        request = MetadataImageRequest("cluster", 2, 7, max_bytes=2**31 - 1)
        return await _done(feed.server.image_chunk(request))

    first = asyncio.run(chunk())
    assert len(first.records) == RESPONSE_RECORDS_MAX == first.next_position


def _image(feed: Feed, broker: int, position: int = 0, **fields: object) -> MetadataImageResponse:
    """Fetch a chunk of the image at offset 10."""
    at = (EPOCH, 10) if position else (-1, -1)
    request = MetadataImageRequest("cluster", broker, 7, *at, position, 5_000)
    for name, value in fields.items():
        setattr(request, name, value)

    async def fetch() -> MetadataImageResponse:
        return await _done(feed.server.image_chunk(request))

    return asyncio.run(fetch())


def test_chunk_names_the_controller_and_its_newest_offset() -> None:
    feed = Feed(topics=1_000)
    first = _image(feed, 2)
    feed.publish(LEVEL)
    assert first.next_position == len(first.records)
    second = _image(feed, 2, first.next_position)
    for response, newest in ((first, 10), (second, 11)):
        end = (response.controller_id, response.controller_epoch, response.metadata_offset)
        assert end == (1, EPOCH, newest)
        assert response.image_metadata_offset == 10
        assert response.error_code == 0


def test_image_for_another_cluster_is_refused() -> None:
    response = _image(Feed(), 2, cluster_id="other")
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert response.metadata_offset == 10


def test_request_that_names_no_chunk_of_the_transfer_begins_again() -> None:
    feed = Feed(topics=1_000)
    for fields in (
        {"image_metadata_offset": 9},
        {"image_controller_epoch": EPOCH - 1},
        {"position": 1},
    ):
        first = _image(feed, 2)
        second = _image(feed, 2, first.next_position)
        assert second.records != first.records
        again = _image(feed, 2, **{"position": second.next_position, **fields})  # type: ignore[arg-type]
        assert (again.records, again.next_position) == (first.records, first.next_position)


def test_transfers_of_different_brokers_are_independent() -> None:
    feed = Feed(topics=1_000)
    first = _image(feed, 2)
    assert _image(feed, 3) == first
    assert _image(feed, 2, first.next_position) == _image(feed, 3, first.next_position)


def test_number_of_transfers_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker whose transfer is the oldest gets the newest image."""
    monkeypatch.setattr(feed_server, "TRANSFERS_MAX", 2)
    feed = Feed(topics=1_000)
    position = _image(feed, 2).next_position
    _image(feed, 3)
    assert _image(feed, 2, position).image_metadata_offset == 10
    _image(feed, 4)
    feed.publish(LEVEL)
    offsets = [_image(feed, broker, position).image_metadata_offset for broker in (2, 4, 3)]
    assert offsets == [10, 10, 11]


def test_transfer_that_is_interrupted_by_the_end_of_the_term_is_refused() -> None:
    async def fetch() -> None:
        feed = Feed(topics=1_000)
        request = MetadataImageRequest("cluster", 2, 7, -1, -1, 0, 2**31 - 1)
        result = feed.server.image_chunk(request)
        assert not result.done
        feed.server.end()
        assert (await _done(result)).error_code == ErrorCode.NOT_CONTROLLER

    asyncio.run(fetch())
