"""A model of one partition with three replicas, for the exhaustive exploration.

The leader is the real `ReplicationState`, elections and AlterPartition are the controller's real
functions, and followers use the real truncation and the real `LeaderEpochFileCache`. The model adds
logs, the metadata feed, messages and faults. Each record is its leader epoch: a leader appends at
most one record at an offset in an epoch.

Messages can be delayed, lost and duplicated:

* A fetch and its response are one step, and the response may be lost. A follower accepts a response
  only in an unchanged state (rule F11), so a later arrival has the effect of an earlier one.
* When a follower's epoch changes or its process ends, its last fetch stays in flight (`old_fetch`).
  It may reach the leader of its epoch at any later time, any number of times.
* A pending proposal may reach the controller at any time, any number of times. After its leader has
  reverted it, stopped or lost the leadership, it stays in flight (`old_proposal`).
* The response to a proposal may be lost. A late success has the effect of the image.
* A broker applies the newest image of the metadata at any time, or never. It may miss images
  between two, as after a gap in the feed.

Brokers can stop, and a session may expire while its broker runs. The broker then continues with its
old image. How a process ended is decided when it starts again: it has lost nothing and can prove
it, or it has kept any number of records and has no proof.

Some simplifications make the model smaller. Each one permits more than the real system, or leaves
out only behaviour that cannot violate an invariant:

* A new leader begins with high watermark 0. A larger one only restricts its decisions.
* A follower outside of the ISR never counts as caught up by time.
* A broker gets the newest image when it registers, and is unfenced in the same step.
* A running broker that is elected leads at once. Its other steps until then are also possible
  before the election.
* A partition whose ISR and ELR are empty is not followed further. Only an unclean election helps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import NamedTuple

from odradek.controller.alter_partition import AlterPartition, alter_partition, check_sender
from odradek.controller.election import (
    ElectionPolicy,
    broker_registered,
    elect_preferred,
    without_brokers,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.log.state.leader_epochs import LeaderEpochFileCache
from odradek.metadata.image import NO_LEADER, BrokerRegistration, PartitionImage
from odradek.replication.follower_decisions import truncation_for
from odradek.replication.replication_state import NEVER_MS, IsrProposal, ReplicationState
from tests.helpers.elections import broker_unfenced

BROKERS = (0, 1, 2)
LAG_MS = 10
# A log end at the previous fetch that no fetch offset reaches: only the current fetch counts.
UNREACHED = 1 << 40
NOT_A_MEMBER = -2
CACHE_SIZE = 20_000
FAULTS = ("stop", "fence", "lag", "move")
"""The kinds of faults: a process ends, a running broker is fenced, a follower exceeds the lag time,
the leadership moves to another member of the ISR.
"""

Registrations = tuple[tuple[int, bool], ...]
Positions = tuple[tuple[int, int], ...]
NO_POSITIONS: Positions = ((-1, -1),) * 3


class Image(NamedTuple):
    """The newest metadata: the partition, and (broker epoch, fenced) of each broker."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    registrations: Registrations


class View(NamedTuple):
    """The image that a broker has applied. Only a leader uses the registrations."""

    leader: int
    leader_epoch: int
    registrations: Registrations


IDLE = View(NO_LEADER, -1, ())
"""The view of a broker that neither leads nor has a leader to fetch from."""


class Proposal(NamedTuple):
    """An AlterPartition request. `epochs` has the epoch of each member, or NOT_A_MEMBER."""

    sender_epoch: int
    leader_epoch: int
    partition_epoch: int
    epochs: tuple[int, ...]
    expands: bool


class Fetch(NamedTuple):
    """A fetch of a follower."""

    leader_epoch: int
    offset: int
    last_epoch: int
    broker_epoch: int


class Leader(NamedTuple):
    """The state of a leader. `positions` has (log end, broker epoch) of each broker."""

    positions: Positions
    isr: tuple[int, ...]
    partition_epoch: int
    epoch_start: int
    high_watermark: int
    pending: tuple[()] | Proposal


