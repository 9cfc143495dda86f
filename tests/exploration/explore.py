"""Breadth-first exploration of the model, up to symmetry.

``python -m tests.exploration.explore`` explores everything within the bounds and prints the counts.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby, permutations, product

from odradek.metadata.image import NO_LEADER
from tests.exploration.model import (
    BROKERS,
    CACHE_SIZE,
    IDLE,
    NOT_A_MEMBER,
    Broker,
    Fetch,
    Image,
    Leader,
    Proposal,
    Registrations,
    Rules,
    State,
    View,
    Violation,
    check,
    initial_state,
    steps,
)

Permutation = tuple[int, ...]
REFUSED = Proposal(-1, -1, -1, (-1, -1, -1), expands=False)
"""A proposal of a deposed leader that removes replicas."""


# --- canonical states ---


def canonical(rules: Rules, state: State) -> State:
    """Return the representative of all states that differ only in names.

    The names of brokers are exchanged, and partition epochs and broker epochs are replaced by their
    ranks. Messages and roles that can have no effect any longer are removed.
    """
    state = with_ranks(without_void_messages(rules, without_void_roles(rules, state)))
    orders = broker_orders(state)
    if len(orders) == 1:
        return permuted(state, orders[0])
    return min(permuted(state, order) for order in orders)


def leaders_of_epochs(state: State) -> dict[int, int]:
    """Return the running leader of each epoch that has one."""
    return {
        broker.view.leader_epoch: at
        for at, broker in enumerate(state.brokers)
        if broker.leader and isinstance(broker.view, View)
    }


def without_void_roles(rules: Rules, state: State) -> State:
    """Remove the parts of roles that can have no effect any longer.

    A follower without a leader can only wait for the newest image. So can a deposed leader whose
    high watermark stands still: a record that it appends could have been appended before. The
    controller refuses all proposals of a deposed leader.
    """
    if not rules.epochs_in_fetches or not rules.forgets_positions:
        return state
    leaders = leaders_of_epochs(state)
    brokers = list(state.brokers)
    for at, broker in enumerate(state.brokers):
        view, leader = broker.view, broker.leader
        if not isinstance(view, View) or view == IDLE:
            continue
        if not isinstance(leader, Leader):
            if view.leader_epoch not in leaders:
                brokers[at] = broker._replace(view=IDLE, validated=True)
        elif view.leader_epoch < state.image.leader_epoch:
            if stands_still(state, at, broker):
                brokers[at] = broker._replace(leader=(), view=IDLE)
            elif isinstance(leader.pending, Proposal) and not leader.pending.expands:
                brokers[at] = broker._replace(leader=leader._replace(pending=REFUSED))
    return state._replace(brokers=tuple(brokers))


def stands_still(state: State, at: int, broker: Broker) -> bool:
    """Return whether a member of a leader's maximal ISR sends no fetch to it any longer."""
    leader, view = broker.leader, broker.view
    assert isinstance(leader, Leader)
    assert isinstance(view, View)
    members = set(leader.isr)
    if isinstance(leader.pending, Proposal) and leader.pending.expands:
        members |= {b for b, epoch in enumerate(leader.pending.epochs) if epoch != NOT_A_MEMBER}
    for member in members - {at}:
        other = state.brokers[member]
        fetch = other.old_fetch
        fetches = isinstance(other.view, View) and other.view.leader_epoch == view.leader_epoch
        sent = isinstance(fetch, Fetch) and fetch.leader_epoch == view.leader_epoch
        if not fetches and not sent:
            return True
    return False


def without_void_messages(rules: Rules, state: State) -> State:
    image = state.image
    leaders = leaders_of_epochs(state)
    brokers = list(state.brokers)
    for at, broker in enumerate(state.brokers):
        fetch, proposal = broker.old_fetch, broker.old_proposal
        if isinstance(fetch, Fetch) and is_void(rules, fetch, at, state, leaders):
            broker = broker._replace(old_fetch=())
        if isinstance(proposal, Proposal) and (
            proposal.leader_epoch != image.leader_epoch
            or proposal.partition_epoch != image.partition_epoch
            or proposal.sender_epoch != image.registrations[at][0]
        ):
            broker = broker._replace(old_proposal=())
        brokers[at] = broker
    return state._replace(brokers=tuple(brokers))


