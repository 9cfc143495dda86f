"""Tests of the client of the feed, on servers of several controllers and a faulty network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.client.connection import TooManyRequests
from odradek.config.broker import BrokerConfig
from odradek.controller.feed_server import FeedServer
from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata import feed_client
from odradek.metadata.delta import MetadataDelta, MetadataProvenance, whole_delta
from odradek.metadata.feed_client import FeedClient, FeedClientSettings
from odradek.metadata.feed_state import FEED_BYTES_MAX, FeedState, InvalidFeedResponse, decoding
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.image_records import compared, difference, image_records, partition_change
from odradek.metadata.records import InvalidRecord, encode_record
from odradek.protocol.codec import Message
from odradek.protocol.errors import UnencodableMessage
from odradek.protocol.freeing import freeing
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.metadata_feed_response import (
    FeedDelta,
    FramedRecord,
    MetadataFeedResponse,
)
from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
from odradek.protocol.messages.metadata_image_response import MetadataImageResponse
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.results import Abandoned, PendingResult, Result
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion
from tests.helpers.call_count import count_calls
from tests.helpers.time_slices import count_slices
from tests.helpers.virtual_loop import VirtualLoop
from tests.metadata.image_strategies import images

CLUSTER = "cluster"
FIRST_EPOCH = 3


def contents(image: MetadataImage) -> MetadataImage:
    """Return what images of the same position have in common."""
    return replace(image, topics_offset=0)


class Channel:
    """A channel whose requests a test answers."""

    def __init__(self) -> None:
        self.pending: list[tuple[Message, PendingResult[Any]]] = []
        self.disconnected = 0
        self.is_closed = False

    def send(
        self, request: Message, response: type[Message], *, timeout_ms: float
    ) -> Result[Message]:
        result: PendingResult[Any] = PendingResult(on_cancel=self.pending.clear)
        self.pending.append((request, result))
        return result

    def disconnect(self) -> None:
        self.disconnected += 1

    def close(self) -> None:
        self.is_closed = True


class Controller:
    """The feed of one controller epoch. A deposed one continues to answer."""

    def __init__(self, epoch: int, image: MetadataImage) -> None:
        self.epoch = epoch
        self.server = FeedServer(
            lambda: CLUSTER,
            BrokerId(epoch),
            LoopTimers(),
            lambda request, offset: ErrorCode.NONE,
            wait_ms_max=10,
            log_bytes_max=2_000,
        )
        self.image = replace(image, controller_epoch=epoch, controller_id=BrokerId(epoch))
        self.server.begin(self.image)

    def publish(self, target: MetadataImage) -> MetadataImage:
        delta = MetadataDelta(self.image)
        for record in difference(self.image, target):
            delta.replay(record)
        at = MetadataProvenance(BrokerId(self.epoch), self.epoch, self.image.offset + 1)
        self.image = delta.apply(at)
        run_to_completion(self.server.publishing(delta.records, self.image))
        return self.image

    def answer(self, request: Message) -> Result[Any]:
        if isinstance(request, MetadataFeedRequest):
            return self.server.poll(request)
        assert isinstance(request, MetadataImageRequest)
        request.max_bytes = min(request.max_bytes, 100)  # several chunks for an image
        return self.server.image_chunk(request)


class Follower:
    """A client on a loop with virtual time, with all that it publishes."""

    def __init__(self, may_begin: Callable[[MetadataImage], bool] = lambda _: True) -> None:
        self.loop = VirtualLoop()
        self.channel = Channel()
        self.config = BrokerConfig.from_properties({"node.id": "7"})
        self.failures: list[Exception] = []
        self.published: list[MetadataImage] = []
        self.clock = ManualClock()

        async def create() -> FeedClient:
            return FeedClient(
                self.channel,  # type: ignore[arg-type]
                config=self.config,
                cluster_id=CLUSTER,
                broker_id=BrokerId(7),
                broker_epoch=lambda: 70,
                timers=LoopTimers(),
                clock=self.clock,
                on_failure=self.failures.append,
                may_begin=may_begin,
            )

        self.client = self.loop.run_until_complete(create())
        self.client.subscribe(self._changed)

    def _changed(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        assert delta.image is old
        assert old is (self.published[-1] if self.published else old)
        assert new is self.client.image
        self.published.append(new)

    def start(self) -> None:
        async def start() -> None:
            self.client.start()

        self.loop.run_until_complete(start())
        self.advance()

    def advance(self, seconds: float = 2) -> None:
        """Let the client send its next request. The longest delay after a failure is 1 s."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def request(self) -> Message:
        ((request, _),) = self.channel.pending
        return request

    def respond(self, response: Message | Exception) -> None:
        ((_, result),) = self.channel.pending
        self.channel.pending.clear()
        if isinstance(response, Exception):
            result.fail(response)
        else:
            result.complete(response)
        self.advance()

    def exchange(
        self, controller: Controller, change: Callable[[Any], object] = lambda response: None
    ) -> None:
        """Answer the request from a controller, with a change of the response."""

        async def answer() -> Result[Any]:
            return controller.answer(self.request())

        result = self.loop.run_until_complete(answer())
        self.advance()
        response = result.get()
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            return  # the channel tries again and passes no such response on
        change(response)
        self.respond(response)

    def level_with(self, controller: Controller, exchanges_max: int = 1_000) -> None:
        for _ in range(exchanges_max):
            if self.client.image == controller.image:
                return
            self.exchange(controller)
        raise AssertionError("the client is not level with the controller")

    def close(self) -> None:
        self.loop.run_until_complete(self.client.stop())
        self.loop.close()