class Broker(NamedTuple):
    """One broker.

    Attributes:
        log: The epoch of each record.
        empty_epoch: An epoch at the end of the epoch cache that has no records yet, else -1.
        view: Empty while the broker is stopped.
        validated: Whether a follower has truncated in its epoch. Only planted bugs use it.
    """

    log: tuple[int, ...]
    empty_epoch: int
    view: tuple[()] | View
    leader: tuple[()] | Leader
    old_fetch: tuple[()] | Fetch
    old_proposal: tuple[()] | Proposal
    validated: bool


class State(NamedTuple):
    """All of the model. `committed` has the records below the true high watermark."""

    brokers: tuple[Broker, ...]
    image: Image
    committed: tuple[int, ...]


class Step(NamedTuple):
    """A step and the state after it, or None if that is outside of the bounds.

    Attributes:
        fault: The kind of fault, or "". The number of faults is bounded.
    """

    name: str
    state: State | None
    fault: str = ""


class Violation(Exception):
    """An invariant does not hold."""


class Rules:
    """The rules that the model follows, and its bounds. Subclasses plant bugs."""

    replication_state: type[ReplicationState] = ReplicationState
    epochs_in_fetches = True
    truncates_to_high_watermark = False
    truncates_in_one_step = False
    keeps_unclean_replica_in_elr = False
    leader_requires_min_isr = True
    checks_broker_epochs = True
    refusal_raises_partition_epoch = True
    forgets_positions = True

    def __init__(
        self,
        min_isr: int = 2,
        records: int = 3,
        epochs: int = 3,
        faults: Collection[str] = FAULTS,
    ) -> None:
        self.faults = faults
        self.min_isr = min_isr
        self.records = records
        self.epochs = epochs
        self.policy = ElectionPolicy(min_insync_replicas=min_isr, last_known_leader=False)

    @property
    def truncates_before_fetching(self) -> bool:
        """Whether followers truncate once in each epoch instead of with each fetch."""
        return self.truncates_in_one_step or not self.epochs_in_fetches


# --- conversions ---


@lru_cache(CACHE_SIZE)
def registrations_of(registrations: Registrations) -> dict[BrokerId, BrokerRegistration]:
    return {
        BrokerId(broker): BrokerRegistration(BrokerId(broker), "", 0, epoch=epoch, fenced=fenced)
        for broker, (epoch, fenced) in enumerate(registrations)
    }


@lru_cache(CACHE_SIZE)
def partition_of(image: Image, first: int = 0) -> PartitionImage:
    """Return the partition of an image. `first` is the first replica of the assignment."""
    order = (first, *(each for each in BROKERS if each != first))
    return PartitionImage(
        partition=0,
        leader=BrokerId(image.leader),
        leader_epoch=image.leader_epoch,
        partition_epoch=image.partition_epoch,
        replicas=tuple(map(BrokerId, order)),
        isr=tuple(map(BrokerId, image.isr)),
        elr=tuple(map(BrokerId, image.elr)),
    )


def image_of(partition: PartitionImage, registrations: Registrations) -> Image:
    return Image(
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(sorted(partition.isr)),
        tuple(sorted(partition.elr)),
        registrations,
    )


@lru_cache(CACHE_SIZE)
def epochs_of(log: tuple[int, ...], empty_epoch: int) -> LeaderEpochFileCache:
    """Return the epoch cache of a log. It is shared and not changed."""
    cache = LeaderEpochFileCache()
    for offset, epoch in enumerate(log):
        cache.assign(epoch, offset)
    if empty_epoch >= 0:
        cache.assign(empty_epoch, len(log))
    return cache


def truncated(broker: Broker, offset: int) -> Broker:
    """Return the broker with its log cut. The cache drops epochs that start at the new end."""
    if offset > len(broker.log):
        raise Violation("a truncation to an offset above the log end")
    return broker._replace(log=broker.log[:offset], empty_epoch=-1)