def is_void(
    rules: Rules, fetch: Fetch, follower: int, state: State, leaders: dict[int, int]
) -> bool:
    """Return whether a fetch in flight can have no effect any longer.

    No leader accepts it, or the leader knows at least its position already.
    """
    if not rules.epochs_in_fetches or not rules.checks_broker_epochs:
        return False
    at = leaders.get(fetch.leader_epoch)
    if at is None or at == follower:
        return True
    broker = state.brokers[at]
    assert isinstance(broker.leader, Leader)
    assert isinstance(broker.view, View)
    known = broker.view.registrations[follower][0]
    if known != fetch.broker_epoch:
        return known > fetch.broker_epoch
    offset, epoch = broker.leader.positions[follower]
    return epoch == known and offset >= fetch.offset


def with_ranks(state: State) -> State:
    """Replace broker epochs and partition epochs by their ranks. The rules only compare them.

    Broker epochs are compared only with epochs of the same broker.
    """
    image = state.image
    versions = {image.partition_epoch}
    epochs: list[set[int]] = [{epoch, -1, NOT_A_MEMBER} for epoch, _ in image.registrations]
    for at, broker in enumerate(state.brokers):
        if broker.leader or broker.old_fetch or broker.old_proposal:
            used_versions, used_epochs = numbers_of(broker, at)
            versions |= used_versions
            for known, used in zip(epochs, used_epochs, strict=True):
                known |= used
    if all(max(known) == len(known) - 3 for known in epochs) and max(versions) == len(versions) - 1:
        return state
    version = {each: at for at, each in enumerate(sorted(versions))}
    ranks = [{epoch: at - 2 for at, epoch in enumerate(sorted(known))} for known in epochs]
    return State(
        tuple([ranked(broker, at, ranks, version) for at, broker in enumerate(state.brokers)]),
        image._replace(
            partition_epoch=version[image.partition_epoch],
            registrations=ranked_registrations(image.registrations, ranks),
        ),
        state.committed,
    )


@lru_cache(CACHE_SIZE)
def numbers_of(broker: Broker, at: int) -> tuple[set[int], list[set[int]]]:
    """Return the partition epochs in a broker, and the broker epochs of each broker."""
    view, leader, fetch = broker.view, broker.leader, broker.old_fetch
    versions: set[int] = set()
    epochs: list[set[int]] = [set(), set(), set()]
    if isinstance(fetch, Fetch):
        epochs[at].add(fetch.broker_epoch)
    if isinstance(leader, Leader):
        assert isinstance(view, View)
        versions.add(leader.partition_epoch)
        for known, (epoch, _) in zip(epochs, view.registrations, strict=True):
            known.add(epoch)
    for proposal in (broker.old_proposal, leader and leader.pending):
        if isinstance(proposal, Proposal):
            if proposal.partition_epoch >= 0:
                versions.add(proposal.partition_epoch)
            epochs[at].add(proposal.sender_epoch)
            for known, epoch in zip(epochs, proposal.epochs, strict=True):
                known.add(epoch)
    return versions, epochs


def ranked_registrations(
    registrations: Registrations, ranks: list[dict[int, int]]
) -> Registrations:
    return tuple(
        [(rank[epoch], fenced) for rank, (epoch, fenced) in zip(ranks, registrations, strict=False)]
    )


def ranked(broker: Broker, at: int, ranks: list[dict[int, int]], version: dict[int, int]) -> Broker:
    view, leader, fetch = broker.view, broker.leader, broker.old_fetch
    if isinstance(leader, Leader):
        assert isinstance(view, View)
        view = view._replace(registrations=ranked_registrations(view.registrations, ranks))
        leader = Leader(
            tuple(
                [
                    (end, rank[epoch])
                    for rank, (end, epoch) in zip(ranks, leader.positions, strict=True)
                ]
            ),
            leader.isr,
            version[leader.partition_epoch],
            leader.epoch_start,
            leader.high_watermark,
            ranked_proposal(leader.pending, at, ranks, version),
        )
    elif not fetch and not broker.old_proposal:
        return broker
    if isinstance(fetch, Fetch):
        fetch = fetch._replace(broker_epoch=ranks[at][fetch.broker_epoch])
    return Broker(
        broker.log,
        broker.empty_epoch,
        view,
        leader,
        fetch,
        ranked_proposal(broker.old_proposal, at, ranks, version),
        broker.validated,
    )