# --- faults of one response ---


def older_epoch(response: Any) -> None:
    response.controller_epoch = FIRST_EPOCH - 1


def no_controller(response: Any) -> None:
    response.controller_id = -1


def negative_end(response: Any) -> None:
    response.metadata_offset = -1


def gap(response: Any) -> None:
    if isinstance(response, MetadataFeedResponse):
        del response.deltas[:1]
        response.metadata_offset += 1
        response.image_required = False
    elif response.next_position >= 0:
        response.next_position += 1
    else:
        response.image_controller_epoch -= 1


def repeated(response: Any) -> None:
    if isinstance(response, MetadataFeedResponse):
        response.image_required = False
        response.deltas += response.deltas[-1:] or [FeedDelta(response.controller_epoch, 0)]
    else:
        response.next_position = 0


def torn(response: Any) -> None:
    """Cut the last record. It cannot be decoded then."""
    records = response.records if isinstance(response, MetadataImageResponse) else []
    for each in getattr(response, "deltas", ()):
        records = each.records or records
    if records:
        records[-1].frame = records[-1].frame[:-1]
    else:
        response.metadata_offset = -1


def unknown_partition(response: Any) -> None:
    """Add a record that does not fit any image."""
    record = encode_record(PartitionRecord(0, Uuid(b"\xee" * 16)))
    if isinstance(response, MetadataFeedResponse) and response.deltas:
        response.deltas[-1].records.append(FramedRecord(record))
    else:
        response.metadata_offset = -1


FAULTS = (older_epoch, no_controller, negative_end, gap, repeated, torn, unknown_partition)


class FeedMachine(RuleBasedStateMachine):
    """Controllers that follow each other, deposed ones that still answer, and faulty responses."""

    def __init__(self) -> None:
        super().__init__()
        self.follower = Follower()
        self.controllers: list[Controller] = []
        self.history: dict[tuple[int, int], MetadataImage] = {}
        self.position = (0, 0)

    @initialize(image=images())
    def begin(self, image: MetadataImage) -> None:
        first = Controller(FIRST_EPOCH, replace(image, cluster_id=CLUSTER, offset=10))
        self._add(first)
        self.follower.start()

    def _add(self, controller: Controller) -> None:
        self.controllers.append(controller)
        image = controller.image
        self.history[image.controller_epoch, image.offset] = image

    @rule(target_image=images())
    def publish(self, target_image: MetadataImage) -> None:
        image = self.controllers[-1].publish(target_image)
        self.history[image.controller_epoch, image.offset] = image

    @rule(skipped=st.integers(1, 2))
    def take_over(self, skipped: int) -> None:
        before = self.controllers[-1]
        self._add(Controller(before.epoch + skipped, before.image))

    @rule()
    def exchange(self) -> None:
        self.follower.exchange(self.controllers[-1])

    @precondition(lambda self: len(self.controllers) > 1)
    @rule(data=st.data())
    def exchange_with_a_deposed_controller(self, data: st.DataObject) -> None:
        self.follower.exchange(data.draw(st.sampled_from(self.controllers[:-1])))

    @rule(fault=st.sampled_from(FAULTS))
    def exchange_with_a_fault(self, fault: Callable[[Any], None]) -> None:
        if fault is older_epoch and not self.follower.published:
            fault = no_controller  # the client knows no newer epoch yet
        before = len(self.follower.published), self.follower.channel.disconnected
        image = self.follower.client.image
        self.follower.exchange(self.controllers[-1], fault)
        assert self.follower.channel.disconnected == before[1] + 1
        if fault not in (torn, unknown_partition):  # changes before the invalid one are valid
            assert len(self.follower.published) == before[0]
            assert self.follower.client.image is image

    @rule(error=st.sampled_from([TimeoutError("late"), ConnectionResetError("lost")]))
    def fail(self, error: Exception) -> None:
        self.follower.respond(error)

    @rule(error=st.sampled_from([ErrorCode.STALE_BROKER_EPOCH, ErrorCode.INVALID_REQUEST, 12_345]))
    def refuse(self, error: int) -> None:
        before = self.follower.channel.disconnected
        self.follower.exchange(
            self.controllers[-1], lambda response: setattr(response, "error_code", error)
        )
        assert self.follower.channel.disconnected == before

    @invariant()
    def images_are_those_of_a_controller_and_never_older(self) -> None:
        assert not self.follower.failures
        for image in self.follower.published:
            position = image.controller_epoch, image.offset
            assert contents(image) == contents(self.history[position])
            assert position >= self.position
            self.position = position
        del self.follower.published[:-1]

    def teardown(self) -> None:
        if self.controllers:
            self.follower.level_with(self.controllers[-1])
            self.images_are_those_of_a_controller_and_never_older()
        self.follower.close()


