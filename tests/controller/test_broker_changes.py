"""Tests of the records that follow from changes of brokers, with the image after them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.broker_changes import (
    BrokerChanges,
    planning_broker_changes,
    planning_elections,
)
from odradek.controller.broker_plans import planning_directories
from odradek.controller.election import ElectionPolicy, stopped_cleanly
from odradek.errors import ErrorCode
from odradek.ids import LOST_DIRECTORY, ZERO_UUID, BrokerId, TopicName, Uuid
from odradek.metadata.delta import LEADER_UNCHANGED, MetadataDelta, MetadataProvenance
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.records import MetadataRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.slicing import run_to_completion

TOPIC_ID = Uuid(bytes(15) + b"\x01")
NAME = TopicName("t")
DIRECTORIES = {number: Uuid(bytes([number]) * 16) for number in range(1, 7)}


def _brokers(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def _registration(number: int, epoch: int = 1, **fields: object) -> BrokerRegistration:
    return replace(
        BrokerRegistration(BrokerId(number), f"host{number}", 9092, epoch=epoch, boot_id="boot"),
        **fields,  # type: ignore[arg-type]
    )


def _image(*partitions: PartitionImage, brokers: int = 3) -> MetadataImage:
    topic = TopicImage(NAME, TOPIC_ID, partitions)
    registrations = {BrokerId(n): _registration(n) for n in range(1, brokers + 1)}
    return MetadataImage(
        brokers=PersistentMap(registrations),
        topics_by_name=PersistentMap({NAME: topic}),
        topics_by_id=PersistentMap({TOPIC_ID: topic}),
    )


def _partition(*isr: int, leader: int = 1, **fields: object) -> PartitionImage:
    base = PartitionImage(0, BrokerId(leader), 4, 7, _brokers(1, 2, 3), _brokers(*isr))
    return replace(base, **fields)  # type: ignore[arg-type]


def _records(
    image: MetadataImage, changes: BrokerChanges, **policy: object
) -> list[MetadataRecord]:
    policies = ElectionPolicy(**policy)  # type: ignore[arg-type]
    return run_to_completion(planning_broker_changes(image, changes, lambda _: policies))


def _after(image: MetadataImage, records: list[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(MetadataProvenance(BrokerId(1), 1, image.offset + 1))


def _fenced(*numbers: int) -> BrokerChanges:
    changes = BrokerChanges()
    for number in numbers:
        changes.after[BrokerId(number)] = _registration(number, fenced=True)
    return changes


def test_fenced_leader_leaves_the_isr_and_the_next_replica_leads() -> None:
    image = _image(_partition(1, 2, 3))
    after = _after(image, _records(image, _fenced(1)))
    partition = after.topics_by_id[TOPIC_ID].partitions[0]
    assert partition == _partition(2, 3, leader=2, leader_epoch=5, partition_epoch=8)
    assert after.brokers[BrokerId(1)].fenced


def test_existing_leader_stays_while_its_broker_is_live() -> None:
    image = _image(_partition(1, 2, 3, leader=2))
    assert _records(image, BrokerChanges()) == []


def test_partition_of_other_brokers_has_no_record() -> None:
    image = _image(_partition(2, 3, leader=2))
    records = _records(image, _fenced(1))
    assert not any(isinstance(each, PartitionChangeRecord) for each in records)


def test_restart_without_proof_of_a_clean_stop_leaves_isr_and_elr() -> None:
    image = _image(_partition(1))
    restart = BrokerChanges({BrokerId(1): _registration(1, 2, fenced=True)}, {BrokerId(1): False})
    partition = _after(image, _records(image, restart)).topics_by_id[TOPIC_ID].partitions[0]
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), ())
    assert partition.last_known_elr == _brokers(1)


def test_leader_that_is_lost_together_with_its_isr_is_the_last_known_one() -> None:
    image = _image(_partition(1, 2, leader=2))
    changes = BrokerChanges(
        {
            BrokerId(1): _registration(1, 2, fenced=False),
            BrokerId(2): _registration(2, fenced=True),
        },
        {BrokerId(1): False},
    )
    image = _after(image, _records(image, changes))
    partition = image.topics_by_id[TOPIC_ID].partitions[0]
    assert (partition.leader, partition.isr) == (NO_LEADER, ())
    assert partition.last_known_elr == _brokers(2)
    again = BrokerChanges({BrokerId(2): _registration(2, 2, fenced=True)}, {BrokerId(2): False})
    image = _after(image, _records(image, again))
    image = _after(image, _records(image, BrokerChanges({BrokerId(2): _registration(2, 2)})))
    assert image.topics_by_id[TOPIC_ID].partitions[0].leader == 2


def test_three_simultaneous_sigkills_need_no_operator() -> None:
    """Each broker restarts with the same boot id, and the ISR and its leader are as before."""
    image = _image(_partition(1, 2, 3))
    image = _after(image, _records(image, _fenced(1, 2, 3), min_insync_replicas=2))
    for number in (1, 2, 3):
        new = {BrokerId(number): _registration(number, 2, fenced=True)}
        restart = BrokerChanges(new, {BrokerId(number): True})
        image = _after(image, _records(image, restart, min_insync_replicas=2))
    partition = image.topics_by_id[TOPIC_ID].partitions[0]
    assert (partition.leader, set(partition.elr)) == (NO_LEADER, set(_brokers(1, 2, 3)))
    for number in (3, 1, 2):
        unfenced = BrokerChanges({BrokerId(number): _registration(number, 2)})
        image = _after(image, _records(image, unfenced, min_insync_replicas=2))
    partition = image.topics_by_id[TOPIC_ID].partitions[0]
    assert (partition.leader, partition.isr) == (3, _brokers(3))
    assert set(partition.elr) == set(_brokers(1, 2))


def test_restart_and_return_of_a_leader_in_one_change_raise_each_epoch_once() -> None:
    image = _image(_partition(1))
    restart = BrokerChanges({BrokerId(1): _registration(1, 2)}, {BrokerId(1): True})
    partition = _after(image, _records(image, restart)).topics_by_id[TOPIC_ID].partitions[0]
    assert partition == _partition(1, leader_epoch=5, partition_epoch=8)


def test_records_of_partitions_precede_the_registration() -> None:
    """If the write is divided there, the next controller finds the restart again."""
    image = _image(_partition(1, 2, 3))
    restart = BrokerChanges({BrokerId(1): _registration(1, 2, fenced=True)}, {BrokerId(1): False})
    records = _records(image, restart)
    assert [type(each) for each in records] == [PartitionChangeRecord, RegisterBrokerRecord]


def test_replica_whose_directory_has_failed_loses_leadership() -> None:
    directories = tuple(DIRECTORIES[n] for n in (1, 2, 3))
    image = _image(_partition(1, 2, 3, directories=directories))
    online = _registration(1, directories=(DIRECTORIES[4],))
    after = _after(image, _records(image, BrokerChanges({BrokerId(1): online})))
    partition = after.topics_by_id[TOPIC_ID].partitions[0]
    assert (partition.leader, partition.isr) == (2, _brokers(2, 3))
    assert not after.brokers[BrokerId(1)].fenced


def test_unregistered_broker_leaves_isr_and_elr() -> None:
    image = _image(_partition(2, elr=_brokers(1), leader=2))
    unregistered = BrokerChanges({BrokerId(1): None}, {BrokerId(1): False})
    after = _after(image, _records(image, unregistered, min_insync_replicas=2))
    assert after.topics_by_id[TOPIC_ID].partitions[0].elr == ()
    assert BrokerId(1) not in after.brokers


ISR = st.permutations(_brokers(1, 2, 3)).flatmap(
    lambda order: st.integers(0, 3).map(lambda count: tuple(order[:count]))
)


@given(
    isr=ISR,
    elr=st.sets(st.sampled_from(_brokers(1, 2, 3))),
    has_leader=st.booleans(),
    states=st.lists(
        st.sampled_from(["live", "fenced", "clean", "unclean"]), min_size=3, max_size=3
    ),
    returns=st.booleans(),
    minimum=st.integers(1, 3),
)
def test_change_gives_a_consistent_partition_one_epoch_later(
    isr: tuple[BrokerId, ...],
    elr: set[BrokerId],
    has_leader: bool,
    states: list[str],
    returns: bool,
    minimum: int,
) -> None:
    leader = isr[0] if isr and has_leader else NO_LEADER
    before = _partition(
        *isr, leader=leader, elr=tuple(each for each in _brokers(1, 2, 3) if each in elr - set(isr))
    )
    image = _image(before)
    changes = BrokerChanges()
    for number, state in enumerate(states, 1):
        broker = BrokerId(number)
        if state == "fenced":
            changes.after[broker] = _registration(number, fenced=True)
        elif state != "live":
            changes.after[broker] = _registration(number, 2, fenced=not returns)
            changes.restarts[broker] = state == "clean"
    records = _records(image, changes, min_insync_replicas=minimum)
    after_image = _after(image, records)
    after = after_image.topics_by_id[TOPIC_ID].partitions[0]
    assert before.partition_epoch <= after.partition_epoch <= before.partition_epoch + 1
    assert before.leader_epoch <= after.leader_epoch <= before.leader_epoch + 1
    assert all(after_image.is_eligible(each) for each in after.isr)
    assert not set(after.isr) & set(after.elr)
    for number, state in enumerate(states, 1):
        if state == "unclean":
            recovered = after.leader == number and after.leader_recovery_state
            assert number not in after.elr
            assert number not in after.isr or recovered
            assert before.leader != number or after.leader_epoch > before.leader_epoch
    if after.leader != NO_LEADER:
        assert after.leader in after.isr
    else:
        assert not any(after_image.is_eligible(each) for each in after.isr or after.elr)
    for record in run_to_completion(
        planning_elections(after_image, lambda _: ElectionPolicy(minimum))
    ):  # as in Kafka, an election from the ELR clears the rest of it later
        assert isinstance(record, PartitionChangeRecord)
        assert (record.leader, record.isr) == (LEADER_UNCHANGED, None), "the change is complete"


@st.composite
def _partitions(draw: st.DrawFn) -> tuple[PartitionImage, int]:
    """Return a partition with a leader, as it is between two changes, and its minimum."""
    replicas = draw(st.permutations(_brokers(*range(1, draw(st.integers(2, 4)) + 1))))
    isr = tuple(replicas[: draw(st.integers(1, len(replicas)))])
    minimum = draw(st.integers(1, len(replicas)))
    others = [each for each in replicas if each not in isr]
    elr = tuple(others[:1]) if len(isr) < minimum and draw(st.booleans()) else ()
    leader = draw(st.sampled_from(isr))
    order = tuple(draw(st.permutations(replicas)))
    return PartitionImage(0, leader, 4, 7, order, isr, elr=elr), minimum


@given(
    _partitions(),
    st.lists(st.sampled_from(["stays", "ends", "clean", "unclean", "lost"]), min_size=4),
    st.permutations(range(4)),
    st.sets(st.integers(1, 4)),
    st.booleans(),
)
def test_e4_member_that_has_all_records_leads_whatever_else_ends_in_the_same_change(
    partition_and_minimum: tuple[PartitionImage, int],
    states: list[str],
    order: list[int],
    fenced: set[int],
    is_take_over: bool,
) -> None:
    """Each member of ISR and ELR has the records below the high watermark before the change."""
    before, minimum = partition_and_minimum
    state = {BrokerId(n + 1): states[n] for n in order if BrokerId(n + 1) in before.replicas}
    registered = {
        broker: _registration(broker, fenced=broker in fenced and broker not in before.isr)
        for broker in state
    }
    image = _image(before)
    image = replace(image, brokers=image.brokers.with_changes(registered))
    changes, back = BrokerChanges(), BrokerChanges()
    for broker, found in registered.items():
        if state[broker] == "ends":
            changes.after[broker] = replace(found, fenced=True)
        elif state[broker] != "stays":
            back.after[broker] = replace(found, epoch=2)
            changes.after[broker] = replace(found, epoch=2, fenced=not is_take_over)
            changes.restarts[broker] = state[broker] == "clean"
            if state[broker] == "lost":
                changes.lost.add(broker)
    for each in (changes, back):  # a broker is unfenced when it has caught up
        image = _after(image, _records(image, each, min_insync_replicas=minimum))
    after = _first(image)
    complete = {
        each for each in (*before.isr, *before.elr) if state[each] not in ("unclean", "lost")
    }
    if any(image.is_eligible(each) for each in complete):
        assert after.leader in complete
    if not after.leader_recovery_state:
        assert {*after.isr, *after.elr} <= complete
    assert not any(state[each] == "lost" for each in (*after.isr, *after.last_known_elr))
    if before.leader in changes.restarts:
        assert after.leader_epoch > before.leader_epoch
    elif after.leader == before.leader:
        assert after.leader_epoch == before.leader_epoch


# --- lost directories ---


def _restarted(number: int, *directories: Uuid) -> BrokerChanges:
    broker = BrokerId(number)
    new = _registration(number, 2, directories=directories)
    return BrokerChanges({broker: new}, {broker: False}, {broker})


@pytest.mark.parametrize("unclean", [False, True])
def test_replica_whose_directory_is_lost_is_not_the_last_known_leader(unclean: bool) -> None:
    """Its log is empty. The others have records, and would truncate to it."""
    partition = _partition(1, replicas=_brokers(1, 2), leader=1)
    image = _image(partition)
    image = _after(image, _records(image, _fenced(1, 2), min_insync_replicas=2))
    assert image.topics_by_id[TOPIC_ID].partitions[0].elr == _brokers(1)
    restart = _restarted(1, DIRECTORIES[4])
    after = _after(image, _records(image, restart, min_insync_replicas=2, unclean=unclean))
    found = after.topics_by_id[TOPIC_ID].partitions[0]
    assert (found.isr, found.elr, found.last_known_elr) == (
        (_brokers(1), (), ()) if unclean else ((), (), ())
    )


def test_only_replica_whose_directory_is_lost_leads_again() -> None:
    image = _image(_partition(1, replicas=_brokers(1), leader=1))
    image = _after(image, _records(image, _fenced(1)))
    after = _after(image, _records(image, _restarted(1, DIRECTORIES[4])))
    assert after.topics_by_id[TOPIC_ID].partitions[0].leader == 1


def test_replica_in_a_directory_that_is_not_lost_is_the_last_known_leader() -> None:
    directories = (DIRECTORIES[1], DIRECTORIES[2])
    image = _image(_partition(1, replicas=_brokers(1, 2), leader=1, directories=directories))
    image = _after(image, _records(image, _fenced(1, 2), min_insync_replicas=2))
    restart = _restarted(1, DIRECTORIES[1], DIRECTORIES[4])
    after = _after(image, _records(image, restart, min_insync_replicas=2))
    assert after.topics_by_id[TOPIC_ID].partitions[0].leader == 1


def _assigned(
    image: MetadataImage, broker: int, directory: Uuid, **policy: object
) -> PartitionImage:
    policies = ElectionPolicy(**policy)  # type: ignore[arg-type]
    planning = planning_directories(
        image, BrokerId(broker), {(TOPIC_ID, 0): directory}, lambda _: policies
    )
    plan = run_to_completion(planning)
    assert plan.result == {(TOPIC_ID, 0): ErrorCode.NONE}
    return _after(image, plan.records).topics_by_id[TOPIC_ID].partitions[0]


def _image_with(broker: BrokerRegistration, partition: PartitionImage) -> MetadataImage:
    image = _image(partition)
    return replace(image, brokers=image.brokers.with_changes({broker.id: broker}))


def test_replica_that_is_assigned_to_a_failed_directory_loses_its_leadership_at_once() -> None:
    online = _registration(1, directories=(DIRECTORIES[1],))
    found = _assigned(_image_with(online, _partition(1, 2, 3)), 1, DIRECTORIES[4])
    assert (found.leader, found.isr) == (2, _brokers(2, 3))
    assert found.partition_epoch == 8


@pytest.mark.parametrize("in_elr", [True, False])
def test_replica_that_leaves_a_failed_directory_has_an_empty_log(in_elr: bool) -> None:
    """It is the only candidate of a clean election, and leads nothing."""
    failed, directory = DIRECTORIES[4], DIRECTORIES[1]
    partition = _partition(
        replicas=_brokers(1, 2),
        elr=_brokers(1) if in_elr else (),
        last_known_elr=_brokers(1),
        leader=NO_LEADER,
        directories=(failed, DIRECTORIES[2]),
    )
    online = _registration(1, directories=(directory,))
    found = _assigned(_image_with(online, partition), 1, directory)
    assert found.leader == NO_LEADER
    assert (found.isr, found.elr, found.last_known_elr) == ((), (), ())
    assert found.directories == (directory, DIRECTORIES[2])


def test_replica_that_moves_between_directories_stays_in_sync() -> None:
    directories = (DIRECTORIES[1], DIRECTORIES[4])
    partition = _partition(1, 2, 3, directories=tuple(DIRECTORIES[n] for n in (1, 2, 3)))
    online = _registration(1, directories=directories)
    found = _assigned(_image_with(online, partition), 1, DIRECTORIES[4])
    assert (found.leader, found.isr) == (1, _brokers(1, 2, 3))


def test_replica_that_can_be_written_again_keeps_its_records() -> None:
    """Its broker has reported that it could not write it, and its log is as before."""
    partition = _partition(
        replicas=_brokers(1, 2),
        elr=_brokers(1),
        last_known_elr=_brokers(1),
        leader=NO_LEADER,
        directories=(LOST_DIRECTORY, DIRECTORIES[2]),
    )
    online = _registration(1, directories=(DIRECTORIES[1],))
    found = _assigned(_image_with(online, partition), 1, DIRECTORIES[1], min_insync_replicas=2)
    assert (found.leader, found.isr) == (1, _brokers(1))


def test_leader_whose_directory_is_lost_at_a_quick_restart_is_not_remembered() -> None:
    """Its session did not end before the restart, so it leads the partition until then."""
    image = _image(_partition(1, replicas=_brokers(1, 2), leader=1))
    restart = _restarted(1, DIRECTORIES[4])
    restart.after[BrokerId(1)] = replace(
        restart.after[BrokerId(1)] or _registration(1), fenced=True
    )
    found = _after(image, _records(image, restart)).topics_by_id[TOPIC_ID].partitions[0]
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (NO_LEADER, (), (), ())


# --- rare combinations ---


def _first(image: MetadataImage) -> PartitionImage:
    return image.topics_by_id[TOPIC_ID].partitions[0]


def test_e4_elr_of_a_partition_that_reaches_the_minimum_is_cleared_at_a_take_over() -> None:
    image = _image(_partition(1, elr=_brokers(2)))
    planning = planning_elections(image, lambda _: ElectionPolicy(min_insync_replicas=1))
    after = _after(image, run_to_completion(planning))
    assert (_first(after).isr, _first(after).elr) == (_brokers(1), ())


def test_last_known_leader_without_a_leader_is_forgotten_when_its_directory_is_lost() -> None:
    """It is fenced when it registers, so no replica is eligible yet."""
    before = _partition(leader=NO_LEADER, last_known_elr=_brokers(1))
    image = _after(_image(before), _records(_image(before), _fenced(1, 2, 3)))
    assert _first(image).last_known_elr == _brokers(1)
    restart = _restarted(1, DIRECTORIES[4])
    restart.after[BrokerId(1)] = _registration(1, 2, directories=(DIRECTORIES[4],), fenced=True)
    image = _after(image, _records(image, restart))
    assert _first(image).last_known_elr == ()
    image = _after(
        image, _records(image, BrokerChanges({BrokerId(1): _registration(1, 2, fenced=False)}))
    )
    assert _first(image).leader == NO_LEADER


@pytest.mark.parametrize("directory", [1, 4])
def test_leader_that_lost_another_directory_is_remembered(directory: int) -> None:
    """Broker 1 has lost a directory, but not the one of this replica, or its own one (4)."""
    directories = (DIRECTORIES[directory], DIRECTORIES[2], DIRECTORIES[3])
    image = _image(_partition(1, directories=directories))
    restart = _restarted(1, DIRECTORIES[1])
    restart.after[BrokerId(1)] = _registration(1, 2, directories=(DIRECTORIES[1],), fenced=True)
    after = _after(image, _records(image, restart))
    assert _first(after).leader == NO_LEADER
    assert _first(after).last_known_elr == (_brokers(1) if directory == 1 else ())


@pytest.mark.parametrize("directory", [1, 4])
def test_leader_that_ends_with_the_rest_of_its_isr_is_remembered(directory: int) -> None:
    """One change takes the leader, which restarts, and the other member, which is fenced."""
    directories = (DIRECTORIES[directory], DIRECTORIES[2], DIRECTORIES[3])
    image = _image(_partition(1, 2, directories=directories))
    restart = _restarted(1, DIRECTORIES[1])
    restart.after[BrokerId(1)] = _registration(1, 2, directories=(DIRECTORIES[1],), fenced=True)
    restart.after[BrokerId(2)] = _registration(2, fenced=True)
    partition = _first(_after(image, _records(image, restart)))
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), _brokers(2))
    assert partition.last_known_elr == (_brokers(1) if directory == 1 else ())


def test_replica_out_of_sync_may_leave_a_failed_directory() -> None:
    broker = _registration(3, directories=(DIRECTORIES[3],))
    directories = (DIRECTORIES[1], DIRECTORIES[2], DIRECTORIES[4])
    image = _image_with(broker, _partition(1, 2, directories=directories))
    moved = _assigned(image, 3, DIRECTORIES[3])
    assert (moved.leader, moved.isr, moved.elr) == (1, _brokers(1, 2), ())
    assert moved.directories == (*directories[:2], DIRECTORIES[3])


def test_restart_with_a_lost_directory_changes_no_partition_of_others() -> None:
    directories = tuple(DIRECTORIES[number] for number in (1, 2, 3))
    image = _image(_partition(1, 2, directories=directories))
    records = _records(image, _restarted(3, DIRECTORIES[4]))
    assert not any(isinstance(each, PartitionChangeRecord) for each in records)


def test_directories_of_a_broker_change_with_its_registration() -> None:
    both = (DIRECTORIES[1], DIRECTORIES[4])
    broker = _registration(1, directories=both)
    image = _image_with(broker, _partition(1, 2, 3))
    fenced = BrokerChanges({broker.id: replace(broker, fenced=True)})
    image = _after(image, _records(image, fenced))
    assert image.brokers[broker.id] == replace(broker, fenced=True)
    failed = BrokerChanges({broker.id: replace(broker, fenced=True, directories=both[:1])})
    image = _after(image, _records(image, failed))
    assert image.brokers[broker.id].directories == both[:1]


# --- a failed directory that is back after a restart ---


def _elr_member_after_a_failed_directory(*directories: Uuid) -> MetadataImage:
    """Return an image in which broker 2 is the ELR, and only its directory 1 is registered.

    Args:
        directories: Those of the replicas.
    """
    partition = _partition(1, 2, replicas=_brokers(1, 2), leader=1, directories=directories)
    both = _registration(2, directories=(DIRECTORIES[1], DIRECTORIES[2]))
    image = _image_with(both, partition)
    for changes in (
        BrokerChanges({BrokerId(2): replace(both, directories=(DIRECTORIES[1],), fenced=True)}),
        _fenced(1),
    ):
        image = _after(image, _records(image, changes, min_insync_replicas=2))
    assert (_first(image).isr, _first(image).elr) == ((), _brokers(1, 2))
    return image


def _elr_after_restart(image: MetadataImage, *directories: Uuid) -> tuple[BrokerId, ...]:
    new = _registration(2, 2, directories=directories, fenced=True)
    restart = BrokerChanges({BrokerId(2): new}, {BrokerId(2): True})
    return _first(_after(image, _records(image, restart, min_insync_replicas=2))).elr


@pytest.mark.parametrize("is_back", [True, False])
def test_e4_replica_of_a_directory_that_had_failed_did_not_stop_cleanly(is_back: bool) -> None:
    """The write error may have dropped pages, although the machine was not booted."""
    image = _elr_member_after_a_failed_directory(DIRECTORIES[3], DIRECTORIES[2])
    found = (DIRECTORIES[1], DIRECTORIES[2]) if is_back else (DIRECTORIES[1],)
    assert _elr_after_restart(image, *found) == _brokers(1)


def test_e4_replica_whose_last_directory_had_failed_does_not_lead_from_the_elr() -> None:
    """The controller has removed the boot id. A write error may have dropped pages."""
    one = _registration(2, directories=(DIRECTORIES[2],))
    image = _image_with(one, _partition(1, 2, replicas=_brokers(1, 2)))
    failed = replace(one, boot_id="", in_controlled_shutdown=True)
    for changes in (BrokerChanges({BrokerId(2): failed}), _fenced(1)):
        image = _after(image, _records(image, changes, min_insync_replicas=2))
    assert _first(image).elr == _brokers(1, 2)
    previous = image.brokers[BrokerId(2)]
    assert (previous.boot_id, previous.epoch) == ("", one.epoch)
    clean = stopped_cleanly(previous, -1, "boot", one.directories)
    again = BrokerChanges({BrokerId(2): replace(one, epoch=2, fenced=False)}, {BrokerId(2): clean})
    image = _after(image, _records(image, again, min_insync_replicas=2))
    assert (_first(image).leader, _first(image).elr) == (NO_LEADER, _brokers(1))


@pytest.mark.parametrize("directory", [DIRECTORIES[1], ZERO_UUID, LOST_DIRECTORY])
def test_e4_replica_of_another_directory_stopped_cleanly(directory: Uuid) -> None:
    """A replica of the failed directory would have been reported with it."""
    image = _elr_member_after_a_failed_directory(DIRECTORIES[3], directory)
    found = (DIRECTORIES[1], DIRECTORIES[2])
    assert _elr_after_restart(image, *found) == _brokers(1, 2)
