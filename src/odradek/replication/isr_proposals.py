"""Proposed ISRs on their way to the controller (Kafka's ``AlterPartitionManager``).

Leaders propose changes of their ISRs. One AlterPartition request is in flight, and the next one has
all proposals that arrived in the meantime. A proposal whose outcome is unknown, or that the
controller could not judge, is sent again after a backoff. The partition decides whether it still
stands (`ReplicationState.alter_partition_failed`).

`ProposalQueue` has the decisions, without time and network. `IsrProposals` performs them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from odradek.errors import ErrorCode, received_code
from odradek.ids import BrokerId
from odradek.metadata.image import LeaderRecoveryState
from odradek.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.slicing import SLICE_MS

if TYPE_CHECKING:
    from odradek.environment.clock import Clock
    from odradek.environment.timers import Timer, Timers
    from odradek.ids import Uuid
    from odradek.metadata.controller_channel import ControllerChannel
    from odradek.protocol.messages.alter_partition_response import (
        PartitionData as PartitionResult,
    )
    from odradek.replication.leader_replication import Proposer
    from odradek.replication.replication_state import IsrProposal
    from odradek.results import Result

logger = logging.getLogger(__name__)

PARTITIONS_PER_REQUEST_MAX = 250
"""Maximum number of proposals in one request. More of them wait for its response."""
OUTCOMES_WITH_RESPONSE_MAX = 20
"""Outcomes that are applied in the time slice that has decoded the response."""
RETRY_BACKOFF_MS = 50
"""Delay before proposals are sent again, as in Kafka."""
ATTEMPT_TIMEOUT_MS = 10_000
"""Time after which the outcome of a request counts as unknown. Its proposals are sent again, with
the broker epoch of that time.
"""


class Outcome(NamedTuple):
    """The controller's answer to one proposal. `result` is set without an error."""

    proposer: Proposer
    proposal: IsrProposal
    error: ErrorCode
    result: PartitionResult | None = None


@dataclass(slots=True)
class ProposalQueue:
    """The proposals that wait, and those in flight. Pure decisions.

    Attributes:
        waiting: The newest proposal of each partition that is not in flight.
        in_flight: The proposals of the request in flight. Empty without a request.
    """

    waiting: dict[Proposer, IsrProposal] = field(default_factory=dict)
    in_flight: dict[Proposer, IsrProposal] = field(default_factory=dict)

    def add(self, proposer: Proposer, proposal: IsrProposal) -> None:
        """Add a proposal. It replaces a waiting one of the same leader."""
        self.waiting.pop(proposer, None)
        self.waiting[proposer] = proposal

    def begin_request(self) -> dict[Proposer, IsrProposal]:
        """Return the proposals for the next request, which are in flight from now on.

        None are returned while a request is in flight. Proposals are left out that have become void
        since, because newer metadata arrived or the broker no longer leads the partition.
        """
        if self.in_flight:
            return {}
        taken: dict[Proposer, IsrProposal] = {}
        for proposer in tuple(self.waiting):
            if len(taken) == PARTITIONS_PER_REQUEST_MAX:
                break
            proposal = self.waiting.pop(proposer)
            if proposer.is_pending(proposal):
                taken[proposer] = proposal
        self.in_flight = taken
        return taken

    def end_request(self, response: AlterPartitionResponse | None) -> list[Outcome]:
        """Return the outcome of each proposal in flight. None: the response was lost.

        An error of the whole request, and a partition that the response lacks, say nothing of a
        proposal. It then has the error UNKNOWN_SERVER_ERROR, after which it is sent again.
        """
        in_flight, self.in_flight = self.in_flight, {}
        results: dict[tuple[Uuid, int], PartitionResult] = {}
        if response is not None and not response.error_code:
            for topic in response.topics:
                for each in topic.partitions:
                    results[topic.topic_id, each.partition_index] = each
        outcomes = []
        for proposer, proposal in in_flight.items():
            result = results.get((proposer.topic_id, proposer.topic_partition.partition))
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            if result is not None:
                error = received_code(result.error_code)
            outcomes.append(Outcome(proposer, proposal, error, None if error else result))
        return outcomes


def request_of(
    broker_id: BrokerId, broker_epoch: int, proposals: dict[Proposer, IsrProposal]
) -> AlterPartitionRequest:
    """Return the request with the proposals."""
    topics: dict[Uuid, list[PartitionData]] = {}
    for proposer, proposal in proposals.items():
        topics.setdefault(proposer.topic_id, []).append(
            PartitionData(
                proposer.topic_partition.partition,
                proposal.leader_epoch,
                new_isr_with_epochs=[BrokerState(*member) for member in proposal.isr],
                leader_recovery_state=int(proposal.leader_recovery_state),
                partition_epoch=proposal.partition_epoch,
            )
        )
    data = [TopicData(topic_id, partitions) for topic_id, partitions in topics.items()]
    return AlterPartitionRequest(broker_id, broker_epoch, data)