def ranked_proposal(
    proposal: tuple[()] | Proposal,
    at: int,
    ranks: list[dict[int, int]],
    version: dict[int, int],
) -> tuple[()] | Proposal:
    if not isinstance(proposal, Proposal):
        return ()
    return Proposal(
        ranks[at][proposal.sender_epoch],
        proposal.leader_epoch,
        version.get(proposal.partition_epoch, -1),
        tuple([rank[epoch] for rank, epoch in zip(ranks, proposal.epochs, strict=True)]),
        proposal.expands,
    )


def broker_orders(state: State) -> list[Permutation]:
    """Return the orders of brokers that may be the smallest: sorted, equal ones in each order."""
    image = state.image
    keys = [
        (
            at == image.leader,
            at in image.isr,
            at in image.elr,
            image.registrations[at],
            broker.log,
            broker.empty_epoch,
            broker.view[1:2],
            bool(broker.leader),
            broker.old_fetch,
        )
        for at, broker in enumerate(state.brokers)
    ]
    ordered = sorted(BROKERS, key=keys.__getitem__)
    groups = [tuple(group) for _, group in groupby(ordered, key=keys.__getitem__)]
    if len(groups) == len(ordered):
        return [tuple(ordered)]
    return [
        tuple(chain.from_iterable(each)) for each in product(*(permutations(g) for g in groups))
    ]


def permuted(state: State, order: Permutation) -> State:
    """Return the state in which broker `order[n]` has the name n."""
    if order == BROKERS:
        return state
    name = names(order)
    image = state.image
    return State(
        tuple([renamed(state.brokers[old], order) for old in order]),
        Image(
            name[image.leader],
            image.leader_epoch,
            image.partition_epoch,
            tuple(sorted([name[at] for at in image.isr])),
            tuple(sorted([name[at] for at in image.elr])),
            tuple([image.registrations[old] for old in order]),
        ),
        state.committed,
    )


def names(order: Permutation) -> list[int]:
    """Return the new name of each broker. The last one is the name of no broker."""
    name = [0, 0, 0, NO_LEADER]
    for new, old in enumerate(order):
        name[old] = new
    return name


@lru_cache(CACHE_SIZE)
def renamed(broker: Broker, order: Permutation) -> Broker:
    name = names(order)
    view, leader, proposal = broker.view, broker.leader, broker.old_proposal
    if isinstance(view, View):
        registrations = view.registrations
        if registrations:
            registrations = tuple([registrations[old] for old in order])
        view = View(name[view.leader], view.leader_epoch, registrations)
    if isinstance(leader, Leader):
        pending = leader.pending
        if isinstance(pending, Proposal):
            pending = pending._replace(epochs=tuple([pending.epochs[old] for old in order]))
        leader = leader._replace(
            positions=tuple([leader.positions[old] for old in order]),
            isr=tuple(sorted([name[at] for at in leader.isr])),
            pending=pending,
        )
    if isinstance(proposal, Proposal):
        proposal = proposal._replace(epochs=tuple([proposal.epochs[old] for old in order]))
    return broker._replace(view=view, leader=leader, old_proposal=proposal)


# --- exploration ---


@dataclass
class Exploration:
    """The result of an exploration.

    Attributes:
        states: The number of different states, up to symmetry.
        steps: The number of steps between them.
        states_by_faults: The number of states by the fewest faults that lead to them.
        complete: Whether all states within the bounds were visited.
        trace: The steps to a violation, or None. Broker names change along the trace, because each
            step starts from a canonical state.
    """

    states: int = 0
    steps: int = 0
    states_by_faults: list[int] = field(default_factory=list)
    complete: bool = False
    violation: str | None = None
    trace: list[str] | None = None


