"""The election of the writer: single steps, and a model of instances, log and fencing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.registry.election import (
    FAILURES_MAX,
    FENCED_PAUSE_MS,
    PAUSE_MS,
    Announced,
    AnnounceWriter,
    Effect,
    ElectionState,
    Event,
    FencePredecessor,
    Leader,
    LeaderRead,
    LeaveGroup,
    LogRead,
    PartitionAssigned,
    PartitionRevoked,
    Phase,
    PredecessorFenced,
    ReadToEnd,
    StartWriting,
    StepFailed,
    StopWriting,
    TimePassed,
    WakeAt,
    decode_leader,
    encode_leader,
    step,
)

ME = Leader("http://me:8081", 1)
INSTANCES = 3
EFFECTS_MAX = 200
"""A take-over without failures has far fewer effects."""

instances = st.integers(0, INSTANCES - 1)


def run(state: ElectionState, *events: Event, now_ms: float = 0.0) -> ElectionState:
    for event in events:
        state, _ = step(state, event, now_ms)
    return state


WRITING = run(
    ElectionState(),
    PartitionAssigned(),
    LogRead(1, 5),
    PredecessorFenced(1),
    LogRead(1, 7),
    Announced(1, ME),
)


def test_a_take_over_fences_between_two_reads_and_then_announces() -> None:
    state, effects = step(ElectionState(), PartitionAssigned(), 0.0)
    assert effects == (ReadToEnd(1),)
    state, effects = step(state, LogRead(1, 5), 0.0)
    assert effects == (FencePredecessor(1),)
    state, effects = step(state, PredecessorFenced(1), 0.0)
    assert effects == (ReadToEnd(1),)
    state, effects = step(state, LogRead(1, 7), 0.0)
    assert effects == (AnnounceWriter(1, 7, epoch=1),)
    state, effects = step(state, Announced(1, ME), 0.0)
    assert effects == (StartWriting(1),)
    assert (state.phase, state.leader) == (Phase.WRITING, ME)


def test_the_epoch_follows_the_one_of_the_predecessor() -> None:
    state = run(ElectionState(), LeaderRead(Leader("http://other:8081", 41)), PartitionAssigned())
    state = run(state, LogRead(1, 5), PredecessorFenced(1))
    assert step(state, LogRead(1, 7), 0.0)[1] == (AnnounceWriter(1, 7, epoch=42),)


def test_a_revocation_stops_the_writer() -> None:
    state, effects = step(WRITING, PartitionRevoked("rebalance"), 0.0)
    assert (state.phase, effects) == (Phase.FOLLOWING, (StopWriting(1, "rebalance"),))


def test_a_revocation_before_the_fence_stops_nothing() -> None:
    reading = run(ElectionState(), PartitionAssigned())
    state, effects = step(reading, PartitionRevoked("rebalance"), 0.0)
    assert (state.phase, effects) == (Phase.FOLLOWING, ())


def test_a_writer_that_is_fenced_stops_and_pauses_before_it_tries_again() -> None:
    state, effects = step(WRITING, StepFailed(1, "fenced", is_fenced=True), 10.0)
    assert effects == (StopWriting(1, "fenced"), WakeAt(10.0 + FENCED_PAUSE_MS))
    state, effects = step(state, TimePassed(), 10.0 + FENCED_PAUSE_MS)
    assert (state.term, effects) == (2, (ReadToEnd(2),))


def test_a_timer_that_is_early_is_set_again() -> None:
    state, _ = step(WRITING, StepFailed(1, "timeout"), 0.0)
    state, effects = step(state, TimePassed(), PAUSE_MS - 1.0)
    assert (state.phase, effects) == (Phase.PAUSING, (WakeAt(PAUSE_MS),))


def test_a_candidate_that_fails_repeatedly_leaves_the_group() -> None:
    state, effects = run(ElectionState(), PartitionAssigned()), ()
    now_ms, pauses = 0.0, []
    for _ in range(FAILURES_MAX):
        state, effects = step(state, StepFailed(state.term, "no broker"), now_ms)
        if state.phase is Phase.PAUSING:
            pauses.append(state.retry_at_ms - now_ms)
            now_ms = state.retry_at_ms
            state, _ = step(state, TimePassed(), now_ms)
    assert effects == (LeaveGroup(),)
    assert pauses == [PAUSE_MS, 2 * PAUSE_MS]
    state, effects = step(state, PartitionRevoked("left"), now_ms)
    assert (state.phase, effects) == (Phase.FOLLOWING, ())


def test_success_forgets_earlier_failures() -> None:
    state = run(ElectionState(), PartitionAssigned(), StepFailed(1, "no broker"))
    state = run(state, TimePassed(), now_ms=PAUSE_MS)
    state = run(state, LogRead(2, 5), PredecessorFenced(2), LogRead(2, 7), Announced(2, ME))
    assert (state.phase, state.failures) == (Phase.WRITING, 0)


@pytest.mark.parametrize(
    "late",
    [
        LogRead(1, 9),
        PredecessorFenced(1),
        Announced(1, ME),
        StepFailed(1, "late", is_fenced=True),
    ],
)
@pytest.mark.parametrize("phase", Phase)
def test_results_of_an_earlier_term_change_nothing(late: Event, phase: Phase) -> None:
    state = ElectionState(phase=phase, term=2)
    assert step(state, late, 0.0) == (state, ())


@pytest.mark.parametrize("phase", [x for x in Phase if x not in (Phase.FOLLOWING, Phase.LEAVING)])
def test_a_repeated_assignment_changes_nothing(phase: Phase) -> None:
    state = ElectionState(phase=phase, term=2)
    assert step(state, PartitionAssigned(), 0.0) == (state, ())


def test_a_writer_keeps_itself_as_the_leader() -> None:
    """The read of the committed offset may have begun before this instance committed it."""
    assert run(WRITING, LeaderRead(Leader("http://old:8081", 0))).leader == ME
    following = run(WRITING, PartitionRevoked("rebalance"), LeaderRead(Leader("http://x", 9)))
    assert following.leader == Leader("http://x", 9)


def test_the_leader_survives_the_metadata_of_an_offset() -> None:
    assert decode_leader(encode_leader(ME)) == ME
    assert decode_leader(encode_leader(ME) + "\0") == ME


@pytest.mark.parametrize(
    "metadata",
    [None, "", "\0", "text", "[]", "{}", '{"url":1,"epoch":1}', '{"url":"u","epoch":true}'],
)
def test_metadata_of_another_program_names_no_leader(metadata: str | None) -> None:
    assert decode_leader(metadata) is None


@dataclass
class Instance:
    """One instance of the model.

    Attributes:
        state: Its election.
        pending: Effects that are in flight.
        applied: The number of records that its state has applied.
        producers: The producer epoch of each term.
        writing: The term in which it accepts writes, or None.
        decided: The term and the applied records of a decision that is not written yet.
    """

    state: ElectionState = field(default_factory=ElectionState)
    pending: list[Effect] = field(default_factory=list)
    applied: int = 0
    producers: dict[int, int] = field(default_factory=dict)
    writing: int | None = None
    decided: tuple[int, int] | None = None


class ElectionModel(RuleBasedStateMachine):
    """Instances whose group may assign the partition to each of them at each time.

    The transaction coordinator counts producer epochs, and accepts a write with the newest epoch
    only. Effects end in any order, or fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.instances = [Instance() for _ in range(INSTANCES)]
        self.log: list[tuple[int, int]] = []
        self.epoch = 0
        self.now_ms = 0.0
        self.acknowledged = 0

    def handle(self, number: int, event: Event) -> None:
        instance = self.instances[number]
        instance.state, effects = step(instance.state, event, self.now_ms)
        for effect in effects:
            match effect:
                case StartWriting():
                    assert instance.writing is None, "two terms write at the same time"
                    instance.writing = effect.term
                case StopWriting():
                    instance.writing = None
                case _:
                    instance.pending.append(effect)

    @rule(number=instances)
    def assign(self, number: int) -> None:
        self.handle(number, PartitionAssigned())

    @rule(number=instances)
    def revoke(self, number: int) -> None:
        self.handle(number, PartitionRevoked("the group has revoked it"))

    @rule(number=instances)
    def read_leader(self, number: int) -> None:
        self.handle(number, LeaderRead(Leader("http://some:8081", self.epoch)))

    @rule(delta_ms=st.sampled_from([1.0, PAUSE_MS, FENCED_PAUSE_MS]))
    def pass_time(self, delta_ms: float) -> None:
        self.now_ms += delta_ms

    @rule(number=instances)
    def apply_log(self, number: int) -> None:
        self.instances[number].applied = len(self.log)

    @rule(number=instances, chosen=st.integers(0, 5))
    def end_effect(self, number: int, chosen: int) -> None:
        if effect := self.taken(number, chosen):
            self.perform(number, effect)

    @rule(number=instances, chosen=st.integers(0, 5), is_fenced=st.booleans())
    def fail_effect(self, number: int, chosen: int, is_fenced: bool) -> None:
        effect = self.taken(number, chosen)
        if isinstance(effect, ReadToEnd | FencePredecessor | AnnounceWriter):
            self.handle(number, StepFailed(effect.term, "it failed", is_fenced))
        elif effect is not None:
            self.perform(number, effect)

    def taken(self, number: int, chosen: int) -> Effect | None:
        pending = self.instances[number].pending
        return pending.pop(chosen % len(pending)) if pending else None

    def perform(self, number: int, effect: Effect) -> None:
        instance = self.instances[number]
        match effect:
            case ReadToEnd():
                instance.applied = len(self.log)
                self.handle(number, LogRead(effect.term, len(self.log)))
            case FencePredecessor():
                self.epoch += 1
                instance.producers[effect.term] = self.epoch
                self.handle(number, PredecessorFenced(effect.term))
            case AnnounceWriter():
                if instance.producers[effect.term] == self.epoch:
                    self.handle(number, Announced(effect.term, ME))
                else:
                    self.handle(number, StepFailed(effect.term, "fenced", is_fenced=True))
            case LeaveGroup():
                self.handle(number, PartitionRevoked("this instance has left the group"))
            case WakeAt():
                self.now_ms = max(self.now_ms, effect.time_ms)
                self.handle(number, TimePassed())

    @rule(number=instances)
    def decide(self, number: int) -> None:
        """A writer decides by its state, which it has applied the log to at least up to then."""
        instance = self.instances[number]
        if instance.writing is not None and instance.decided is None:
            instance.decided = (instance.writing, instance.applied)

    @precondition(lambda self: any(each.decided for each in self.instances))
    @rule(number=instances)
    def write(self, number: int) -> None:
        """The brokers accept the write of the newest producer, also if it has resigned."""
        instance = self.instances[number]
        if instance.decided is None:
            return
        (term, known), instance.decided = instance.decided, None
        if instance.producers[term] != self.epoch:
            self.handle(number, StepFailed(term, "fenced", is_fenced=True))
            return
        assert known == len(self.log), "a decision did not know all records before its own"
        self.log.append((number, term))
        instance.applied = len(self.log)
        self.acknowledged += 1

    @rule(number=instances)
    def lose_response(self, number: int) -> None:
        """A write may be committed, but the writer does not learn it."""
        instance = self.instances[number]
        if instance.decided is None:
            return
        (term, known), instance.decided = instance.decided, None
        if instance.producers[term] == self.epoch:
            assert known == len(self.log)
            self.log.append((number, term))
        self.handle(number, StepFailed(term, "no response"))

    @invariant()
    def a_writer_is_in_its_phase(self) -> None:
        for each in self.instances:
            assert (each.writing is not None) == (each.state.phase is Phase.WRITING)
            assert each.writing in (None, each.state.term)

    @invariant()
    def one_instance_at_most_can_write(self) -> None:
        able = [
            number
            for number, each in enumerate(self.instances)
            if each.writing is not None and each.producers[each.writing] == self.epoch
        ]
        assert len(able) <= 1

    @invariant()
    def acknowledged_records_are_in_the_log(self) -> None:
        assert self.acknowledged <= len(self.log)

    def teardown(self) -> None:
        """When the group has one owner and nothing fails, the owner becomes the writer."""
        for number in range(INSTANCES):
            self.handle(number, PartitionRevoked("the group has revoked it"))
            self.instances[number].pending.clear()
        self.handle(0, PartitionAssigned())
        for _ in range(EFFECTS_MAX):
            if not self.instances[0].pending:
                break
            self.perform(0, self.instances[0].pending.pop(0))
        assert self.instances[0].state.phase is Phase.WRITING


TestElectionModel = ElectionModel.TestCase
TestElectionModel.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


def test_the_model_finds_a_writer_that_does_not_read_after_the_fence() -> None:
    """Without the second read, a decision would miss a record of the predecessor."""
    model = ElectionModel()
    for number in (0, 1):
        model.assign(number)
        model.end_effect(number, 0)  # both have read the log
    while model.instances[0].state.phase is not Phase.WRITING:
        model.end_effect(0, 0)
    model.decide(0)
    model.write(0)
    hasty = model.instances[1]
    model.end_effect(1, 0)  # fences the first
    hasty.pending.clear()
    hasty.state, hasty.writing = replace(hasty.state, phase=Phase.WRITING), hasty.state.term
    model.decide(1)
    with pytest.raises(AssertionError, match="did not know all records"):
        model.write(1)
