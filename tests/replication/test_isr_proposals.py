"""Proposed ISRs on their way to the controller: batches, retries, void proposals."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicPartition, Uuid
from odradek.metadata.image import LeaderRecoveryState
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.alter_partition_response import (
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from odradek.replication.isr_proposals import (
    OUTCOMES_WITH_RESPONSE_MAX,
    PARTITIONS_PER_REQUEST_MAX,
    RETRY_BACKOFF_MS,
    IsrProposals,
    ProposalQueue,
)
from odradek.replication.replication_state import IsrProposal
from odradek.results import PendingResult, Result
from odradek.slicing import SLICE_MS

LEADER, A, B = BrokerId(1), BrokerId(2), BrokerId(3)
TOPIC = Uuid(bytes(16))
SLICE = int(SLICE_MS)
"""Outcomes in a time slice of a `SlowProposer`."""


def proposal(*isr: int, partition_epoch: int = 10) -> IsrProposal:
    members = tuple((BrokerId(each), 70) for each in isr)
    return IsrProposal(5, partition_epoch, members, expands=False)


@dataclass(eq=False)
class Proposer:
    """A leader that records the outcomes of its proposal, and repeats it after an error."""

    number: int
    pending: IsrProposal | None
    sender: Any = None
    topic_id: Uuid = TOPIC
    outcomes: list[Any] = field(default_factory=list)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition("t", self.number)

    def is_pending(self, proposal: IsrProposal) -> bool:
        return self.pending is proposal

    def proposal_succeeded(
        self,
        proposal: IsrProposal,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[BrokerId, ...],
        leader_recovery_state: LeaderRecoveryState,
    ) -> None:
        assert leader_recovery_state is LeaderRecoveryState.RECOVERED
        self.outcomes.append((leader_epoch, partition_epoch, isr))

    def proposal_failed(self, proposal: IsrProposal, error: ErrorCode) -> None:
        self.outcomes.append(error)
        if error is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.sender.propose(self, proposal)


class Channel:
    """A channel to the controller that the test answers."""

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.results: list[PendingResult[AlterPartitionResponse]] = []

    def send(self, request: Any, _: object, *, timeout_ms: float) -> Result[Any]:
        self.requests.append(request)
        self.results.append(PendingResult())
        return self.results[-1]


class StoppedTimers:
    """Timers that run when `advance` is called, without an event loop."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.armed: dict[StoppedTimer, None] = {}

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Any:
        assert not args
        timer = StoppedTimer(self, self.now_ms + delay_s * 1000, callback)
        self.armed[timer] = None
        return timer

    async def sleep(self, delay_s: float) -> None:
        raise NotImplementedError

    def advance(self, delay_ms: float) -> None:
        self.now_ms += delay_ms
        for timer in [each for each in self.armed if each.at_ms <= self.now_ms]:
            if timer in self.armed:
                timer.cancel()
                timer.callback()


@dataclass(eq=False)
class StoppedTimer:
    owner: StoppedTimers
    at_ms: float
    callback: Callable[[], object]

    def cancel(self) -> None:
        self.owner.armed.pop(self, None)


class Sender:
    def __init__(self) -> None:
        self.timers = StoppedTimers()
        self.channel = Channel()
        self.epoch = 70
        self.clock = ManualClock()
        self.proposals = IsrProposals(
            self.channel,  # type: ignore[arg-type]
            broker_id=LEADER,
            broker_epoch=lambda: self.epoch,
            clock=self.clock,
            timers=self.timers,
        )

    def propose(self, proposer: Proposer) -> None:
        assert proposer.pending is not None
        proposer.sender = self.proposals
        self.proposals.propose(proposer, proposer.pending)  # type: ignore[arg-type]

    def run(self, delay_ms: int = 0) -> None:
        self.timers.advance(delay_ms)

    def partitions(self) -> list[list[int]]:
        """Return the partitions of each request."""
        return [
            [each.partition_index for topic in request.topics for each in topic.partitions]
            for request in self.channel.requests
        ]

    def answer(self, *codes: int, error: int = 0) -> None:
        """Answer the newest request with a code for each of its partitions."""
        request = self.channel.requests[-1]
        numbers = [each.partition_index for each in request.topics[0].partitions]
        results = [
            PartitionData(number, code, LEADER, 5, [1, 2], 0, 11)
            for number, code in zip(numbers, codes, strict=False)
        ]
        response = AlterPartitionResponse(0, error, [] if error else [TopicData(TOPIC, results)])
        self.channel.results[-1].complete(response)