def initial_state() -> State:
    """Return the state after the creation of the partition. Each broker knows it."""
    registrations = ((0, False),) * 3
    follower = Broker((), -1, View(0, 0, ()), (), (), (), True)
    leader = follower._replace(
        empty_epoch=0,
        view=View(0, 0, registrations),
        leader=Leader(NO_POSITIONS, BROKERS, 0, 0, 0, ()),
    )
    return State((leader, follower, follower), Image(0, 0, 0, BROKERS, (), registrations), ())


def with_broker(state: State, at: int, broker: Broker) -> State:
    brokers = list(state.brokers)
    brokers[at] = broker
    return State(tuple(brokers), state.image, state.committed)


# --- the leader ---


def machine_of(rules: Rules, at: int, broker: Broker, lagging: int = -1) -> ReplicationState:
    """Return the real state machine of a leader. `lagging` has exceeded the lag time."""
    known, view = broker.leader, broker.view
    assert isinstance(known, Leader)
    assert isinstance(view, View)
    image = Image(at, view.leader_epoch, known.partition_epoch, known.isr, (), ())
    machine = rules.replication_state(
        BrokerId(at),
        partition_of(image),
        min_insync_replicas=rules.min_isr if rules.leader_requires_min_isr else 0,
        replica_lag_time_max_ms=LAG_MS,
        log_start_offset=0,
        log_end_offset=len(broker.log),
        high_watermark=known.high_watermark,
        now_ms=0,
    )
    machine.epoch_start_offset = known.epoch_start
    for follower in machine.followers:
        follower.log_end_offset, follower.broker_epoch = known.positions[follower.broker_id]
        follower.log_start_offset = 0
        follower.last_fetch_leader_end_offset = UNREACHED
        late = follower.broker_id == lagging or not follower.in_isr
        follower.last_caught_up_ms = NEVER_MS if late else 0
    if isinstance(known.pending, Proposal):
        machine.pending = to_isr_proposal(known.pending)
        machine._update_members()
    return machine


def brokers_of(broker: Broker) -> dict[BrokerId, BrokerRegistration]:
    """Return the registrations that a leader knows."""
    assert isinstance(broker.view, View)
    return registrations_of(broker.view.registrations)


def after_event(broker: Broker, machine: ReplicationState, sender_epoch: int) -> Broker:
    """Return the leader after an event of its state machine.

    A position of an earlier process of a follower has no broker epoch, because it equals none that
    the leader accepts from then on.
    """
    known = brokers_of(broker)
    positions = [(-1, -1)] * 3
    for follower in machine.followers:
        current = follower.broker_epoch == known[follower.broker_id].epoch
        positions[follower.broker_id] = (
            follower.log_end_offset,
            follower.broker_epoch if current else -1,
        )
    old, pending = broker.leader, machine.pending
    if isinstance(old, Leader) and machine.high_watermark < old.high_watermark:
        raise Violation("the high watermark of a leader decreased")
    return broker._replace(
        leader=Leader(
            tuple(positions),
            tuple(sorted(machine.isr)),
            machine.partition_epoch,
            machine.epoch_start_offset,
            machine.high_watermark,
            from_isr_proposal(pending, sender_epoch) if pending else (),
        ),
    )


def own_epoch(at: int, broker: Broker) -> int:
    """Return the broker epoch of a leader, which its own image has."""
    assert isinstance(broker.view, View)
    return broker.view.registrations[at][0]


def to_isr_proposal(proposal: Proposal) -> IsrProposal:
    members = enumerate(proposal.epochs)
    return IsrProposal(
        proposal.leader_epoch,
        proposal.partition_epoch,
        tuple((BrokerId(broker), epoch) for broker, epoch in members if epoch != NOT_A_MEMBER),
        proposal.expands,
    )


