"""Elections, ISR and ELR. Rules E1 to E5."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.election import (
    Acceptable,
    Election,
    ElectionPolicy,
    broker_registered,
    changed_partition,
    elect_preferred,
    elect_unclean,
    may_shut_down,
    min_isr_changed,
    stopped_cleanly,
    without_brokers,
    without_lost_log,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionImage,
)
from tests.helpers.elections import broker_unfenced

RECOVERED, RECOVERING = LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING
MIN_ISR_1 = ElectionPolicy(min_insync_replicas=1)
MIN_ISR_2 = ElectionPolicy(min_insync_replicas=2)
UNCLEAN = ElectionPolicy(min_insync_replicas=2, unclean=True)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def partition(
    leader: int = 1,
    isr: Collection[int] = (1, 2, 3),
    elr: Collection[int] = (),
    last_known: Collection[int] = (),
) -> PartitionImage:
    return PartitionImage(
        0,
        BrokerId(leader),
        7,
        20,
        ids(1, 2, 3),
        ids(*isr),
        elr=ids(*elr),
        last_known_elr=ids(*last_known),
    )


def alive(*brokers: int) -> Acceptable:
    return lambda broker: broker in brokers


def stopped(
    before: PartitionImage, *brokers: int, policy: ElectionPolicy = MIN_ISR_2
) -> PartitionImage:
    """Return the partition after brokers were fenced. The others are alive."""
    left = [each for each in (1, 2, 3) if each not in brokers]
    changed = without_brokers(before, ids(*brokers), alive(*left), policy)
    assert changed is not None
    return changed


def state(image: PartitionImage) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return image.leader, image.isr, image.elr


# --- E1: clean elections ---


def test_e1_leader_that_stops_is_replaced_in_the_order_of_the_assignment() -> None:
    changed = stopped(partition(leader=1, isr=(3, 2, 1)), 1)
    assert state(changed) == (2, ids(3, 2), ())
    assert (changed.leader_epoch, changed.partition_epoch) == (8, 21)


def test_e1_replica_outside_of_the_isr_is_not_elected() -> None:
    changed = stopped(partition(leader=1, isr=(1, 3)), 1)
    assert changed.leader == 3


def test_e1_follower_that_stops_raises_no_leader_epoch() -> None:
    changed = stopped(partition(), 3)
    assert state(changed) == (1, ids(1, 2), ())
    assert (changed.leader_epoch, changed.partition_epoch) == (7, 21)


def test_e1_broker_outside_of_the_isr_changes_nothing() -> None:
    before = partition(isr=(1, 2))
    assert without_brokers(before, ids(3), alive(1, 2), MIN_ISR_2) is None


def test_e1_leader_that_may_stay_stays() -> None:
    changed = stopped(partition(leader=3), 1)
    assert changed.leader == 3
    assert changed.leader_epoch == 7


def test_e1_partition_without_an_electable_replica_has_no_leader() -> None:
    changed = stopped(partition(leader=1, isr=(1,)), 1, policy=MIN_ISR_1)
    assert state(changed) == (NO_LEADER, (), ids(1))
    assert changed.leader_epoch == 8


def test_e1_broker_without_the_newest_metadata_is_not_elected() -> None:
    """A broker that has not caught up with the feed is fenced, so it is not acceptable."""
    changed = without_brokers(partition(), ids(1), alive(3), MIN_ISR_2)
    assert changed is not None
    assert changed.leader == 3


def test_e1_leaderless_partition_gets_the_broker_that_is_unfenced() -> None:
    before = partition(leader=-1, isr=(), elr=(2,))
    changed = broker_unfenced(before, alive(2, 3), MIN_ISR_2)
    assert changed is not None
    assert state(changed) == (2, ids(2), ())
    assert broker_unfenced(before, alive(3), MIN_ISR_2) is None
    assert broker_unfenced(partition(), alive(1, 2, 3), MIN_ISR_2) is None


# --- E2: preferred leader ---


def test_e2_first_replica_becomes_the_leader_again() -> None:
    changed = elect_preferred(partition(leader=2), alive(1, 2, 3), MIN_ISR_2)
    assert state(changed) == (1, ids(1, 2, 3), ())
    assert changed.leader_epoch == 8


def test_e2_election_that_is_not_needed_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        elect_preferred(partition(leader=1), alive(1, 2, 3), MIN_ISR_2)
    assert caught.value.code is ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.parametrize(
    ("before", "acceptable"),
    [(partition(leader=2, isr=(2, 3)), alive(1, 2, 3)), (partition(leader=2), alive(2, 3))],
)
def test_e2_first_replica_that_may_not_lead_is_refused(
    before: PartitionImage, acceptable: Acceptable
) -> None:
    with pytest.raises(KafkaError) as caught:
        elect_preferred(before, acceptable, MIN_ISR_2)
    assert caught.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_e2_without_the_preferred_replica_the_leader_stays() -> None:
    before = partition(leader=2, isr=(2, 3))
    election = Election.PREFERRED
    assert changed_partition(before, alive(1, 2, 3), MIN_ISR_2, election=election) is None


# --- E3: unclean elections ---


def test_e3_unclean_election_needs_the_config() -> None:
    before = partition(leader=-1, isr=(), elr=(1,))
    assert changed_partition(before, alive(3), MIN_ISR_2) is None
    changed = changed_partition(before, alive(3), UNCLEAN)
    assert changed is not None
    assert state(changed) == (3, ids(3), ())
    assert changed.leader_recovery_state is RECOVERING
    assert changed.leader_epoch == 8


def test_e3_clean_replica_comes_first_in_an_unclean_election() -> None:
    before = partition(leader=-1, isr=(), elr=(3,))
    changed = changed_partition(before, alive(2, 3), UNCLEAN)
    assert changed is not None
    assert changed.leader == 3
    assert changed.leader_recovery_state is RECOVERED


def test_e3_requested_unclean_election_is_for_partitions_without_a_leader() -> None:
    with pytest.raises(KafkaError) as caught:
        elect_unclean(partition(), alive(1, 2, 3), MIN_ISR_2)
    assert caught.value.code is ErrorCode.ELECTION_NOT_NEEDED
    before = partition(leader=-1, isr=(), elr=(1,))
    with pytest.raises(KafkaError) as caught:
        elect_unclean(before, alive(), MIN_ISR_2)
    assert caught.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elect_unclean(before, alive(2), MIN_ISR_2).leader == 2


def test_e3_leader_clears_the_recovery_state_with_its_isr() -> None:
    before = replace(partition(leader=3, isr=(3,)), leader_recovery_state=RECOVERING)
    changed = changed_partition(
        before, alive(1, 2, 3), MIN_ISR_2, isr=ids(2, 3), leader_recovery_state=RECOVERED
    )
    assert changed is not None
    assert changed.leader_recovery_state is RECOVERED
    assert changed.leader_epoch == 7


# --- E4: eligible leader replicas ---


def test_e4_member_that_leaves_an_isr_below_the_minimum_goes_to_the_elr() -> None:
    first = stopped(partition(), 3)
    assert state(first) == (1, ids(1, 2), ())
    second = stopped(first, 2, 3)
    assert state(second) == (1, ids(1), ids(2))
    third = stopped(second, 1, 2, 3)
    assert state(third) == (NO_LEADER, (), ids(1, 2))


@pytest.mark.parametrize("minimum", [3, 5])
def test_e4_member_goes_to_the_elr_if_the_minimum_is_all_replicas(minimum: int) -> None:
    policy = ElectionPolicy(min_insync_replicas=minimum)
    assert state(stopped(partition(), 3, policy=policy)) == (1, ids(1, 2), ids(3))


def test_e4_isr_of_the_minimum_clears_the_elr() -> None:
    before = partition(isr=(1,), elr=(2, 3))
    changed = changed_partition(before, alive(1, 2, 3), MIN_ISR_2, isr=ids(1, 2))
    assert changed is not None
    assert state(changed) == (1, ids(1, 2), ())


def test_e4_elr_is_used_only_when_the_isr_is_empty() -> None:
    before = partition(leader=1, isr=(1, 3), elr=(2,))
    policy = ElectionPolicy(min_insync_replicas=3)
    assert stopped(before, 1, policy=policy).leader == 3


def test_e4_leader_from_the_elr_is_the_new_isr() -> None:
    before = partition(leader=-1, isr=(), elr=(2, 3))
    changed = broker_unfenced(before, alive(3), MIN_ISR_2)
    assert changed is not None
    assert state(changed) == (3, ids(3), ids(2))
    assert changed.leader_recovery_state is RECOVERED


def test_e4_leader_from_the_elr_that_is_enough_clears_the_elr() -> None:
    """It commits records alone, which the others do not have."""
    before = partition(leader=-1, isr=(), elr=(2, 3))
    after = broker_unfenced(before, alive(2), ElectionPolicy(min_insync_replicas=1))
    assert after is not None
    assert state(after) == (2, ids(2), ())


def test_e4_unclean_restart_leaves_the_isr_and_the_elr() -> None:
    before = partition(leader=-1, isr=(), elr=(1, 2))
    changed = broker_registered(before, BrokerId(2), alive(2), MIN_ISR_2, clean=False)
    assert changed is not None
    assert state(changed) == (NO_LEADER, (), ids(1))
    before = partition(leader=1, isr=(1, 2))
    changed = broker_registered(before, BrokerId(2), alive(1, 2), MIN_ISR_2, clean=False)
    assert changed is not None
    assert state(changed) == (1, ids(1), ())


def test_e4_clean_restart_stays_in_the_elr() -> None:
    before = partition(leader=-1, isr=(), elr=(1, 2))
    assert broker_registered(before, BrokerId(2), alive(2), MIN_ISR_2, clean=True) is None
    before = partition(leader=1, isr=(1, 2))
    changed = broker_registered(before, BrokerId(2), alive(1, 2), MIN_ISR_2, clean=True)
    assert changed is not None
    assert state(changed) == (1, ids(1), ids(2))


@pytest.mark.parametrize("clean", [True, False])
def test_e4_new_process_of_a_leader_loses_the_leadership_in_a_new_epoch(clean: bool) -> None:
    """Its session may not have expired: the restart was faster."""
    changed = broker_registered(partition(), BrokerId(1), alive(1, 2, 3), MIN_ISR_2, clean=clean)
    assert changed is not None
    assert state(changed) == (2, ids(2, 3), ())
    only = partition(leader=1, isr=(1,))
    changed = broker_registered(only, BrokerId(1), alive(1, 2, 3), MIN_ISR_1, clean=clean)
    assert changed is not None
    assert state(changed) == (NO_LEADER, (), ids(1) if clean else ())
    assert changed.leader_epoch == 8


def test_e4_last_known_leader_is_elected_when_isr_and_elr_are_empty() -> None:
    leaderless = stopped(partition(leader=2, isr=(2,)), 1, 2, policy=MIN_ISR_1)
    assert leaderless.last_known_elr == ids(2)
    lost = broker_registered(leaderless, BrokerId(2), alive(1, 2, 3), MIN_ISR_1, clean=False)
    assert lost is not None
    assert (state(lost), lost.last_known_elr) == ((NO_LEADER, (), ()), ids(2))
    assert broker_unfenced(lost, alive(1, 3), MIN_ISR_1) is None
    recovered = broker_unfenced(lost, alive(1, 2, 3), MIN_ISR_1)
    assert recovered is not None
    assert (state(recovered), recovered.last_known_elr) == ((2, ids(2), ()), ())
    assert recovered.leader_recovery_state is RECOVERING
    assert recovered.leader_epoch == lost.leader_epoch + 1


def test_e4_last_known_leader_is_not_elected_if_the_policy_forbids_it() -> None:
    before = partition(leader=-1, isr=(), last_known=(2,))
    policy = ElectionPolicy(last_known_leader=False)
    assert broker_unfenced(before, alive(2), policy) is None


def test_e4_lowered_minimum_clears_the_elr() -> None:
    before = partition(isr=(1,), elr=(2,))
    changed = min_isr_changed(before, alive(1, 2, 3), MIN_ISR_1)
    assert changed is not None
    assert state(changed) == (1, ids(1), ())
    assert min_isr_changed(before, alive(1, 2, 3), MIN_ISR_2) is None


DIRECTORIES = (Uuid(b"a" * 16), Uuid(b"b" * 16))
BEFORE = BrokerRegistration(BrokerId(1), "", 0, epoch=33, boot_id="boot", directories=DIRECTORIES)


@pytest.mark.parametrize(
    ("epoch_in_file", "boot_id", "directories", "clean"),
    [
        (33, "other", DIRECTORIES, True),  # stopped cleanly, then booted
        (-1, "boot", DIRECTORIES, True),  # SIGKILL: the page cache survived
        (32, "boot", DIRECTORIES, True),
        (-1, "other", DIRECTORIES, False),  # power cut
        (32, "other", DIRECTORIES, False),  # the file is from an earlier registration
        (-1, "", DIRECTORIES, False),
        (33, "boot", DIRECTORIES[:1], False),  # a directory is missing
        (33, "boot", (*DIRECTORIES, Uuid(b"c" * 16)), True),
    ],
)
def test_e4_proof_of_a_clean_stop(
    epoch_in_file: int, boot_id: str, directories: tuple[Uuid, ...], clean: bool
) -> None:
    assert stopped_cleanly(BEFORE, epoch_in_file, boot_id, directories) is clean


def test_e4_proof_needs_known_ids() -> None:
    unknown = replace(BEFORE, epoch=-1, boot_id="")
    assert not stopped_cleanly(unknown, -1, "", DIRECTORIES)
    assert stopped_cleanly(None, -1, "", DIRECTORIES)
    without_ids = replace(BEFORE, boot_id="boot", directories=())
    assert not stopped_cleanly(without_ids, -1, "boot", ())
    assert stopped_cleanly(without_ids, without_ids.epoch, "boot", ())


def test_e4_three_simultaneous_sigkills_need_no_operator() -> None:
    image = partition()
    for broker in (1, 2, 3):
        changed = without_brokers(image, ids(broker), alive(), MIN_ISR_2)
        image = changed or image
    assert image.leader == NO_LEADER
    for broker in (3, 1, 2):
        image = broker_registered(image, BrokerId(broker), alive(), MIN_ISR_2, clean=True) or image
    elected = broker_unfenced(image, alive(1, 2, 3), MIN_ISR_2)
    assert elected is not None
    assert elected.leader in image.elr
    assert elected.leader_recovery_state is RECOVERED


# --- E5: controlled shutdown ---


def test_e5_leadership_moves_before_the_broker_stops() -> None:
    changed = stopped(partition(), 1)
    assert state(changed) == (2, ids(2, 3), ())


def test_e5_broker_may_stop_when_it_leads_nothing_and_the_others_know() -> None:
    broker = BrokerId(1)
    offsets = {broker: 0, BrokerId(2): 50, BrokerId(3): 49}
    assert not may_shut_down(broker, 0, 50, offsets)
    offsets[BrokerId(3)] = 50
    assert may_shut_down(broker, 0, 50, offsets)
    assert not may_shut_down(broker, 1, 50, offsets)


# --- properties ---

brokers = st.sampled_from(ids(1, 2, 3))
events = st.lists(st.tuples(st.sampled_from(["fence", "dirty", "clean", "shrink"]), brokers))


@given(events=events, min_isr=st.integers(1, 3))
def test_any_sequence_keeps_the_sets_of_a_partition_consistent(
    events: list[tuple[str, BrokerId]], min_isr: int
) -> None:
    policy = ElectionPolicy(min_insync_replicas=min_isr)
    image = partition()
    fenced: set[BrokerId] = set()
    for event, broker in events:
        before = image
        if event == "fence":
            fenced.add(broker)
            changed = without_brokers(image, (broker,), lambda b: b not in fenced, policy)
        elif event == "shrink":
            if broker == image.leader or broker not in image.isr:
                continue
            isr = tuple(each for each in image.isr if each != broker)
            changed = changed_partition(image, lambda b: b not in fenced, policy, isr=isr)
        else:
            fenced.add(broker)
            clean = event == "clean"
            registered = broker_registered(
                image, broker, lambda b: b not in fenced, policy, clean=clean
            )
            image = registered or image
            if not clean:
                assert broker not in (*image.isr, *image.elr)
            fenced.discard(broker)
            changed = broker_unfenced(image, lambda b: b not in fenced, policy)
        image = changed or image
        assert not set(image.isr) & set(image.elr)
        assert not set(image.isr) & fenced
        assert image.leader == NO_LEADER or image.leader in image.isr
        assert not image.elr or len(image.isr) < min_isr
        assert image.leader_epoch - before.leader_epoch in (0, 1, 2)
        assert (image.leader != before.leader) <= (image.leader_epoch > before.leader_epoch)
        assert (image != before) == (image.partition_epoch > before.partition_epoch)


# --- combinations that few histories reach ---


def test_e2_other_leader_is_not_elected_when_the_preferred_one_is_not_available() -> None:
    """The present leader may not lead either. Another election replaces it."""
    with pytest.raises(KafkaError) as raised:
        elect_preferred(partition(leader=2, isr=(2, 3)), alive(3), MIN_ISR_2)
    assert raised.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_e3_requested_unclean_election_without_a_live_replica_is_refused() -> None:
    """The ELR of this partition would change, but no leader would be elected."""
    before = partition(leader=NO_LEADER, isr=(2, 3), elr=(1,))
    assert changed_partition(before, alive(), MIN_ISR_2, election=Election.UNCLEAN) is not None
    with pytest.raises(KafkaError) as raised:
        elect_unclean(before, alive(), MIN_ISR_2)
    assert raised.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_e4_last_known_leader_waits_for_a_member_of_the_isr() -> None:
    before = partition(leader=NO_LEADER, isr=(2,), last_known=(1,))
    assert changed_partition(before, alive(1), MIN_ISR_1) is None


def test_e4_leader_is_the_last_known_one_only_if_the_isr_is_empty() -> None:
    changed = changed_partition(partition(leader=1, isr=(1, 2)), alive(), MIN_ISR_1, isr=ids(2))
    assert changed is not None
    assert state(changed) == (NO_LEADER, ids(2), ())
    assert changed.last_known_elr == ()


def test_e1_last_known_leader_is_not_elected_while_the_elr_has_another_replica() -> None:
    """The replica in the ELR has all committed records, and may return."""
    before = partition(leader=NO_LEADER, isr=(), elr=(2,), last_known=(1,))
    assert changed_partition(before, alive(1), MIN_ISR_2) is None
    returned = changed_partition(before, alive(1, 2), MIN_ISR_2)
    assert returned is not None
    assert (returned.leader, returned.leader_recovery_state) == (2, RECOVERED)


def test_e3_unclean_election_of_the_present_leader_begins_a_leader_epoch() -> None:
    """Its log may be shorter than before, and its followers have to compare theirs with it."""
    before = partition(leader=1, isr=(1,))
    changed = changed_partition(before, alive(1), UNCLEAN, isr=(), unclean_restarts=ids(1))
    assert changed is not None
    assert (changed.leader, changed.leader_recovery_state) == (1, RECOVERING)
    assert (changed.leader_epoch, changed.partition_epoch) == (8, 21)


def test_lost_log_of_another_replica_keeps_the_last_known_leader() -> None:
    before = partition(leader=NO_LEADER, isr=(), last_known=(3,))
    assert without_lost_log(before, BrokerId(1), alive(), MIN_ISR_2) is None
    forgotten = without_lost_log(before, BrokerId(3), alive(), MIN_ISR_2)
    assert forgotten is not None
    assert (forgotten.last_known_elr, forgotten.partition_epoch) == ((), 21)


def test_only_replica_that_lost_its_log_leads_again_and_recovers() -> None:
    before = replace(partition(leader=1, isr=(1,)), replicas=ids(1))
    lost = without_lost_log(before, BrokerId(1), alive(), MIN_ISR_2)
    assert lost is not None
    assert (state(lost), lost.last_known_elr) == ((NO_LEADER, (), ()), ids(1))
    unfenced = broker_unfenced(lost, alive(1), MIN_ISR_2)
    assert unfenced is not None
    assert (unfenced.leader, unfenced.leader_recovery_state) == (1, RECOVERING)
