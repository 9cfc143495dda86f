"""The leader's view of a partition: positions, ISR, high watermark. Rules R2 to R7 and I1 to I5."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.metadata.image import BrokerRegistration, LeaderRecoveryState, PartitionImage
from odradek.replication.replication_state import (
    NEVER_MS,
    NO_EFFECTS,
    Effects,
    IsrProposal,
    ReplicationState,
)

LEADER, A, B = (BrokerId(each) for each in (0, 1, 2))
ALL = (LEADER, A, B)
LAG_MS = 1_000
EPOCH = 70


class Leader:
    """A leader with two followers, whose broker epochs are 70."""

    def __init__(
        self,
        isr: tuple[BrokerId, ...] = ALL,
        *,
        log_end: int = 0,
        high_watermark: int = 0,
        min_isr: int = 2,
        replicas: tuple[BrokerId, ...] = ALL,
    ) -> None:
        self.brokers = {
            each: BrokerRegistration(each, "", 0, epoch=EPOCH) for each in (*ALL, BrokerId(9))
        }
        self.image = PartitionImage(0, LEADER, 5, 10, replicas, isr)
        self.now_ms = 100_000
        self.state = ReplicationState(
            LEADER,
            self.image,
            min_insync_replicas=min_isr,
            replica_lag_time_max_ms=LAG_MS,
            log_start_offset=0,
            log_end_offset=log_end,
            high_watermark=high_watermark,
            now_ms=self.now_ms,
        )

    def fetch(self, replica: int, offset: int, epoch: int = EPOCH, log_start: int = 0) -> Effects:
        return self.state.follower_fetched(
            BrokerId(replica), epoch, offset, log_start, self.brokers, self.now_ms
        )

    def append(self, end: int, committable: int | None = None) -> Effects:
        if self.state.leader_appended(end, end if committable is None else committable):
            return self.state.maybe_increment_high_watermark(self.brokers, self.now_ms)
        return NO_EFFECTS

    def change_broker(self, broker: BrokerId, **changes: Any) -> None:
        self.brokers[broker] = replace(self.brokers[broker], **changes)

    def commit(self, proposal: IsrProposal, **changes: Any) -> Effects:
        """Answer a proposal as the controller does that accepts it."""
        committed = replace(
            self.image,
            isr=tuple(broker for broker, _ in proposal.isr),
            partition_epoch=proposal.partition_epoch + 1,
        )
        committed = replace(committed, **changes)
        return self.state.alter_partition_succeeded(proposal, committed, self.brokers, self.now_ms)

    def fail(self, proposal: IsrProposal, error: ErrorCode) -> Effects:
        return self.state.alter_partition_failed(proposal, error, self.brokers, self.now_ms)


def expanding(isr: tuple[BrokerId, ...] = (LEADER, A)) -> tuple[Leader, IsrProposal]:
    """Return a leader with records, and its pending proposal to add the third replica."""
    leader = Leader(isr)
    leader.append(3)
    leader.fetch(A, 3)
    proposal = leader.fetch(B, 3).proposal
    assert proposal is not None
    return leader, proposal


def shrinking() -> tuple[Leader, IsrProposal]:
    """Return a leader with records, and its pending proposal to remove the third replica."""
    leader = Leader()
    leader.append(3)
    leader.fetch(A, 3)
    leader.now_ms += LAG_MS + 1
    leader.fetch(A, 3)
    proposal = leader.state.maybe_shrink_isr(leader.now_ms).proposal
    assert proposal is not None
    return leader, proposal


# --- high watermark and acknowledgement ---


@pytest.mark.parametrize(
    ("replicas", "isr", "min_isr", "enough"),
    [
        (ALL, (LEADER,), 2, False),
        (ALL, (LEADER, A), 2, True),
        ((LEADER,), (LEADER,), 2, True),
        ((LEADER, A), (LEADER, A), 3, True),
        ((LEADER, A), (LEADER,), 3, False),
    ],
)
def test_r2_committed_isr_must_reach_the_minimum_but_at_most_the_replica_count(
    replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...], min_isr: int, enough: bool
) -> None:
    leader = Leader(isr, replicas=replicas, min_isr=min_isr)
    assert leader.state.has_enough_replicas is enough


@pytest.mark.parametrize("min_isr", [2, 3, 5])
def test_r2_r5_configured_minimum_is_at_most_the_replica_count(min_isr: int) -> None:
    leader = Leader((LEADER, A), replicas=(LEADER, A), min_isr=1)
    leader.state.configure(min_isr, LAG_MS, leader.brokers, leader.now_ms)
    assert leader.state.has_enough_replicas
    leader.append(1)
    assert leader.fetch(A, 1).high_watermark == 1
    assert leader.state.acknowledgement(1) is ErrorCode.NONE
    newer = replace(leader.image, isr=(LEADER,), partition_epoch=11)
    leader.state.partition_changed(newer, leader.brokers, leader.now_ms)
    assert not leader.state.has_enough_replicas
    assert leader.append(2).high_watermark is None


def test_r2_pending_expansion_does_not_count_for_the_minimum() -> None:
    leader = Leader((LEADER,))
    leader.append(1)
    assert leader.fetch(A, 1).proposal is not None
    assert not leader.state.has_enough_replicas


def test_r3_acks_all_waits_for_the_high_watermark() -> None:
    leader = Leader()
    leader.append(4)
    leader.fetch(A, 4)
    leader.fetch(B, 3)
    assert leader.state.acknowledgement(4) is None
    assert leader.state.acknowledgement(3) is ErrorCode.NONE


def test_r3_isr_below_the_minimum_fails_a_committed_request_after_the_append() -> None:
    leader = Leader((LEADER, A))
    leader.append(4)
    leader.fetch(A, 4)
    newer = replace(leader.image, isr=(LEADER,), partition_epoch=11)
    leader.state.partition_changed(newer, leader.brokers, leader.now_ms)
    assert leader.state.acknowledgement(4) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert leader.state.acknowledgement(5) is None


def test_r3_maximal_isr_counts_for_the_minimum_after_the_append() -> None:
    leader, _ = expanding()
    leader.state.configure(3, LAG_MS, leader.brokers, leader.now_ms)
    assert leader.state.acknowledgement(3) is ErrorCode.NONE


def test_r4_pending_expansion_counts_for_the_high_watermark() -> None:
    leader, _ = expanding()
    leader.append(5)
    assert leader.fetch(A, 5) is NO_EFFECTS
    leader.now_ms += 10 * LAG_MS  # no longer because it has caught up recently
    leader.fetch(A, 5)
    assert leader.state.high_watermark == 3
    assert leader.fetch(B, 5).high_watermark == 5


def test_r4_replica_counts_until_its_removal_is_committed() -> None:
    leader, proposal = shrinking()
    assert proposal.isr == ((LEADER, -1), (A, EPOCH))
    leader.fetch(A, 3)
    assert leader.state.high_watermark == 0
    assert leader.commit(proposal).high_watermark == 3


def test_r4_one_proposal_is_in_flight() -> None:
    leader = Leader((LEADER,))
    leader.append(3)
    assert leader.fetch(A, 3).proposal is not None
    assert leader.fetch(B, 3).proposal is None
    leader.append(9)
    leader.now_ms += 10 * LAG_MS
    assert leader.state.maybe_shrink_isr(leader.now_ms) is NO_EFFECTS


def test_r4_no_member_is_removed_while_an_expansion_is_in_flight() -> None:
    leader, proposal = expanding((LEADER, A))
    leader.append(9)
    leader.now_ms += 10 * LAG_MS
    assert leader.state.maybe_shrink_isr(leader.now_ms) is NO_EFFECTS
    assert leader.state.pending is proposal
    leader.commit(proposal)
    later = leader.state.maybe_shrink_isr(leader.now_ms).proposal
    assert later == IsrProposal(5, 11, ((LEADER, -1),), expands=False)


def test_r5_high_watermark_is_the_lowest_end_of_the_isr() -> None:
    leader = Leader()
    assert leader.append(10) is NO_EFFECTS
    assert leader.fetch(A, 7).high_watermark is None
    assert leader.fetch(B, 4).high_watermark == 4
    assert leader.fetch(B, 9) == Effects(high_watermark=7)
    assert leader.fetch(A, 10) == Effects(high_watermark=9)


def test_r5_high_watermark_stands_still_while_the_isr_is_below_the_minimum() -> None:
    leader = Leader((LEADER,))
    assert leader.append(5) is NO_EFFECTS
    assert leader.state.high_watermark == 0
    proposal = leader.fetch(A, 5).proposal
    assert proposal is not None
    assert leader.state.high_watermark == 0  # not before the expansion is committed
    assert leader.commit(proposal).high_watermark == 5


def test_r5_lowered_minimum_releases_the_high_watermark() -> None:
    leader = Leader((LEADER,))
    leader.append(5)
    effects = leader.state.configure(1, LAG_MS, leader.brokers, leader.now_ms)
    assert effects == Effects(high_watermark=5)


def test_r5_leader_alone_commits_with_the_append() -> None:
    leader = Leader((LEADER,), min_isr=1)
    assert leader.append(5) == Effects(high_watermark=5)


def test_r5_replica_about_to_join_holds_the_high_watermark() -> None:
    leader = Leader((LEADER,), min_isr=1)
    leader.append(5)
    leader.change_broker(A, fenced=True)
    leader.fetch(A, 5)
    assert leader.append(6) == Effects(high_watermark=6)
    leader.change_broker(A, fenced=False)
    assert leader.append(8) is NO_EFFECTS
    leader.now_ms += LAG_MS + 1
    assert leader.append(9) == Effects(high_watermark=9)


@pytest.mark.parametrize(("epoch", "expected"), [(EPOCH, 20), (EPOCH + 1, 30)])
def test_r5_restarted_replica_holds_the_high_watermark_when_it_has_read_what_it_lacks(
    epoch: int, expected: int
) -> None:
    """A replica that fetched a moment ago holds it at once, unless its process is a new one."""
    leader = Leader((LEADER, A))
    leader.append(10)
    leader.fetch(A, 10)
    leader.change_broker(B, fenced=True)
    leader.fetch(B, 10)
    leader.append(20)
    leader.fetch(A, 20)
    leader.change_broker(B, fenced=False, epoch=epoch)
    leader.fetch(B, 10, epoch)
    leader.append(30)
    leader.fetch(A, 30)
    assert leader.state.high_watermark == expected
    leader.fetch(B, 20, epoch)  # the high watermark at its last fetch
    leader.append(40)
    leader.fetch(A, 40)
    assert leader.state.high_watermark == expected, "the replica is about to join"
    assert leader.fetch(B, expected, epoch).proposal is not None or expected == 20


def test_r5_restarted_replica_that_lacks_nothing_holds_the_high_watermark() -> None:
    leader = Leader((LEADER, A))
    leader.append(10)
    leader.fetch(A, 10)
    leader.change_broker(B, epoch=EPOCH + 1)
    assert leader.fetch(B, 10, EPOCH + 1).proposal is not None
    leader.append(20)
    leader.fetch(A, 20)
    assert leader.state.high_watermark == 10


def test_r5_high_watermark_waits_for_the_flush_that_is_due() -> None:
    leader = Leader()
    leader.append(6, committable=2)
    leader.fetch(A, 6)
    assert leader.fetch(B, 6).high_watermark == 2
    flushed = leader.state.leader_flushed(6, leader.brokers, leader.now_ms)
    assert flushed == Effects(high_watermark=6)


def test_r5_position_that_goes_back_does_not_lower_the_high_watermark() -> None:
    leader = Leader((LEADER, A))
    leader.append(5)
    leader.fetch(A, 5)
    effects = leader.fetch(A, 2)
    assert effects.moved_back is not None and effects.moved_back.log_end_offset == 2
    assert effects.high_watermark is None
    assert leader.state.high_watermark == 5


def test_r6_new_leader_keeps_its_high_watermark_and_no_positions() -> None:
    leader = Leader(log_end=7, high_watermark=4)
    state = leader.state
    assert (state.high_watermark, state.epoch_start_offset) == (4, 7)
    assert [each.log_end_offset for each in state.followers] == [-1, -1]
    assert state.maybe_increment_high_watermark(leader.brokers, leader.now_ms) is NO_EFFECTS


def test_r6_members_of_the_isr_count_as_caught_up_when_the_epoch_begins() -> None:
    leader = Leader((LEADER, A), log_end=7)
    assert [each.last_caught_up_ms for each in leader.state.followers] == [100_000, NEVER_MS]
    assert leader.state.maybe_shrink_isr(leader.now_ms + LAG_MS) is NO_EFFECTS
    assert leader.state.maybe_shrink_isr(leader.now_ms + LAG_MS + 1).proposal is not None


def test_r6_latest_offset_is_not_available_below_the_start_of_the_epoch() -> None:
    leader = Leader((LEADER, A), log_end=7, high_watermark=4)
    assert not leader.state.is_high_watermark_of_epoch
    leader.fetch(A, 6)
    assert not leader.state.is_high_watermark_of_epoch
    leader.fetch(A, 7)
    assert leader.state.is_high_watermark_of_epoch


# --- positions of followers ---


def test_i1_follower_is_in_sync_while_it_reached_the_previous_log_end_in_time() -> None:
    leader = Leader()
    start = leader.now_ms
    leader.append(10)
    leader.fetch(A, 0)  # the leader's end is 10
    leader.now_ms += 600
    leader.append(20)
    leader.fetch(A, 10)  # it has what the leader had at its previous fetch
    (follower, _) = leader.state.followers
    assert follower.last_caught_up_ms == start
    leader.now_ms += 600
    leader.append(30)
    leader.fetch(A, 20)
    assert follower.last_caught_up_ms == start + 600
    leader.fetch(A, 21)  # behind the end of the previous fetch
    assert follower.last_caught_up_ms == start + 600
    leader.fetch(A, 30)
    assert follower.last_caught_up_ms == leader.now_ms


def test_i1_follower_at_the_log_end_is_in_sync_for_ever() -> None:
    leader = Leader((LEADER, A))
    leader.append(5)
    leader.fetch(A, 5)
    assert leader.state.maybe_shrink_isr(leader.now_ms + 100 * LAG_MS) is NO_EFFECTS


def test_i1_follower_that_fetches_and_never_catches_up_leaves_the_isr() -> None:
    leader = Leader()
    for end in range(10, 60, 10):
        leader.append(end)
        leader.fetch(A, end // 10)
        leader.fetch(B, end)
        assert leader.state.maybe_shrink_isr(leader.now_ms) is NO_EFFECTS
        leader.now_ms += LAG_MS // 4
    proposal = leader.state.maybe_shrink_isr(leader.now_ms).proposal
    assert proposal == IsrProposal(5, 10, ((LEADER, -1), (B, EPOCH)), expands=False)


def test_i1_all_followers_out_of_sync_are_removed_in_one_proposal() -> None:
    leader = Leader()
    leader.append(5)
    proposal = leader.state.maybe_shrink_isr(leader.now_ms + LAG_MS + 1).proposal
    assert proposal == IsrProposal(5, 10, ((LEADER, -1),), expands=False)


def test_i2_follower_joins_at_the_high_watermark() -> None:
    leader = Leader((LEADER, A))
    leader.append(6)
    leader.fetch(A, 4)
    assert leader.state.high_watermark == 4
    assert leader.fetch(B, 3).proposal is None
    proposal = leader.fetch(B, 4).proposal
    assert proposal == IsrProposal(5, 10, ((LEADER, -1), (A, EPOCH), (B, EPOCH)), expands=True)


def test_i2_follower_does_not_join_below_the_start_of_the_epoch() -> None:
    leader = Leader((LEADER, A), log_end=7, high_watermark=2)
    assert leader.fetch(B, 6).proposal is None
    assert leader.fetch(B, 7).proposal is not None


def test_i2_follower_with_no_record_of_the_leader_joins_after_it_has_removed_its_own() -> None:
    """Its records may be of a deposed leader: the leader has no epoch of the offsets below."""
    leader = Leader((LEADER, A))
    leader.append(1)
    leader.fetch(A, 1)
    leader.state.log_start_changed(1, leader.brokers)
    assert leader.state.high_watermark == 1
    assert leader.fetch(B, 1, log_start=0).proposal is None
    assert leader.fetch(B, 1, log_start=1).proposal is not None


def test_i2_follower_with_a_record_of_the_leader_joins_with_an_earlier_log_start() -> None:
    leader = Leader((LEADER, A))
    leader.append(2)
    leader.fetch(A, 2)
    leader.state.log_start_changed(1, leader.brokers)
    assert leader.fetch(B, 2, log_start=0).proposal is not None


@pytest.mark.parametrize("change", ["fenced", "in_controlled_shutdown"])
def test_i2_fenced_or_stopping_follower_does_not_join(change: str) -> None:
    leader = Leader((LEADER, A))
    leader.change_broker(B, **{change: True})
    assert leader.fetch(B, 0).proposal is None
    leader.change_broker(B, **{change: False})
    assert leader.fetch(B, 0).proposal is not None


def test_i2_former_process_of_a_follower_does_not_hold_the_high_watermark() -> None:
    leader = Leader((LEADER,), min_isr=1)
    proposal = leader.fetch(A, 0).proposal
    assert proposal is not None
    leader.fail(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert leader.append(3) is NO_EFFECTS  # it is about to join
    leader.change_broker(A, epoch=EPOCH + 1)
    assert leader.append(4).high_watermark == 4


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1, -1, 1 << 62])
def test_i3_fetch_with_another_broker_epoch_changes_nothing(epoch: int) -> None:
    """CVE-2018-1288: a request in the name of a replica must not move its position."""
    leader = Leader((LEADER, A))
    leader.append(5)
    with pytest.raises(KafkaError) as caught:
        leader.fetch(A, 5, epoch=epoch)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [each.log_end_offset for each in leader.state.followers] == [-1, -1]
    assert leader.state.high_watermark == 0


def test_i3_fetch_of_a_replica_that_is_not_registered_changes_nothing() -> None:
    leader = Leader()
    del leader.brokers[A]
    with pytest.raises(KafkaError) as caught:
        leader.fetch(A, 0)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_f1_fetch_of_a_replica_that_is_not_assigned_is_refused() -> None:
    leader = Leader()
    with pytest.raises(KafkaError) as caught:
        leader.fetch(9, 0)
    assert caught.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_fetch_above_the_log_end_changes_nothing() -> None:
    leader = Leader((LEADER, A))
    leader.append(5)
    with pytest.raises(KafkaError) as caught:
        leader.fetch(A, 6)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert leader.state.high_watermark == 0


def test_old_process_of_a_follower_is_fenced_by_its_broker_epoch() -> None:
    """Fencing matrix: an old incarnation of a broker."""
    leader = Leader((LEADER, A))
    leader.append(5)
    leader.fetch(A, 5)
    assert leader.fetch(B, 4).proposal is None
    leader.change_broker(B, epoch=EPOCH + 1)
    with pytest.raises(KafkaError):
        leader.fetch(B, 5, epoch=EPOCH)
    assert leader.state.pending is None
    assert leader.fetch(B, 5, epoch=EPOCH + 1).proposal is not None


# --- low watermark ---


def test_low_watermark_is_the_lowest_log_start_of_replicas_that_are_alive() -> None:
    leader = Leader()
    leader.append(10)
    assert leader.state.log_start_changed(8, leader.brokers) == Effects(low_watermark=-1)
    leader.fetch(A, 5, log_start=3)
    assert leader.fetch(B, 0, log_start=0).low_watermark == 0
    assert leader.fetch(B, 0, log_start=6).low_watermark == 3
    leader.change_broker(A, fenced=True)
    assert leader.state.low_watermark(leader.brokers) == 6
    assert leader.fetch(B, 0, log_start=8).low_watermark == 8


def test_r8_fetch_with_an_unchanged_log_start_has_no_low_watermark() -> None:
    leader = Leader()
    leader.append(10)
    assert leader.fetch(A, 5, log_start=2).low_watermark == -1
    assert leader.fetch(A, 6, log_start=2) is NO_EFFECTS


def test_latest_fetch_of_the_isr_is_known() -> None:
    leader = Leader((LEADER, A))
    assert leader.state.last_fetch_of_isr_ms == NEVER_MS
    leader.fetch(A, 0)
    leader.now_ms += 5
    leader.change_broker(B, fenced=True)
    leader.fetch(B, 0)
    assert leader.state.last_fetch_of_isr_ms == leader.now_ms - 5


# --- responses of the controller ---


def test_i5_success_commits_the_isr_and_the_partition_epoch() -> None:
    leader, proposal = expanding()
    leader.commit(proposal)
    assert leader.state.isr == ALL
    assert (leader.state.partition_epoch, leader.state.pending) == (11, None)


def test_i5_equal_partition_epoch_commits_a_proposal_without_a_change() -> None:
    leader, proposal = expanding()
    leader.commit(proposal, partition_epoch=10)
    assert (leader.state.partition_epoch, leader.state.pending) == (10, None)


@pytest.mark.parametrize("change", [{"leader_epoch": 6}, {"partition_epoch": 9}])
def test_i5_success_of_another_epoch_is_ignored(change: dict[str, int]) -> None:
    leader, proposal = expanding()
    assert leader.commit(proposal, **change) is NO_EFFECTS
    assert leader.state.pending is proposal


def test_i5_response_to_an_earlier_proposal_is_ignored() -> None:
    leader, proposal = expanding()
    newer = replace(leader.image, partition_epoch=11)
    leader.state.partition_changed(newer, leader.brokers, leader.now_ms)
    assert leader.state.pending is None
    assert leader.commit(proposal) is NO_EFFECTS
    assert leader.fail(proposal, ErrorCode.REQUEST_TIMED_OUT) is NO_EFFECTS
    assert (leader.state.isr, leader.state.partition_epoch) == ((LEADER, A), 11)


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_i5_refused_replica_reverts_to_the_committed_isr(error: ErrorCode) -> None:
    leader, proposal = expanding()
    leader.append(5)
    leader.now_ms += LAG_MS + 1
    leader.fetch(A, 5)
    assert leader.state.high_watermark == 3
    assert leader.fail(proposal, error).high_watermark == 5
    assert leader.state.maximal_isr == (LEADER, A)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_i5_proposal_of_an_old_view_stays_pending_until_new_metadata(error: ErrorCode) -> None:
    leader, proposal = expanding()
    assert leader.fail(proposal, error) is NO_EFFECTS
    assert leader.state.pending is proposal
    assert leader.state.maximal_isr == ALL


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_i5_any_other_error_sends_the_same_proposal_again(error: ErrorCode) -> None:
    leader, proposal = expanding()
    assert leader.fail(proposal, error) == Effects(proposal=proposal)
    assert leader.state.pending is proposal


def test_newer_image_replaces_the_isr_and_an_older_one_is_ignored() -> None:
    leader, proposal = shrinking()
    state = leader.state
    assert state.partition_changed(leader.image, leader.brokers, leader.now_ms) is NO_EFFECTS
    assert state.pending is proposal
    newer = replace(leader.image, partition_epoch=11, isr=(LEADER, A))
    assert state.partition_changed(newer, leader.brokers, leader.now_ms).high_watermark == 3
    assert (state.isr, state.pending) == ((LEADER, A), None)


def test_added_replica_is_followed_and_a_removed_one_refused() -> None:
    leader = Leader()
    new = BrokerId(9)
    newer = replace(leader.image, partition_epoch=11, replicas=(LEADER, A, new), isr=(LEADER, A))
    leader.fetch(A, 0)
    leader.state.partition_changed(newer, leader.brokers, leader.now_ms)
    assert [each.broker_epoch for each in leader.state.followers] == [EPOCH, -1]
    assert leader.fetch(new, 0).proposal is not None
    with pytest.raises(KafkaError):
        leader.fetch(B, 0)


def test_e3_proposal_of_a_recovering_leader_says_that_it_has_recovered() -> None:
    leader = Leader((LEADER,), min_isr=1)
    leader.state.leader_recovery_state = LeaderRecoveryState.RECOVERING
    proposal = leader.fetch(A, 0).proposal
    assert proposal is not None
    assert proposal.leader_recovery_state is LeaderRecoveryState.RECOVERED


# --- properties ---


@given(
    events=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 3)),
            st.tuples(st.sampled_from(["A", "B"]), st.integers(0, 30)),
            st.tuples(st.just("shrink"), st.just(0)),
            st.tuples(st.just("accept"), st.just(0)),
            st.tuples(st.just("refuse"), st.just(0)),
            st.tuples(st.just("wait"), st.integers(1, 2 * LAG_MS)),
        ),
        max_size=60,
    ),
    min_isr=st.integers(1, 3),
)
def test_high_watermark_is_below_the_end_of_every_member(
    events: list[tuple[str, int]], min_isr: int
) -> None:
    """A reference computes the lowest end of the maximal ISR from the whole history."""
    leader = Leader(min_isr=min_isr)
    state = leader.state
    high_watermark = 0
    for event, value in events:
        before_size = len(state.isr)
        pending = state.pending
        if event == "append":
            leader.append(state.log_end_offset + value)
        elif event in "AB":
            leader.fetch({"A": A, "B": B}[event], min(value, state.log_end_offset))
        elif event == "shrink":
            state.maybe_shrink_isr(leader.now_ms)
        elif event == "wait":
            leader.now_ms += value
        elif pending is not None and event == "accept":
            leader.commit(pending)
        elif pending is not None:
            leader.fail(pending, ErrorCode.INELIGIBLE_REPLICA)
        assert state.high_watermark >= high_watermark
        if state.high_watermark > high_watermark:
            members = [each for each in state.followers if each.broker_id in state.maximal_isr]
            ends = [state.log_end_offset, *(each.log_end_offset for each in members)]
            assert state.high_watermark <= min(ends)
            assert max(len(state.isr), before_size) >= min_isr
        high_watermark = state.high_watermark
        assert set(state.isr) <= set(state.maximal_isr) <= set(ALL)
        assert LEADER in state.isr


def test_i1_session_of_a_follower_shows_nothing_before_its_first_visit() -> None:
    """The position of the follower in this leader epoch is not known then."""
    leader = Leader((LEADER, A), log_end=5)
    (follower,) = [each for each in leader.state.followers if each.broker_id == B]
    leader.state.follower_was_idle(B, leader.now_ms)
    before = follower.last_caught_up_ms
    leader.now_ms += 10
    leader.append(6)
    leader.fetch(B, 5)
    assert follower.last_caught_up_ms == before


def test_i1_follower_with_all_records_is_caught_up_at_each_fetch_of_its_session() -> None:
    leader = Leader((LEADER, A), log_end=5)
    (follower,) = [each for each in leader.state.followers if each.broker_id == A]
    leader.fetch(A, 5)
    leader.now_ms += LAG_MS
    leader.state.follower_was_idle(A, leader.now_ms)
    assert follower.last_caught_up_ms == follower.last_fetch_ms == leader.now_ms
    leader.state.follower_was_idle(A, leader.now_ms - 1)
    assert follower.last_fetch_ms == leader.now_ms


def test_i1_newer_image_gives_a_lagging_follower_no_further_time() -> None:
    leader = Leader()
    leader.append(5)
    leader.now_ms += LAG_MS
    leader.state.partition_changed(
        replace(leader.image, partition_epoch=11), leader.brokers, leader.now_ms
    )
    assert leader.state.maybe_shrink_isr(leader.now_ms + 1).proposal is not None


def test_i1_new_replica_outside_of_the_isr_is_not_caught_up() -> None:
    leader = Leader((LEADER, A), min_isr=1)
    leader.append(5)
    image = replace(leader.image, replicas=(*ALL, BrokerId(9)), partition_epoch=11)
    leader.state.partition_changed(image, leader.brokers, leader.now_ms)
    assert leader.fetch(A, 5).high_watermark == 5