def from_isr_proposal(proposal: IsrProposal, sender_epoch: int) -> Proposal:
    members = dict(proposal.isr)
    return Proposal(
        sender_epoch,
        proposal.leader_epoch,
        proposal.partition_epoch,
        tuple(members.get(BrokerId(broker), NOT_A_MEMBER) for broker in BROKERS),
        proposal.expands,
    )


def with_leader(state: State, at: int, broker: Broker) -> State:
    """Return the state with a leader after an event. Commit what its high watermark covers."""
    assert isinstance(broker.leader, Leader)
    prefix, committed = broker.log[: broker.leader.high_watermark], state.committed
    shared = min(len(prefix), len(committed))
    if prefix[:shared] != committed[:shared]:
        raise Violation(f"leader {at} commits {prefix}, but {committed} is committed")
    if len(prefix) > len(committed):
        state = state._replace(committed=prefix)
    return with_broker(state, at, broker)


# The events of a leader depend on its own state alone. They are remembered, because the same leader
# occurs in many states.


@lru_cache(CACHE_SIZE)
def leads(rules: Rules, at: int, broker: Broker, image: Image, positions: Positions) -> Broker:
    """Return the broker as the leader of a new epoch."""
    broker = broker._replace(
        empty_epoch=image.leader_epoch,
        view=View(at, image.leader_epoch, image.registrations),
        validated=True,
        leader=Leader(positions, image.isr, image.partition_epoch, len(broker.log), 0, ()),
    )
    machine = machine_of(rules, at, broker)
    machine.maybe_increment_high_watermark(brokers_of(broker), 0)
    return after_event(broker, machine, own_epoch(at, broker))


@lru_cache(CACHE_SIZE)
def leader_applies(rules: Rules, at: int, broker: Broker, image: Image) -> Broker:
    """Return the leader after an image of the same leader epoch."""
    broker = broker._replace(view=View(at, image.leader_epoch, image.registrations))
    machine = machine_of(rules, at, broker)
    machine.partition_changed(partition_of(image), brokers_of(broker), 0)
    return after_event(broker, machine, own_epoch(at, broker))


@lru_cache(CACHE_SIZE)
def appends(rules: Rules, at: int, broker: Broker) -> Broker:
    machine = machine_of(rules, at, broker)
    log = (*broker.log, machine.leader_epoch)
    if machine.leader_appended(len(log), len(log)):
        machine.maybe_increment_high_watermark(brokers_of(broker), 0)
    after = after_event(broker, machine, own_epoch(at, broker))
    return after._replace(log=log, empty_epoch=-1)


@lru_cache(CACHE_SIZE)
def shrinks(rules: Rules, at: int, broker: Broker, lagging: int) -> Broker | None:
    """Return the leader after a check of its ISR in which one follower has exceeded the lag."""
    machine = machine_of(rules, at, broker, lagging)
    if machine.maybe_shrink_isr(0).proposal is None:
        return None
    return after_event(broker, machine, own_epoch(at, broker))


@lru_cache(CACHE_SIZE)
def handles_fetch(
    rules: Rules, at: int, broker: Broker, follower: int, fetch: Fetch
) -> Broker | tuple[int, int] | None:
    """Return the leader after a fetch, or the diverging epoch, or None for an error."""
    view = broker.view
    assert isinstance(view, View)
    if rules.epochs_in_fetches and fetch.leader_epoch != view.leader_epoch:
        return None
    if fetch.last_epoch >= 0 and not rules.truncates_before_fetching:
        cache = epochs_of(broker.log, broker.empty_epoch)
        epoch, end = cache.end_offset_for(fetch.last_epoch, len(broker.log))
        if epoch < 0:
            return None
        if epoch < fetch.last_epoch or end < fetch.offset:
            return epoch, end
    machine = machine_of(rules, at, broker)
    known = brokers_of(broker)
    epoch = fetch.broker_epoch
    if not rules.checks_broker_epochs:
        epoch = known[BrokerId(follower)].epoch
    try:
        machine.follower_fetched(BrokerId(follower), epoch, fetch.offset, 0, known, 0)
    except KafkaError:
        return None
    return after_event(broker, machine, own_epoch(at, broker))