TestFeedMachine = FeedMachine.TestCase
TestFeedMachine.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


# --- single behaviours ---


@pytest.fixture
def follower() -> Generator[Follower]:
    created = Follower()
    yield created
    created.close()


def topics(partitions: int, offset: int = 10, each: int = 1_000) -> MetadataImage:
    """Return an image with partitions on the brokers 1 to 3."""
    replicas = (BrokerId(1), BrokerId(2), BrokerId(3))
    found = {}
    for number in range(0, partitions, each):
        count = min(each, partitions - number)
        topic_id = Uuid(number.to_bytes(16))
        found[topic_id] = TopicImage(
            TopicName(f"t{number}"),
            topic_id,
            [PartitionImage(i, replicas[0], 1, 1, replicas, replicas) for i in range(count)],
        )
    delta = whole_delta(MetadataImage())
    for topic in found.values():
        delta.topics.create(topic.name, topic.topic_id)
        delta.topics.changed[topic.topic_id].partitions.update(enumerate(topic.partitions))
    image = delta.apply(MetadataProvenance(BrokerId(3), 3, offset))
    return replace(image, cluster_id=CLUSTER)


def test_first_image_is_fetched_whole_and_in_chunks(follower: Follower) -> None:
    controller = Controller(3, topics(1_000))
    follower.start()
    first = follower.request()
    assert isinstance(first, MetadataFeedRequest)
    assert (first.controller_epoch, first.metadata_offset) == (-1, -1)
    follower.exchange(controller)
    chunks = 0
    while not follower.published:
        assert isinstance(follower.request(), MetadataImageRequest)
        follower.exchange(controller)
        chunks += 1
    assert chunks > 5
    assert follower.client.image == controller.image
    request = follower.request()
    assert isinstance(request, MetadataFeedRequest)
    assert (request.controller_epoch, request.metadata_offset) == (3, 10)


