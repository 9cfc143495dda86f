"""A broker applies only changes that continue its position (rule Z9)."""

from __future__ import annotations

import pytest

from odradek.ids import BrokerId
from odradek.metadata.feed_state import FeedPosition, FeedState, InvalidFeedResponse
from odradek.protocol.messages.metadata_feed_response import FeedDelta, MetadataFeedResponse
from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
from odradek.protocol.messages.metadata_image_response import FramedRecord, MetadataImageResponse

EPOCH, OFFSET = 4, 10


def response(*positions: tuple[int, int], end: int | None = None) -> MetadataFeedResponse:
    """Return the response of the controller of epoch 4 with empty changes at these positions."""
    last = max([OFFSET, *(offset for _, offset in positions)]) if end is None else end
    return MetadataFeedResponse(0, 1, EPOCH, last, deltas=[FeedDelta(*each) for each in positions])


def chunk(offset: int, count: int, next_position: int, epoch: int = EPOCH) -> MetadataImageResponse:
    records = [FramedRecord(b"")] * count
    return MetadataImageResponse(0, 1, EPOCH, 20, epoch, offset, next_position, records)


def level() -> FeedState:
    """Return the state of a broker whose image has the position (4, 10)."""
    state = FeedState("cluster", BrokerId(2))
    state.changes(MetadataFeedResponse(0, 1, EPOCH, OFFSET, image_required=True))
    transfer = state.chunk(chunk(OFFSET, 1, -1))
    state.fetched(transfer)
    assert state.position == (EPOCH, OFFSET)
    return state


def requires_image(state: FeedState) -> bool:
    return isinstance(state.next_request(1, 0), MetadataImageRequest)


def test_hazard_9_changes_that_follow_are_returned() -> None:
    state = level()
    deltas = state.changes(response((EPOCH, 11), (EPOCH, 12), end=15))
    for delta in deltas:
        state.applied(delta)
    assert state.position == FeedPosition(EPOCH, 12)
    assert not state.is_level
    state.applied(state.changes(response((EPOCH, 13), end=13))[0])
    assert state.is_level
    assert not requires_image(state)


@pytest.mark.parametrize(
    "positions",
    [
        [(EPOCH, 12)],
        [(EPOCH, 12), (EPOCH, 13)],
        [(EPOCH, 11), (EPOCH, 13)],
        [(EPOCH, 11), (EPOCH, 11)],
        [(EPOCH, 12), (EPOCH, 11)],
        [(EPOCH, 10), (EPOCH, 11)],
        [(EPOCH + 1, 11)],
        [(EPOCH - 1, 11)],
        [(EPOCH, 11), (EPOCH + 1, 12)],
    ],
)
@pytest.mark.parametrize("end", [None, 20])
def test_hazard_9_changes_with_a_gap_are_refused_and_the_image_is_fetched(
    positions: list[tuple[int, int]], end: int | None
) -> None:
    state = level()
    with pytest.raises(InvalidFeedResponse):
        state.changes(response(*positions, end=end))
    assert state.position == (EPOCH, OFFSET)
    assert requires_image(state)


def test_hazard_9_end_without_the_changes_before_it_is_refused() -> None:
    for end in (OFFSET - 1, OFFSET + 1):
        state = level()
        with pytest.raises(InvalidFeedResponse):
            state.changes(response(end=end))
        assert requires_image(state)
    assert not level().changes(response())


def test_hazard_9_changes_of_another_controller_need_its_image() -> None:
    for deltas in ([], [FeedDelta(EPOCH, 11)]):
        state = level()
        with pytest.raises(InvalidFeedResponse):
            state.changes(
                MetadataFeedResponse(0, 1, EPOCH + 1, OFFSET + len(deltas), deltas=deltas)
            )
        assert requires_image(state)


def test_hazard_9_changes_above_the_end_are_refused() -> None:
    state = level()
    with pytest.raises(InvalidFeedResponse):
        state.changes(response((EPOCH, 11), end=OFFSET))
    assert state.position == (EPOCH, OFFSET)


@pytest.mark.parametrize(
    "bad",
    [
        chunk(OFFSET - 1, 1, -1),  # older than the position
        chunk(21, 1, -1),  # above the end of the feed
        chunk(15, 1, -1, EPOCH - 1),  # of another controller
        chunk(15, 2, 3),  # leaves out a record
        chunk(15, 0, 0),  # has no records and is not the last one
    ],
)
def test_hazard_9_chunk_that_does_not_fit_is_refused(bad: MetadataImageResponse) -> None:
    state = level()
    state.did_not_fit()
    with pytest.raises(InvalidFeedResponse):
        state.chunk(bad)
    assert state.position == (EPOCH, OFFSET)
    assert requires_image(state)


def test_hazard_9_chunks_of_two_images_are_not_joined() -> None:
    state = level()
    state.did_not_fit()
    first = state.chunk(chunk(15, 2, 2))
    second = state.chunk(chunk(16, 2, 2))
    assert second is not first
    assert (second.of, second.received) == (FeedPosition(EPOCH, 16), 2)
    assert state.chunk(chunk(16, 1, -1)).received == 3