@lru_cache(CACHE_SIZE)
def handles_reply(
    rules: Rules, at: int, broker: Broker, proposal: Proposal, error: ErrorCode, image: Image
) -> Broker:
    """Return the leader after the response to a proposal."""
    machine = machine_of(rules, at, broker)
    known, sent = brokers_of(broker), to_isr_proposal(proposal)
    if error:
        machine.alter_partition_failed(sent, error, known, 0)
    else:
        machine.alter_partition_succeeded(sent, partition_of(image), known, 0)
    after = after_event(broker, machine, own_epoch(at, broker))
    if machine.pending is None and error:
        after = after._replace(old_proposal=proposal)
    return after


# --- events of brokers ---


def apply_image(rules: Rules, state: State, at: int) -> Iterator[State]:
    """Yield the outcomes when a running broker applies the newest image."""
    broker, image = state.brokers[at], state.image
    if image.leader == at:
        yield with_leader(state, at, leader_applies(rules, at, broker, image))
        return
    broker = left(broker, state.image.registrations[at][0])._replace(
        view=View(image.leader, image.leader_epoch, ()),
        validated=not rules.truncates_before_fetching,
    )
    if not rules.truncates_to_high_watermark:
        yield with_broker(state, at, broker)
        return
    # Its high watermark is any offset up to the true one.
    for offset in range(min(len(broker.log), len(state.committed)) + 1):
        yield with_broker(state, at, truncated(broker, offset))


def left(broker: Broker, epoch: int) -> Broker:
    """Return the broker without its role. Its last messages stay in flight.

    Args:
        epoch: The broker epoch of its process.
    """
    view = broker.view
    if isinstance(broker.leader, Leader):
        if isinstance(broker.leader.pending, Proposal):
            broker = broker._replace(old_proposal=broker.leader.pending)
        return broker._replace(leader=())
    if isinstance(view, View) and view.leader != NO_LEADER and broker.validated:
        fetch = Fetch(view.leader_epoch, len(broker.log), last_epoch(broker), epoch)
        broker = broker._replace(old_fetch=fetch)
    return broker


def last_epoch(broker: Broker) -> int:
    return epochs_of(broker.log, broker.empty_epoch).latest


def fetches(rules: Rules, state: State, at: int) -> Iterator[Step]:
    """Yield the outcomes of a follower's next fetch."""
    follower = state.brokers[at]
    view = follower.view
    assert isinstance(view, View)
    leader = view.leader
    if leader in (NO_LEADER, at) or not isinstance(state.brokers[leader].leader, Leader):
        return
    source = state.brokers[leader]
    if not follower.validated:
        follower = truncates_first(rules, follower, source)
        yield Step(f"{at} truncates first", with_broker(state, at, follower))
        return
    epoch = state.image.registrations[at][0]
    fetch = Fetch(view.leader_epoch, len(follower.log), last_epoch(follower), epoch)
    handled = handles_fetch(rules, leader, source, at, fetch)
    if handled is None:
        return
    if not isinstance(handled, Broker):
        own = epochs_of(follower.log, follower.empty_epoch)
        cut = truncation_for(own, len(follower.log), *handled)
        yield Step(f"{at} truncates", with_broker(state, at, truncated(follower, cut.offset)))
        return
    after = with_leader(state, leader, handled)
    yield Step(f"{at} fetches, response lost", after)
    records = source.log[len(follower.log) :]
    for count in {len(records), 1} if records else ():
        log = follower.log + records[:count]
        received = follower._replace(log=log, empty_epoch=-1)
        yield Step(f"{at} fetches {count}", with_broker(after, at, received))


