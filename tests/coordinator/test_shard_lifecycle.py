"""The lifecycle of a shard: random events, compared with the history of the partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.shard_lifecycle import (
    NO_ACTIONS,
    REFUSALS,
    RELOAD_MS,
    RELOAD_MS_MAX,
    Actions,
    Phase,
    ShardLifecycle,
)
from odradek.errors import ErrorCode


def serving(epoch: int = 3) -> ShardLifecycle:
    lifecycle = ShardLifecycle()
    lifecycle.elected(epoch)
    lifecycle.loaded(lifecycle.load, 10)
    assert lifecycle.high_watermark_moved(lifecycle.load, 10).serve
    return lifecycle


def test_shard_is_loaded_at_the_election_and_served_when_its_records_are_committed() -> None:
    lifecycle = ShardLifecycle()
    assert lifecycle.elected(3) == Actions(load=1)
    assert lifecycle.loaded(1, 10) == Actions(await_offset=10)
    assert lifecycle.high_watermark_moved(1, 9) == NO_ACTIONS
    assert lifecycle.phase is Phase.AWAITING_COMMIT
    assert lifecycle.high_watermark_moved(1, 10) == Actions(serve=True)
    assert (lifecycle.phase, lifecycle.leader_epoch) == (Phase.SERVING, 3)


def test_shard_is_dropped_at_the_loss_and_loaded_again_when_the_leadership_returns() -> None:
    lifecycle = serving()
    assert lifecycle.deposed() == Actions(drop=True)
    assert lifecycle.deposed() == NO_ACTIONS
    assert lifecycle.elected(3) == Actions(load=2)


def test_new_epoch_of_the_same_leader_loads_the_shard_again() -> None:
    lifecycle = serving()
    assert lifecycle.elected(4) == Actions(drop=True, load=2)


def test_repeated_report_of_an_epoch_has_no_effect() -> None:
    lifecycle = serving()
    assert lifecycle.elected(3) == NO_ACTIONS
    assert lifecycle.elected(2) == NO_ACTIONS
    assert lifecycle.phase is Phase.SERVING


@pytest.mark.parametrize("is_damaged", [True, False])
def test_failed_load_ends_with_the_leader_epoch(is_damaged: bool) -> None:
    lifecycle = ShardLifecycle()
    lifecycle.elected(3)
    assert lifecycle.load_failed(1, is_damaged=is_damaged).drop
    assert lifecycle.elected(4) == Actions(drop=True, load=2)
    lifecycle.load_failed(2, is_damaged=is_damaged)
    lifecycle.deposed()
    assert lifecycle.elected(4) == Actions(load=3)


def test_damaged_log_is_not_read_again_in_its_epoch() -> None:
    lifecycle = ShardLifecycle()
    lifecycle.elected(3)
    assert lifecycle.load_failed(1, is_damaged=True) == Actions(drop=True)
    assert lifecycle.reload_due(1) == lifecycle.elected(3) == NO_ACTIONS
    assert REFUSALS[lifecycle.phase] is ErrorCode.NOT_COORDINATOR


def test_unreadable_log_is_loaded_again_after_pauses_that_double() -> None:
    lifecycle = ShardLifecycle()
    lifecycle.elected(3)
    pauses = []
    for _ in range(40):
        pauses.append(lifecycle.load_failed(lifecycle.load, is_damaged=False).reload_ms)
        assert REFUSALS[lifecycle.phase] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert lifecycle.reload_due(lifecycle.load).load == lifecycle.load
    assert pauses[:3] == [RELOAD_MS, 2 * RELOAD_MS, 4 * RELOAD_MS]
    assert pauses[-1] == max(pauses) == RELOAD_MS_MAX


numbers = st.integers(0, 6)
events = st.lists(
    st.one_of(
        st.tuples(st.just("elected"), numbers),
        st.tuples(st.just("deposed"), st.just(0)),
        # A number says how many loads ago the load of the event began.
        st.tuples(st.just("loaded"), st.integers(0, 2)),
        st.tuples(st.just("high watermark"), st.integers(0, 2)),
        st.tuples(st.just("unreadable"), st.integers(0, 2)),
        st.tuples(st.just("damaged"), st.integers(0, 2)),
        st.tuples(st.just("reload"), st.integers(0, 2)),
    ),
    max_size=40,
)


class Model:
    """The shell: at most one shard, of the newest load."""

    def __init__(self) -> None:
        self.lifecycle = ShardLifecycle()
        self.led: int | None = None
        self.loads: list[int] = []
        self.exists = False
        self.is_served = False
        self.high_watermark = 0
        self.ends: dict[int, int] = {}
        self.paused: set[int] = set()

    def perform(self, actions: Actions) -> None:
        if actions.drop:
            self.exists = self.is_served = False
        if actions.load:
            assert not self.exists, "a load begins without another shard"
            assert self.led is not None
            assert actions.load > max(self.loads, default=0)
            self.loads.append(actions.load)
            self.exists = True
        if actions.await_offset is not None:
            assert actions.await_offset == self.ends[self.loads[-1]]
        if actions.serve:
            assert self.exists, "the shard of the newest load"
            assert not self.is_served
            self.is_served = True
        if actions.reload_ms:
            self.paused.add(self.loads[-1])

    def run(self, event: str, number: int) -> None:
        lifecycle = self.lifecycle
        load = self.loads[-1 - number] if number < len(self.loads) else 0
        if event == "elected":
            self.led = number if self.led is None else max(self.led, number)
            self.perform(lifecycle.elected(number))
        elif event == "deposed":
            self.led = None
            self.perform(lifecycle.deposed())
        elif event == "loaded":
            self.ends.setdefault(load, self.high_watermark + number)
            self.perform(lifecycle.loaded(load, self.ends[load]))
        elif event == "high watermark":
            self.high_watermark += 1
            self.perform(lifecycle.high_watermark_moved(load, self.high_watermark))
        elif event == "reload":
            if load in self.paused:
                self.paused.discard(load)
                self.perform(lifecycle.reload_due(load))
        else:
            self.perform(lifecycle.load_failed(load, is_damaged=event == "damaged"))

    def check(self) -> None:
        lifecycle = self.lifecycle
        assert (lifecycle.phase is Phase.NOT_LED) == (self.led is None)
        assert lifecycle.leader_epoch == (-1 if self.led is None else self.led)
        assert self.is_served == (lifecycle.phase is Phase.SERVING)
        assert (lifecycle.phase in REFUSALS) == (not self.is_served)
        if self.is_served:
            assert self.high_watermark >= self.ends[self.loads[-1]], "committed before it serves"
        if lifecycle.phase is Phase.UNREADABLE:
            assert self.loads[-1] in self.paused, "it is loaded again without a request"


@given(events)
def test_shard_serves_only_in_its_leader_epoch_and_after_the_commit_of_its_load(
    history: list[tuple[str, int]],
) -> None:
    model = Model()
    for event, number in history:
        model.run(event, number)
        model.check()


@given(events, numbers)
def test_each_history_ends_with_a_served_shard_when_the_broker_is_elected(
    history: list[tuple[str, int]], epoch: int
) -> None:
    """No failure of an earlier leader epoch remains."""
    model = Model()
    for event, number in history:
        model.run(event, number)
    model.run("deposed", 0)
    model.run("elected", epoch)
    model.run("loaded", 0)
    while not model.is_served:
        model.run("high watermark", 0)
    model.check()