class IsrProposals:
    """The sender of proposed ISRs (`ProposalSender`). Used on the event loop only.

    Args:
        channel: The channel to the controller, for these requests only.
        broker_id: The id of this broker.
        broker_epoch: Returns the epoch of its registration.
        clock: The clock for time slices.
        timers: Timers for backoffs.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._timers = timers
        self._queue = ProposalQueue()
        # Outcomes of the last response that are not applied yet. No request is sent before.
        self._outcomes: deque[Outcome] = deque()
        self._result: Result[AlterPartitionResponse] | None = None
        self._timer: Timer | None = None
        self._stopped = False

    def propose(self, proposer: Proposer, proposal: IsrProposal) -> None:
        """Send a proposal, together with all others of this iteration of the event loop."""
        self._queue.add(proposer, proposal)
        if not self._queue.in_flight:
            self._schedule(0)

    def stop(self) -> None:
        """Send no further request."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._result is not None:
            self._result.cancel()

    def _schedule(self, delay_ms: int) -> None:
        if self._timer is None and not self._stopped:
            self._timer = self._timers.call_later(delay_ms / 1000, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._outcomes:
            return
        proposals = self._queue.begin_request()
        if not proposals:
            return
        request = request_of(self._broker_id, self._broker_epoch(), proposals)
        self._result = self._channel.send(
            request, AlterPartitionResponse, timeout_ms=ATTEMPT_TIMEOUT_MS
        )
        self._result.on_done(self._received)

    def _received(self, done: Result[AlterPartitionResponse]) -> None:
        self._result = None
        if self._stopped:
            return
        if done.error is not None:
            logger.warning(
                "the controller did not answer a change of %d ISRs: %s. The request is sent again",
                len(self._queue.in_flight),
                done.error,
            )
        response = None if done.error is not None else done.get()
        if response is not None and response.error_code:
            logger.warning(
                "the controller refused a change of %d ISRs with %s. The request is sent again",
                len(self._queue.in_flight),
                received_code(response.error_code).name,
            )
        outcomes = self._queue.end_request(response)
        if any(outcome.error for outcome in outcomes):
            # Before the partitions propose again.
            self._schedule(RETRY_BACKOFF_MS)
        _log_changes(outcomes)
        self._outcomes.extend(outcomes)
        if len(outcomes) > OUTCOMES_WITH_RESPONSE_MAX:
            self._timers.call_later(0, self._apply_outcomes)
        else:
            self._apply_outcomes()

    def _apply_outcomes(self) -> None:
        """Pass outcomes on to the leaders, which propose again if they have to.

        An outcome takes 10 us to 30 us, so the slice ends after `SLICE_MS`. A leader whose outcome
        is applied later is in the state of one whose response arrives later.
        """
        ends_ms = self._clock.monotonic_ms() + SLICE_MS
        while self._outcomes and not self._stopped:
            _apply(self._outcomes.popleft())
            if self._outcomes and self._clock.monotonic_ms() >= ends_ms:
                self._timers.call_later(0, self._apply_outcomes)
                return
        if self._queue.waiting:
            self._schedule(0)


def _apply(outcome: Outcome) -> None:
    try:
        _apply_one(*outcome)
    except Exception:  # the other leaders wait for their outcomes
        logger.exception(
            "bug in the outcome of a change of the ISR of %s. Report the traceback",
            outcome.proposer.topic_partition,
        )


def _apply_one(
    proposer: Proposer, proposal: IsrProposal, error: ErrorCode, result: PartitionResult | None
) -> None:
    if result is None:
        proposer.proposal_failed(proposal, error)
        return
    proposer.proposal_succeeded(
        proposal,
        result.leader_epoch,
        result.partition_epoch,
        tuple(map(BrokerId, result.isr)),
        _recovery_state(result.leader_recovery_state),
    )


def _log_changes(outcomes: Sequence[Outcome]) -> None:
    """Log the new ISRs, one line for all partitions with the same ISR.

    A line for each partition would take longer than all other work on a response.
    """
    changed: dict[tuple[int, ...], list[str]] = {}
    for proposer, _, _, result in outcomes:
        if result is not None:
            changed.setdefault(tuple(result.isr), []).append(str(proposer.topic_partition))
    for isr, partitions in changed.items():
        logger.info("the ISR of %s is %s now", ", ".join(partitions), list(isr))


def _recovery_state(number: int) -> LeaderRecoveryState:
    try:
        return LeaderRecoveryState(number)
    except ValueError:
        return LeaderRecoveryState.RECOVERED