def truncates_first(rules: Rules, follower: Broker, source: Broker) -> Broker:
    """Truncate as before KIP-320: ask for the end of the last epoch, and do not ask again later."""
    cache = epochs_of(source.log, source.empty_epoch)
    while (epoch := last_epoch(follower)) >= 0:
        found, end = cache.end_offset_for(epoch, len(source.log))
        if rules.truncates_in_one_step:
            # Before KIP-279 the response had no epoch.
            follower = truncated(follower, min(max(end, 0), len(follower.log)))
            break
        if found < 0 or (found == epoch and end >= len(follower.log)):
            break
        own = epochs_of(follower.log, follower.empty_epoch)
        follower = truncated(follower, truncation_for(own, len(follower.log), found, end).offset)
    return follower._replace(validated=True)


def stop(state: State, at: int) -> State:
    """End a process."""
    broker = left(state.brokers[at], state.image.registrations[at][0])
    return with_broker(state, at, broker._replace(view=(), validated=True))


# --- events of the controller ---


def with_partition(
    rules: Rules, state: State, partition: PartitionImage, registrations: Registrations
) -> State | None:
    """Return the state with a new image. None is outside of the bounds of the exploration."""
    before = state.image
    if (
        partition.leader_epoch < before.leader_epoch
        or partition.partition_epoch < before.partition_epoch
    ):
        raise Violation("an epoch decreased")
    if partition.leader_epoch >= rules.epochs or not (partition.isr or partition.elr):
        return None
    state = state._replace(image=image_of(partition, registrations))
    leader = partition.leader
    if leader == before.leader or leader == NO_LEADER or not state.brokers[leader].view:
        return state
    positions = NO_POSITIONS
    elected = state.brokers[leader]
    if isinstance(elected.leader, Leader) and not rules.forgets_positions:
        positions = elected.leader.positions
    broker = left(elected, before.registrations[leader][0])
    return with_leader(state, leader, leads(rules, leader, broker, state.image, positions))


def fence(rules: Rules, state: State, broker: int, first: int) -> State | None:
    """Fence a broker, because its session has expired or it does not poll the feed.

    `first` is the replica that the election prefers.
    """
    registrations = list(state.image.registrations)
    registrations[broker] = (registrations[broker][0], True)
    partition = partition_of(state.image, first)
    changed = without_brokers(
        partition, (BrokerId(broker),), lambda each: not registrations[each][1], rules.policy
    )
    return with_partition(rules, state, changed or partition, tuple(registrations))


def register(rules: Rules, state: State, at: int, first: int) -> Iterator[Step]:
    """Register a broker. It gets the newest image before it is unfenced.

    A running broker, whose session has expired, has lost nothing. A stopped one starts.
    """
    broker = state.brokers[at]
    end = len(broker.log)
    yield from registered(rules, state, at, first, clean=True, kept=end)
    if not broker.view:
        for kept in range(end + 1):
            yield from registered(rules, state, at, first, clean=False, kept=kept)


def registered(
    rules: Rules, state: State, at: int, first: int, *, clean: bool, kept: int
) -> Iterator[Step]:
    image, broker = state.image, left(state.brokers[at], state.image.registrations[at][0])
    broker = broker._replace(view=IDLE)
    if not clean:
        broker = broker._replace(log=broker.log[:kept], empty_epoch=-1)
    registrations = list(image.registrations)
    registrations[at] = (registrations[at][0] + 1, False)
    partition = partition_of(image, first)

    def acceptable(each: BrokerId) -> bool:
        return not registrations[each][1]

    proven = clean or rules.keeps_unclean_replica_in_elr
    partition = (
        broker_registered(partition, BrokerId(at), acceptable, rules.policy, clean=proven)
        or partition
    )
    partition = broker_unfenced(partition, acceptable, rules.policy) or partition
    after = with_partition(rules, with_broker(state, at, broker), partition, tuple(registrations))
    if after is None:
        return
    name = f"{at} registers {'cleanly' if clean else f'with {kept} records'}, {first} first"
    if after.image.leader == at:
        yield Step(name, after)
        return
    for applied in apply_image(rules, after, at):
        yield Step(name, applied)


