"""A broker applies only changes that continue its position (rule Z9)."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.ids import BrokerId
from odradek.metadata import feed_state
from odradek.metadata.feed_state import (
    NO_POSITION,
    FeedPosition,
    FeedRefusal,
    FeedState,
    InvalidFeedResponse,
)
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


@pytest.mark.parametrize("offset", [OFFSET, 20])
def test_image_of_the_position_or_of_the_end_is_accepted(offset: int) -> None:
    state = level()
    state.did_not_fit()
    state.fetched(state.chunk(chunk(offset, 1, -1)))
    assert state.position == (EPOCH, offset)
    assert not requires_image(state)


def test_broker_is_level_when_the_image_that_it_fetched_is_the_end() -> None:
    """The end is the one of the last response, which may be newer than the image."""
    for offset in (19, 20):
        state = level()
        state.did_not_fit()
        state.fetched(state.chunk(chunk(offset, 1, -1)))
        assert state.is_level == (offset == 20)


def test_image_is_fetched_from_its_beginning_after_a_chunk_that_does_not_fit() -> None:
    state = level()
    state.did_not_fit()
    state.chunk(chunk(15, 2, 2))
    with pytest.raises(InvalidFeedResponse):
        state.chunk(chunk(15, 2, 3))
    request = state.next_request(1, 0)
    assert isinstance(request, MetadataImageRequest)
    at = (request.image_controller_epoch, request.image_metadata_offset, request.position)
    assert at == (*NO_POSITION, 0)


def test_number_of_records_of_an_image_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_state, "IMAGE_RECORDS_MAX", 3)
    state = level()
    state.did_not_fit()
    assert state.chunk(chunk(15, 3, 3)).received == 3
    with pytest.raises(InvalidFeedResponse):
        state.chunk(chunk(15, 1, 4))


def test_changes_are_refused_when_the_image_is_required() -> None:
    state = level()
    both = response((EPOCH, 11))
    both.image_required = True
    with pytest.raises(InvalidFeedResponse):
        state.changes(both)
    assert not requires_image(state)


def test_refusal_of_the_controller_has_no_effect() -> None:
    state = level()
    refused = response((EPOCH, 11))
    refused.error_code = ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(FeedRefusal) as raised:
        state.changes(refused)
    assert raised.value.error is ErrorCode.STALE_BROKER_EPOCH
    assert str(raised.value) == "STALE_BROKER_EPOCH"
    assert not requires_image(state)
    state.did_not_fit()
    bad = chunk(15, 1, -1)
    bad.error_code = ErrorCode.NOT_CONTROLLER
    with pytest.raises(FeedRefusal):
        state.chunk(bad)
    assert state.position == (EPOCH, OFFSET)


@pytest.mark.parametrize("has_chunk", [True, False])
def test_hazard_9_response_of_a_deposed_controller_is_refused(has_chunk: bool) -> None:
    """The position is of epoch 4, and the controller of epoch 5 has responded."""
    state = level()
    state.changes(MetadataFeedResponse(0, 2, EPOCH + 1, OFFSET, image_required=True))
    with pytest.raises(InvalidFeedResponse):
        if has_chunk:
            state.chunk(chunk(15, 1, -1))
        else:
            state.changes(response((EPOCH, 11)))
    assert state.position == (EPOCH, OFFSET)


def test_hazard_9_response_of_an_epoch_before_the_position_is_always_refused() -> None:
    state = level()
    for _ in range(3):
        with pytest.raises(InvalidFeedResponse):
            state.changes(MetadataFeedResponse(0, 2, EPOCH - 1, 11, image_required=True))
    assert not requires_image(state)


def test_hazard_9_damaged_epoch_of_a_response_refuses_one_response_only() -> None:
    state = level()
    state.changes(MetadataFeedResponse(0, 2, 2**31 - 1, OFFSET, image_required=True))
    assert requires_image(state)
    with pytest.raises(InvalidFeedResponse):
        state.chunk(chunk(15, 1, -1))
    assert not state.is_level
    state.fetched(state.chunk(chunk(20, 1, -1)))
    assert state.position == (EPOCH, 20)
    assert state.is_level


@pytest.mark.parametrize(
    ("controller", "epoch", "offset", "is_valid"),
    [(0, 0, 0, True), (-1, 0, 0, False), (0, -1, 0, False), (0, 0, -1, False)],
)
def test_response_without_a_controller_or_a_position_is_refused(
    controller: int, epoch: int, offset: int, is_valid: bool
) -> None:
    state = FeedState("cluster", BrokerId(2))
    first = MetadataFeedResponse(0, controller, epoch, offset, image_required=True)
    if is_valid:
        assert state.changes(first) == []
    else:
        with pytest.raises(InvalidFeedResponse):
            state.changes(first)
    assert requires_image(state) == is_valid