class Explorer:
    """Visits the states in the order of faults, and breadth-first among equal numbers of faults."""

    def __init__(self, rules: Rules, faults_max: int, states_max: int | None = None) -> None:
        self.result = Exploration()
        self._rules = rules
        self._faults_max = faults_max
        self._states_max = states_max
        # The number of each state by its 64-bit hash. With two million states, the probability that
        # any two of them have the same hash is about 1e-7.
        self._numbers: dict[int, int] = {}
        # The state from which each one was reached first.
        self._parents = array("q")
        self._start = canonical(rules, initial_state())
        self._level: deque[State] = deque()
        # States that need one more fault, with the number of a state before it, by their hash.
        self._after_fault: dict[int, tuple[State, int]] = {}

    def run(self, report_s: float | None = None) -> Exploration:
        """Visit all states within the bounds, or up to a violation."""
        result = self.result
        self._after_fault = {hash(self._start): (self._start, -1)}
        begun = reported = time.monotonic()
        for faults in range(self._faults_max + 1):
            before = result.states
            found, self._after_fault = self._after_fault, {}
            for key, (state, parent) in found.items():
                self._add(key, state, parent)
            found.clear()
            while self._level:
                state = self._level.popleft()
                number = result.states
                result.states += 1
                self._expand(state, number, last=faults == self._faults_max)
                if result.violation is not None:
                    result.trace = self._trace(number)
                    return result
                if result.states == self._states_max:
                    return result
                if report_s is not None and time.monotonic() - reported > report_s:
                    reported = time.monotonic()
                    left = len(self._level)
                    print(f"{reported - begun:.0f} s: {result}, {left} queued", file=sys.stderr)
            result.states_by_faults.append(result.states - before)
        result.complete = True
        return result

    def _add(self, key: int, state: State, parent: int) -> None:
        """Queue a state of this number of faults, unless it is known."""
        if key not in self._numbers:
            self._numbers[key] = len(self._parents)
            self._parents.append(parent)
            self._level.append(state)

    def _expand(self, state: State, number: int, *, last: bool) -> None:
        """Queue the states after each step. Note a violation in the result."""
        result, rules = self.result, self._rules
        name = "a step"
        try:
            for step in steps(rules, state):
                name, after, fault = step
                if after is None or (fault and (last or fault not in rules.faults)):
                    continue
                result.steps += 1
                if after == state:
                    continue
                check(after)
                after = canonical(rules, after)
                key = hash(after)
                if not fault:
                    self._add(key, after, number)
                elif key not in self._numbers:
                    self._after_fault.setdefault(key, (after, number))
        except Violation as violation:
            result.violation = f"after {name}: {violation}"

    def _trace(self, number: int) -> list[str]:
        """Return the steps from the start to a visited state."""
        numbers = [number]
        while (number := self._parents[number]) >= 0:
            numbers.append(number)
        trace, state = [], self._start
        for wanted in reversed(numbers[:-1]):
            for name, after, _ in steps(self._rules, state):
                if after is None:
                    continue
                after = canonical(self._rules, after)
                if self._numbers.get(hash(after)) == wanted:
                    trace.append(f"{name:40} -> {summary(after)}")
                    state = after
                    break
            else:
                raise AssertionError("a step of the trace is not found again")
        return trace


def summary(state: State) -> str:
    image = state.image
    parts = [f"leader {image.leader} epoch {image.leader_epoch} isr {image.isr} elr {image.elr}"]
    for at, broker in enumerate(state.brokers):
        role = "L" if broker.leader else "F" if broker.view else "-"
        parts.append(f"{at}:{role}{''.join(map(str, broker.log))}")
    return "; ".join(parts) + f"; committed {''.join(map(str, state.committed))}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Explore replication exhaustively.")
    parser.add_argument("--min-isr", type=int, default=2)
    parser.add_argument("--records", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--faults", type=int, default=2)
    arguments = parser.parse_args()
    rules = Rules(arguments.min_isr, arguments.records, arguments.epochs)
    begun = time.process_time()
    result = Explorer(rules, arguments.faults).run(report_s=30)
    print(result)
    print(f"{time.process_time() - begun:.0f} s of CPU")
    for line in result.trace or ():
        print(line)
    return 1 if result.violation else 0


if __name__ == "__main__":
    sys.exit(main())