def unfence(rules: Rules, state: State, at: int) -> Iterator[Step]:
    """Unfence a running broker that was not heard for a while, and has the newest image again."""
    registrations = list(state.image.registrations)
    registrations[at] = (registrations[at][0], False)
    partition = partition_of(state.image, at)
    changed = broker_unfenced(partition, lambda each: not registrations[each][1], rules.policy)
    after = with_partition(rules, state, changed or partition, tuple(registrations))
    if after is None:
        return
    if after.image.leader == at:
        yield Step(f"{at} is unfenced", after)
        return
    for applied in apply_image(rules, after, at):
        yield Step(f"{at} is unfenced", applied)


def move_leadership(rules: Rules, state: State, to: int) -> State | None:
    """Elect the preferred leader."""
    registrations = state.image.registrations
    partition = partition_of(state.image, to)
    try:
        changed = elect_preferred(partition, lambda each: not registrations[each][1], rules.policy)
    except KafkaError:
        return None
    return with_partition(rules, state, changed, registrations)


def alter(rules: Rules, state: State, sender: int, proposal: Proposal) -> Iterator[Step]:
    """Let a proposal reach the controller. Yield the outcomes without and with a response."""
    image = state.image
    brokers = registrations_of(image.registrations)
    if check_sender(brokers, BrokerId(sender), proposal.sender_epoch):
        return
    request = AlterPartition(
        BrokerId(sender),
        proposal.sender_epoch,
        proposal.leader_epoch,
        proposal.partition_epoch,
        alter_members(rules, proposal, image),
    )
    result = alter_partition(
        partition_of(image, max(image.leader, 0)),
        request,
        brokers,
        lambda each: not image.registrations[each][1],
        rules.policy,
    )
    after: State | None = state
    ineligible = result.error is ErrorCode.INELIGIBLE_REPLICA
    if result.changed and (rules.refusal_raises_partition_epoch or not ineligible):
        assert result.partition is not None
        after = with_partition(rules, state, result.partition, image.registrations)
    if after is None:
        return
    if after is not state:
        yield Step(f"proposal of {sender} arrives, no response", after)
    leader = after.brokers[sender]
    if isinstance(leader.leader, Leader) and leader.leader.pending == proposal:
        replied = handles_reply(rules, sender, leader, proposal, result.error, after.image)
        name = f"proposal of {sender} arrives, response {result.error.name}"
        yield Step(name, with_leader(after, sender, replied))


def alter_members(
    rules: Rules, proposal: Proposal, image: Image
) -> tuple[tuple[BrokerId, int], ...]:
    members = to_isr_proposal(proposal).isr
    if rules.checks_broker_epochs:
        return members
    return tuple((broker, image.registrations[broker][0]) for broker, _ in members)


# --- all steps ---


def steps(rules: Rules, state: State) -> Iterator[Step]:
    """Yield each possible step."""
    for at, broker in enumerate(state.brokers):
        if isinstance(broker.view, View):
            yield from running_steps(rules, state, at, broker, broker.view)
        yield from message_steps(rules, state, at, broker)
    yield from controller_steps(rules, state)


def running_steps(
    rules: Rules, state: State, at: int, broker: Broker, view: View
) -> Iterator[Step]:
    if is_behind(broker, view, state.image):
        for after in apply_image(rules, state, at):
            yield Step(f"{at} applies image", after)
    if isinstance(broker.leader, Leader):
        if len(broker.log) < rules.records:
            yield Step(f"{at} appends", with_leader(state, at, appends(rules, at, broker)))
        for follower in broker.leader.isr:
            shrunk = None if follower == at else shrinks(rules, at, broker, follower)
            if shrunk is not None:
                name = f"{at} shrinks by {follower}"
                yield Step(name, with_leader(state, at, shrunk), fault="lag")
    else:
        yield from fetches(rules, state, at)
    yield Step(f"{at} stops", stop(state, at), fault="stop")