def test_first_image_is_fetched_again_until_it_may_be_applied(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that starts waits for its registration. A warning says so after some attempts."""
    monkeypatch.setattr(feed_client, "EARLY_IMAGES_BEFORE_WARNING", 2)
    follower = Follower(may_begin=lambda image: len(image.topics_by_name) > 1)
    controller = Controller(3, topics(100))
    follower.start()
    for _ in range(50):
        follower.exchange(controller)
    assert not follower.published
    assert not follower.client.image.offset
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warnings[0].startswith("the controller has not registered broker 7 after 2 attempts")
    controller.publish(topics(1_100))
    follower.level_with(controller)
    assert follower.published == [controller.image]
    assert not follower.failures
    follower.close()


def test_whole_image_of_a_new_controller_reports_only_what_differs(follower: Follower) -> None:
    image = topics(50)
    follower.start()
    follower.level_with(Controller(3, image))
    changed: list[list[int]] = []

    def note(delta: MetadataDelta, _: MetadataImage, __: MetadataImage) -> None:
        changed.extend(list(topic.partitions) for topic in delta.topics.changed.values())

    follower.client.subscribe(note)
    follower.exchange(Controller(4, image))
    next_image = an_isr_change(image)
    follower.level_with(Controller(5, next_image))
    assert changed == [[7]]
    assert follower.client.image.controller_epoch == 5


def an_isr_change(image: MetadataImage) -> MetadataImage:
    topic = image.topics_by_id[Uuid((0).to_bytes(16))]
    before = topic.partitions[7]
    after = replace(before, isr=before.isr[:-1], partition_epoch=before.partition_epoch + 1)
    record = partition_change(topic.topic_id, before, after)
    assert record is not None
    delta = MetadataDelta(image)
    delta.replay(record)
    return delta.apply(MetadataProvenance(BrokerId(3), 3, image.offset + 1))


def test_caught_up_returns_when_the_image_is_level_with_the_controller(follower: Follower) -> None:
    controller = Controller(3, topics(500))
    follower.start()
    follower.exchange(controller)
    caught_up = follower.loop.create_task(follower.client.caught_up())
    follower.exchange(controller)
    assert not caught_up.done()
    controller.publish(an_isr_change(controller.image))
    while isinstance(follower.request(), MetadataImageRequest):
        follower.exchange(controller)
        assert not caught_up.done()  # the end of the feed is one change ahead of the image
    follower.exchange(controller)
    assert caught_up.done() and follower.client.image == controller.image
    caught_up.result()  # it is not abandoned


def test_caught_up_is_abandoned_when_the_client_stops_before() -> None:
    follower = Follower()
    follower.start()
    caught_up = follower.loop.create_task(follower.client.caught_up())
    follower.loop.run_until_complete(follower.client.stop())
    with pytest.raises(Abandoned):
        follower.loop.run_until_complete(caught_up)
    assert follower.channel.is_closed
    assert not follower.channel.pending, "the request has been cancelled"
    follower.loop.close()


@pytest.mark.parametrize("error", [OSError("disk"), InvalidRecord("x"), TimeoutError(), KeyError()])
def test_failure_of_a_subscriber_ends_the_feed_and_is_reported(
    follower: Follower, error: Exception
) -> None:
    def fail(delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        raise error

    follower.client.subscribe(fail)
    controller = Controller(3, topics(1))
    follower.start()
    caught_up = follower.loop.create_task(follower.client.caught_up())
    follower.exchange(controller)
    while not follower.failures:
        follower.exchange(controller)
    (failure,) = follower.failures
    assert failure.__cause__ is error
    assert not follower.channel.pending
    with pytest.raises(Abandoned):
        follower.loop.run_until_complete(caught_up)


def test_subscriber_is_run_in_time_slices_before_the_next_change(follower: Follower) -> None:
    steps: list[tuple[int, int]] = []

    def work(
        delta: MetadataDelta, old: MetadataImage, new: MetadataImage
    ) -> Generator[None, None, None]:
        for step in range(3):
            steps.append((new.offset, step))
            yield

    controller = Controller(3, topics(20))
    follower.start()
    follower.level_with(controller)
    follower.client.subscribe(work)
    controller.publish(an_isr_change(controller.image))
    controller.publish(topics(20))
    follower.level_with(controller)
    assert steps == [(11, 0), (11, 1), (11, 2), (12, 0), (12, 1), (12, 2)]


@pytest.mark.parametrize("whole", [False, True])
def test_contents_of_a_change_are_freed_in_time_slices(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    slices = count_slices(monkeypatch)
    freed: list[int] = []  # the lengths of the arrays of each response

    def counted(arrays: list[list[Any]]) -> Generator[None, None, None]:
        freed.append(sum(map(len, arrays)))
        yield from freeing(arrays)

    monkeypatch.setattr(feed_client, "freeing", counted)
    deltas: list[MetadataDelta] = []
    follower.client.subscribe(lambda delta, _old, _new: deltas.append(delta))
    controller = Controller(3, topics(200 if whole else 1))
    follower.start()
    while follower.client.image != controller.image:
        follower.exchange(controller)
    if not whole:
        controller.publish(topics(200))
        slices.clear()
        freed.clear()
        follower.exchange(controller)
        assert len(slices) >= 200 // ELEMENTS_PER_SLICE
    assert sum(freed) >= (200 if whole else 1)
    assert follower.client.image == controller.image
    assert not deltas[-1].records
    assert not deltas[-1].topics.changed
    assert deltas[-1].image == MetadataImage()


@pytest.mark.parametrize("whole", [False, True])
def test_records_stay_that_a_controller_in_the_process_keeps(
    follower: Follower, whole: bool
) -> None:
    controller = Controller(3, topics(200 if whole else 1))
    follower.start()
    kept: list[tuple[list[Any], int]] = []

    def keep(response: Any) -> None:
        parts = [response] if isinstance(response, MetadataImageResponse) else response.deltas
        kept.extend((part.records, len(part.records)) for part in parts)

    while follower.client.image != controller.image:
        follower.exchange(controller, keep)
    if not whole:
        controller.publish(topics(200))
        follower.exchange(controller, keep)
    assert max(length for _, length in kept) >= ELEMENTS_PER_SLICE
    assert [len(records) for records, _ in kept] == [length for _, length in kept]


def test_last_heard_is_the_time_of_the_last_valid_response(follower: Follower) -> None:
    controller = Controller(3, topics(1))
    follower.clock.advance(5)
    follower.start()
    assert follower.client.last_heard_ms == 5
    follower.clock.advance(5)
    follower.exchange(controller)
    assert follower.client.last_heard_ms == 10
    follower.clock.advance(5)
    follower.exchange(controller, no_controller)
    follower.respond(TimeoutError("late"))
    assert follower.client.last_heard_ms == 10


@pytest.mark.parametrize("fault", [torn, unknown_partition])
def test_image_is_fetched_after_a_change_that_does_not_fit(
    follower: Follower, fault: Callable[[Any], None]
) -> None:
    controller = Controller(3, topics(20))
    follower.start()
    follower.level_with(controller)
    follower.exchange(controller)  # it has caught up
    controller.publish(an_isr_change(controller.image))
    follower.exchange(controller)
    controller.publish(topics(20))
    before = follower.client.image
    follower.exchange(controller, fault)
    assert follower.client.image is before
    assert follower.channel.disconnected == 1
    assert isinstance(follower.request(), MetadataImageRequest)
    follower.level_with(controller)


def test_own_responses_are_not_heard_from_other_brokers(follower: Follower) -> None:
    """A broker that is the controller itself must notice that it is isolated."""
    follower.clock.advance(5)
    follower.start()
    follower.clock.advance(5)
    follower.level_with(Controller(7, topics(1)))
    assert (follower.client.last_heard_ms, follower.client.others_heard_ms) == (10, 5)
    follower.clock.advance(5)
    follower.level_with(Controller(8, topics(1)))
    assert (follower.client.last_heard_ms, follower.client.others_heard_ms) == (15, 15)


def _delay_ms(follower: Follower, error: Exception) -> int:
    """Return the time until the client sends its request again."""
    ((_, result),) = follower.channel.pending
    follower.channel.pending.clear()
    begin = follower.loop.time()
    result.fail(error)
    while not follower.channel.pending:
        follower.advance(0.001)
    return round((follower.loop.time() - begin) * 100) * 10


def test_delay_after_failures_doubles_up_to_a_limit(follower: Follower) -> None:
    follower.start()
    errors = [OSError("a"), TimeoutError("b"), TooManyRequests("c"), UnencodableMessage("d")]
    delays = [_delay_ms(follower, error) for error in (*errors, *errors, *errors)]
    assert delays == [50, 100, 200, 400, 800, *[1_000] * 7]
    assert follower.channel.disconnected == 3, "after each timeout"
    follower.exchange(Controller(3, topics(1)))
    assert _delay_ms(follower, OSError("again")) == 50


def test_dynamic_configs_are_in_effect_before_the_subscribers_run(follower: Follower) -> None:
    seen: list[int] = []
    key = "message.max.bytes"
    follower.client.subscribe(lambda delta, old, new: seen.append(follower.config.get_int(key)))
    image = topics(1)
    configs = image.broker_configs.with_changes({"7": {key: "2000"}})
    follower.start()
    follower.level_with(Controller(3, replace(image, broker_configs=configs)))
    assert seen == [2000]


def test_request_that_is_late_costs_the_connection(follower: Follower) -> None:
    follower.start()
    follower.respond(TimeoutError("late"))
    assert follower.channel.disconnected == 1
    assert isinstance(follower.request(), MetadataFeedRequest)


def test_fencing_old_controller_and_broker(follower: Follower) -> None:
    """A deposed controller that still answers does not change the image of a broker."""
    old = Controller(3, topics(1))
    follower.start()
    follower.level_with(old)
    new = Controller(4, old.image)
    follower.exchange(new)  # the broker knows of the new controller, and requests its image
    image = follower.client.image
    old.publish(topics(20))
    follower.exchange(old)
    assert follower.client.image is image
    assert follower.channel.disconnected == 1
    follower.level_with(new)
    # From now on the request has a newer epoch than the deposed controller.
    assert old.answer(follower.request()).get().error_code == ErrorCode.NOT_CONTROLLER


def test_times_are_fractions_of_the_session_timeout() -> None:
    times = FeedClientSettings.for_session(9_000)
    assert (times.max_wait_ms, times.timeout_ms) == (3_000, 6_000)


def test_image_that_repeats_a_chunk_without_records_is_refused() -> None:
    state = FeedState(CLUSTER, BrokerId(7))
    state.changes(MetadataFeedResponse(0, 1, 3, 10, True))
    with pytest.raises(InvalidFeedResponse):
        state.chunk(MetadataImageResponse(0, 1, 3, 10, 3, 10, 0, []))


@given(images(), st.data())
@settings(deadline=None)
def test_changed_bytes_of_records_raise_nothing_but_invalid_record(
    image: MetadataImage, data: st.DataObject
) -> None:
    frames = [bytearray(encode_record(record)) for record in image_records(image)]
    if not frames:
        return
    for _ in range(data.draw(st.integers(1, 5))):
        frame = data.draw(st.sampled_from(frames))
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    delta = MetadataDelta(MetadataImage())
    try:
        run_to_completion(decoding([bytes(frame) for frame in frames], delta))
        delta.apply(MetadataProvenance(BrokerId(1), 1, 1))
    except InvalidRecord:
        pass


def test_application_of_a_change_makes_as_many_calls_with_10_000_partitions_as_with_10() -> None:
    counts = {}
    for partitions in (10, 10_000):
        image = topics(partitions)
        follower = Follower()
        controller = Controller(3, image)
        follower.start()
        follower.level_with(controller)
        for target in (an_isr_change(image), image):  # the first calls may fill caches
            controller.publish(target)
            follower.exchange(controller)
        controller.publish(an_isr_change(image))
        counts[partitions] = count_calls(follower.exchange, controller)
        assert follower.client.image == controller.image
        assert follower.client.image.offset == 13
        follower.close()
    few, many = counts[10].total, counts[10_000].total
    assert few <= many + 20 and many <= few + 20, f"{counts[10]}\n{counts[10_000]}"


def test_comparison_with_an_equal_image_ends_time_slices() -> None:
    image = topics(3_000)
    assert [each for each in compared(image, topics(3_000)) if each is not None] == []
    assert sum(1 for _ in compared(image, topics(3_000))) >= 3_000


def test_removed_topic_without_a_recorded_deletion_leaves_no_deletion(follower: Follower) -> None:
    follower.start()
    image = topics(20, each=10)
    follower.level_with(Controller(3, image))
    delta = MetadataDelta(image)
    delta.replay(RemoveTopicRecord(Uuid((10).to_bytes(16))))
    gone = delta.apply(MetadataProvenance(BrokerId(3), 3, 11))
    follower.level_with(Controller(4, replace(gone, deletions=image.deletions)))
    assert list(follower.client.image.topics_by_name) == ["t0"]
    assert not follower.client.image.deletions


def test_broker_that_applies_a_long_change_shows_that_it_is_alive(follower: Follower) -> None:
    """Otherwise the controller fences all brokers that apply a large change at the same time."""
    controller = Controller(FIRST_EPOCH, topics(1))
    follower.start()
    follower.level_with(controller)
    before = follower.client.image
    applied = follower.loop.create_future()

    def slow(*_: object) -> Iterator[Any]:
        yield applied

    follower.client.subscribe(slow)
    controller.publish(topics(2))
    follower.exchange(controller)
    interval_s = FeedClientSettings().max_wait_ms / 1000
    for _ in range(3):
        follower.channel.pending.clear()
        follower.advance(interval_s)
        sign = follower.request()
        assert isinstance(sign, MetadataFeedRequest)
        position = before.controller_epoch, before.offset
        assert (sign.controller_epoch, sign.metadata_offset) == position
        assert (sign.broker_id, sign.broker_epoch, sign.max_wait_ms, sign.max_bytes) == (
            7,
            70,
            0,
            0,
        )
    applied.set_result(None)
    follower.advance()
    poll = follower.request()  # the sign of life in flight is cancelled
    assert isinstance(poll, MetadataFeedRequest)
    assert (poll.metadata_offset, poll.max_bytes) == (controller.image.offset, FEED_BYTES_MAX)
    follower.advance(interval_s)
    assert follower.request() is poll