def test_proposals_of_one_iteration_share_a_request() -> None:
    sender = Sender()
    proposers = [Proposer(number, proposal(1, 2)) for number in range(3)]
    for each in proposers:
        sender.propose(each)
    assert sender.partitions() == []
    sender.run()
    assert sender.partitions() == [[0, 1, 2]]
    (request,) = sender.channel.requests
    assert (request.broker_id, request.broker_epoch) == (LEADER, 70)
    (topic,) = request.topics
    first = topic.partitions[0]
    assert (first.leader_epoch, first.partition_epoch) == (5, 10)
    members = [(each.broker_id, each.broker_epoch) for each in first.new_isr_with_epochs]
    assert members == [(1, 70), (2, 70)]
    sender.answer(0, int(ErrorCode.FENCED_LEADER_EPOCH), 0)
    assert [each.outcomes for each in proposers] == [
        [(5, 11, (1, 2))],
        [ErrorCode.FENCED_LEADER_EPOCH],
        [(5, 11, (1, 2))],
    ]


def test_one_request_is_in_flight() -> None:
    sender = Sender()
    first, second = Proposer(0, proposal(1)), Proposer(1, proposal(1))
    sender.propose(first)
    sender.run()
    sender.propose(second)
    sender.run(1_000)
    assert sender.partitions() == [[0]]
    sender.answer(0)
    sender.run()
    assert sender.partitions() == [[0], [1]]


@pytest.mark.parametrize(
    "fail",
    [
        lambda sender: sender.channel.results[-1].fail(TimeoutError()),
        lambda sender: sender.answer(error=int(ErrorCode.STALE_BROKER_EPOCH)),
        lambda sender: sender.answer(),
        lambda sender: sender.answer(-1, -1),
        lambda sender: sender.answer(32_000),
    ],
    ids=["lost", "stale-broker-epoch", "partition-missing", "unknown-error", "unknown-code"],
)
def test_request_without_a_judgement_is_sent_again_after_a_backoff(
    fail: Callable[[Sender], None],
) -> None:
    sender = Sender()
    proposer = Proposer(0, proposal(1, 2))
    sender.propose(proposer)
    sender.run()
    sender.epoch = 71
    fail(sender)
    sender.run(RETRY_BACKOFF_MS - 1)
    assert len(sender.channel.requests) == 1
    sender.run(1)
    assert sender.partitions() == [[0], [0]]
    assert sender.channel.requests[1].broker_epoch == 71


def test_void_proposal_is_not_sent() -> None:
    sender = Sender()
    proposer = Proposer(0, proposal(1))
    sender.propose(proposer)
    proposer.pending = None
    sender.run()
    assert sender.channel.requests == []


def test_newer_proposal_replaces_a_waiting_one() -> None:
    sender = Sender()
    proposer = Proposer(0, proposal(1))
    sender.propose(proposer)
    proposer.pending = proposal(1, 3, partition_epoch=11)
    sender.propose(proposer)
    sender.run()
    (request,) = sender.channel.requests
    assert [each.partition_epoch for each in request.topics[0].partitions] == [11]


def test_stop_sends_nothing_more() -> None:
    sender = Sender()
    proposer = Proposer(0, proposal(1))
    sender.propose(proposer)
    sender.run()
    sender.proposals.stop()
    sender.channel.results[-1].fail(TimeoutError())
    sender.propose(proposer)
    sender.run(10_000)
    assert len(sender.channel.requests) == 1
    assert proposer.outcomes == []


def test_partitions_of_a_refused_request_are_not_judged() -> None:
    queue, pending = ProposalQueue(), proposal(1)
    proposer = Proposer(0, pending)
    queue.add(proposer, pending)  # type: ignore[arg-type]
    assert queue.begin_request()
    partition = PartitionData(0, 0, LEADER, 5, [1], 0, 11)
    topics = [TopicData(TOPIC, [partition])]
    refused = AlterPartitionResponse(0, int(ErrorCode.STALE_BROKER_EPOCH), topics)
    (outcome,) = queue.end_request(refused)
    assert (outcome.error, outcome.result) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)