def is_behind(broker: Broker, view: View, image: Image) -> bool:
    """Return whether the newest image has news for a running broker."""
    if view.leader_epoch != image.leader_epoch:
        return True
    known = broker.leader
    return isinstance(known, Leader) and (
        known.partition_epoch != image.partition_epoch or view.registrations != image.registrations
    )


def message_steps(rules: Rules, state: State, at: int, broker: Broker) -> Iterator[Step]:
    """Yield the arrivals of messages that broker `at` has sent."""
    if isinstance(broker.old_fetch, Fetch):
        for leader, other in enumerate(state.brokers):
            if leader != at and isinstance(other.leader, Leader):
                handled = handles_fetch(rules, leader, other, at, broker.old_fetch)
                if isinstance(handled, Broker):
                    yield Step(f"old fetch of {at} arrives", with_leader(state, leader, handled))
    if isinstance(broker.leader, Leader) and isinstance(broker.leader.pending, Proposal):
        yield from alter(rules, state, at, broker.leader.pending)
    if isinstance(broker.old_proposal, Proposal):
        yield from alter(rules, state, at, broker.old_proposal)


def controller_steps(rules: Rules, state: State) -> Iterator[Step]:
    image = state.image
    for at, broker in enumerate(state.brokers):
        running = bool(broker.view)
        fenced = image.registrations[at][1]
        # The order of the replicas decides only if the leadership moves.
        if at != image.leader:
            firsts: tuple[int, ...] = (at,)
        else:
            firsts = (*image.elr, at) if image.isr == (at,) else image.isr
        for first in firsts:
            if not fenced:
                name = f"{at} is fenced, {first} first"
                yield Step(name, fence(rules, state, at, first), fault="fence" if running else "")
            if fenced or not running:
                yield from register(rules, state, at, first)
        if fenced and running:
            yield from unfence(rules, state, at)
        if at != image.leader and not fenced:
            name = f"leadership moves to {at}"
            yield Step(name, move_leadership(rules, state, at), fault="move")


# --- invariants ---


def check(state: State) -> None:
    """Raise Violation if an invariant does not hold."""
    image, committed = state.image, state.committed
    size = len(committed)
    epochs: set[int] = set()
    for at, broker in enumerate(state.brokers):
        if not isinstance(broker.view, View):
            continue
        if (at in image.isr or at in image.elr) and broker.log[:size] != committed:
            raise Violation(f"member {at} of ISR or ELR has {broker.log}, committed: {committed}")
        if not isinstance(broker.leader, Leader):
            continue
        epoch = broker.view.leader_epoch
        if epoch in epochs:
            raise Violation(f"two leaders in epoch {epoch}")
        epochs.add(epoch)
        if epoch == image.leader_epoch:
            check_current_leader(at, broker, broker.leader, state)


def check_current_leader(at: int, broker: Broker, leader: Leader, state: State) -> None:
    image, committed = state.image, state.committed
    if image.leader != at:
        raise Violation(f"{at} leads in the epoch of {image.leader}")
    if broker.log[: len(committed)] != committed:
        raise Violation(f"the leader {at} has {broker.log}, committed: {committed}")
    maximal = set(leader.isr)
    if isinstance(leader.pending, Proposal) and leader.pending.expands:
        epochs = leader.pending.epochs
        maximal |= {at for at, epoch in enumerate(epochs) if epoch != NOT_A_MEMBER}
    if not maximal >= set(image.isr):
        raise Violation(f"the maximal ISR {sorted(maximal)} lacks members of {image.isr}")