def test_request_is_limited_and_the_rest_follows() -> None:
    queue = ProposalQueue()
    count = PARTITIONS_PER_REQUEST_MAX + 1
    for number in range(count):
        pending = proposal(1)
        queue.add(Proposer(number, pending), pending)  # type: ignore[arg-type]
    assert len(queue.begin_request()) == PARTITIONS_PER_REQUEST_MAX
    assert queue.begin_request() == {}
    assert len(queue.end_request(None)) == PARTITIONS_PER_REQUEST_MAX
    assert len(queue.begin_request()) == 1


def test_partitions_with_the_same_new_isr_share_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A line costs more than the other work on an outcome, and a response has hundreds."""
    sender = Sender()
    for number in range(3):
        sender.propose(Proposer(number, proposal(1, 2)))
    sender.run()
    with caplog.at_level(logging.INFO):
        sender.answer(0, 0, ErrorCode.INELIGIBLE_REPLICA)
    assert [each.getMessage() for each in caplog.records] == ["the ISR of t-0, t-1 is [1, 2] now"]


@dataclass(eq=False)
class SlowProposer(Proposer):
    """A leader that needs `delay_ms` to apply an outcome."""

    clock: Any = None
    delay_ms: int = 1

    def proposal_succeeded(self, *arguments: Any) -> None:
        super().proposal_succeeded(*arguments)
        self.clock.advance(self.delay_ms)


def answered(sender: Sender, slices: int) -> list[SlowProposer]:
    """Send proposals whose outcomes take `slices` time slices, and answer all of them."""
    numbers = range(slices * SLICE)
    proposers = [SlowProposer(each, proposal(1, 2), clock=sender.clock) for each in numbers]
    for each in proposers:
        sender.propose(each)
    sender.run()
    sender.answer(*[0] * len(proposers))
    return proposers


def applied(proposers: list[SlowProposer]) -> int:
    return sum(len(each.outcomes) for each in proposers)


def test_outcomes_are_applied_in_time_slices() -> None:
    sender = Sender()
    proposers = answered(sender, slices=3)
    assert applied(proposers) == SLICE
    sender.propose(Proposer(99, proposal(1)))
    sender.run()
    assert applied(proposers) == 2 * SLICE
    assert len(sender.channel.requests) == 1, "the next request follows the last outcome"
    sender.run()
    sender.run()
    assert [len(each.outcomes) for each in proposers] == [1] * 3 * SLICE
    assert sender.partitions()[1:] == [[99]]


def test_outcomes_of_a_long_response_are_applied_after_the_slice_that_decodes_it() -> None:
    sender = Sender()
    numbers = range(OUTCOMES_WITH_RESPONSE_MAX + 1)
    proposers = [Proposer(each, proposal(1, 2)) for each in numbers]
    for each in proposers:
        sender.propose(each)
    sender.run()
    sender.answer(*[0] * len(proposers))
    assert {len(each.outcomes) for each in proposers} == {0}
    sender.run()
    assert {len(each.outcomes) for each in proposers} == {1}


def test_stop_between_two_time_slices_applies_no_further_outcome() -> None:
    sender = Sender()
    proposers = answered(sender, slices=2)
    sender.proposals.stop()
    sender.run()
    assert applied(proposers) == SLICE


def test_error_of_one_leader_keeps_the_outcomes_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Proposer):
        def proposal_succeeded(self, *_: object) -> None:
            raise RuntimeError("a bug")

    sender = Sender()
    failing, other = Failing(0, proposal(1, 2)), Proposer(1, proposal(1, 2))
    waiting = Proposer(2, proposal(1))
    for each in (failing, other):
        sender.propose(each)
    sender.run()
    sender.propose(waiting)
    sender.answer(0, 0)
    assert other.outcomes == [(5, 11, (1, 2))]
    assert "ISR of t-0" in caplog.text
    sender.run()
    assert sender.partitions() == [[0, 1], [2]]
