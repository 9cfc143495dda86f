from __future__ import annotations

from dataclasses import replace
from typing import Any

from odradek.records.batch import parse_header
from odradek.records.record import Record, build_batch
from tests.simulation.invariants import (
    DROPPED,
    NO_STEP,
    Chain,
    KeyedRecord,
    NewestRecords,
    Observation,
    PartitionModel,
    PartitionState,
    Producer,
    ReplicaModel,
    check_bounds,
    check_compacted_epochs,
    check_compacted_producers,
    check_epochs,
    check_producers,
    check_recovery,
    check_step,
    check_truncation,
    producers_of,
    replay_producers,
)

SEEN = Observation(
    incarnation=1,
    is_leader=True,
    leader_epoch=3,
    log_start=0,
    high_watermark=4,
    log_end=6,
    flushed=2,
)


def chain(*batches: tuple[int, int, int], value: bytes = b"v", **options: Any) -> Chain:
    """Return a chain of (base offset, records, leader epoch)."""
    made = Chain()
    for base, count, epoch in batches:
        batch = build_batch(
            [Record(None, value)] * count, base_offset=base, leader_epoch=epoch, **options
        )
        made.append(parse_header(batch), bytes(batch))
    return made


LOG = chain((0, 2, 1), (2, 2, 1), (4, 2, 3))


def test_offsets_are_in_order() -> None:
    assert not [*check_bounds(SEEN)]
    assert [*check_bounds(SEEN._replace(high_watermark=7))]
    assert [*check_bounds(SEEN._replace(log_start=5))]
    assert [*check_bounds(SEEN._replace(flushed=7))]


def test_epochs_log_start_and_the_leaders_high_watermark_never_decrease() -> None:
    assert not [*check_step(SEEN, SEEN._replace(high_watermark=6, log_end=8))]
    assert [*check_step(SEEN, SEEN._replace(leader_epoch=2))]
    assert [*check_step(SEEN, SEEN._replace(high_watermark=3))]
    assert [*check_step(SEEN, SEEN._replace(log_end=5))]
    assert [*check_step(SEEN._replace(log_start=1), SEEN)]


def test_the_high_watermark_of_another_epoch_may_be_lower() -> None:
    assert not [*check_step(SEEN, SEEN._replace(high_watermark=3, leader_epoch=4))]
    assert not [*check_step(SEEN, SEEN._replace(log_end=5, high_watermark=3, is_leader=False))]


def model(**fields: Any) -> ReplicaModel:
    return replace(ReplicaModel("replica", SEEN, LOG, floor=2), **fields)


def test_a_kill_keeps_the_whole_log() -> None:
    again = SEEN._replace(incarnation=2, leader_epoch=4)
    for how in ("stop", "kill", "power"):
        assert not [*check_recovery(model(ended=how), again, LOG, [0])]
    shorter = chain((0, 2, 1), (2, 2, 1))
    lost = again._replace(log_end=4)
    assert [*check_recovery(model(ended="kill"), lost, shorter, [0])]
    assert [*check_recovery(model(ended="stop"), lost, shorter, [0])]


def test_a_power_cut_keeps_what_was_flushed() -> None:
    again = SEEN._replace(incarnation=2, leader_epoch=4)
    shorter = chain((0, 2, 1), (2, 2, 1))
    lost = again._replace(log_end=4)
    assert not [*check_recovery(model(floor=4, ended="power"), lost, shorter, [0])]
    assert [*check_recovery(model(floor=5, ended="power"), lost, shorter, [0])]


def test_a_recovery_changes_no_byte_that_it_keeps() -> None:
    again = SEEN._replace(incarnation=2, leader_epoch=4)
    other = chain((0, 2, 1), (2, 2, 1), (4, 2, 3), value=b"w")
    assert [*check_recovery(model(ended="power"), again, other, [0])]
    assert [*check_recovery(model(ended="power"), again._replace(log_end=8), LOG, [0])]
    assert [*check_recovery(model(ended="power"), again._replace(leader_epoch=2), LOG, [0])]


def test_batches_that_were_never_on_the_disk_are_not_compared() -> None:
    """An empty log at 4 has taken its chain below from other replicas, before and after."""
    empty = SEEN._replace(log_start=4, log_end=4, flushed=4)
    before = model(seen=empty, chain=LOG.continues(4), ended="stop", log_start_max=4)
    other = chain((0, 4, 7))
    again = empty._replace(incarnation=2, leader_epoch=4)
    assert not [*check_recovery(before, again, other, [4])]
    assert [*check_recovery(before, again, other, [0])]


def test_only_a_power_cut_brings_back_what_an_interrupted_truncation_removed() -> None:
    removed = chain((0, 2, 1), (2, 2, 1), (4, 3, 1), value=b"r")
    kept = chain((0, 2, 1), (2, 2, 1), value=b"r")
    appended = kept.copy()
    appended.bridge(LOG, 6)
    before = model(chain=appended, removed=removed, removed_from=4)
    again = SEEN._replace(incarnation=2, leader_epoch=4, log_end=7)
    assert not [*check_recovery(replace(before, ended="power"), again, removed, [0])]
    assert [*check_recovery(replace(before, ended="kill"), again, removed, [0])]
    flushed = replace(before, removed=None, ended="power")
    assert [*check_recovery(flushed, again, removed, [0])]
    mixed = removed.copy()
    mixed.digests[1] = chain((2, 2, 9)).digests[0]
    assert [*check_recovery(replace(before, ended="power"), again, mixed, [0])]


def test_a_log_whose_pages_are_dropped_keeps_what_was_flushed() -> None:
    again = SEEN._replace(incarnation=2, leader_epoch=4, log_end=4)
    kept = LOG.continues(4)
    assert not [*check_recovery(model(floor=4, ended=DROPPED), again, kept, [0])]
    assert [*check_recovery(model(floor=5, ended=DROPPED), again, kept, [0])]


def test_an_empty_log_may_start_above_all_batches() -> None:
    empty = SEEN._replace(incarnation=2, leader_epoch=4, log_start=8, high_watermark=8, log_end=8)
    cut = chain((0, 2, 1))
    deleted = model(floor=0, log_start_max=8, ended="power")
    assert not [*check_recovery(deleted, empty, cut, [8])]
    assert not [*check_recovery(deleted, empty, cut, [0, 8])]
    assert [*check_recovery(deleted, empty, cut, [0])]


def test_a_recovery_hides_no_record() -> None:
    hidden = SEEN._replace(incarnation=2, leader_epoch=4, log_start=4)
    assert [*check_recovery(model(floor=0, ended="power"), hidden, LOG, [0])]
    assert [*check_recovery(model(floor=4, ended="power"), hidden, LOG, [4])]
    assert [*check_recovery(model(floor=0, ended="power"), hidden, LOG, [4])]
    assert not [*check_recovery(model(deletes=True, ended="power"), hidden, LOG, [0])]
    assert not [*check_recovery(model(log_start_max=4, ended="power"), hidden, LOG, [0])]
    assert not [*check_recovery(model(ended="power"), hidden, LOG, [0], leader_start=4)]
    assert [*check_recovery(model(ended="power"), hidden, LOG, [0], leader_start=3)]


def test_a_chain_compares_logs_at_each_offset() -> None:
    other = chain((0, 2, 1), (2, 2, 1), (4, 3, 3))
    assert LOG.hash_at(4) == other.hash_at(4) is not None
    assert LOG.hash_at(3) is None
    assert LOG.hash_at(6) != other.hash_at(7)
    other.truncate(5)
    assert (other.end, other.hashes) == (4, LOG.hashes[:2])
    assert LOG.continues(2).ends == [2]
    assert LOG.end == 6


def test_the_epoch_cache_ends_each_epoch_as_the_log_does() -> None:
    assert not [*check_epochs(LOG, 0, 6, [(1, 0), (3, 4)])]
    assert not [*check_epochs(LOG, 0, 6, [(1, 0), (2, 4), (3, 4)][::2])]
    assert not [*check_epochs(LOG, 0, 6, [(1, 0), (3, 4), (5, 6)])], "an empty epoch"
    assert [*check_epochs(LOG, 0, 6, [(1, 0), (3, 5)])]
    assert [*check_epochs(LOG, 0, 6, [(1, 0)])]
    assert [*check_epochs(LOG, 0, 6, [(1, 0), (3, 4), (5, 5)])]
    assert [*check_epochs(LOG, 0, 6, [(3, 4), (1, 0)])]
    assert not [*check_epochs(LOG, 4, 6, [(3, 4)])], "the first epoch was deleted"


def produced(count: int) -> Chain:
    """Return a log with `count` batches of one record, all of one producer."""
    log = Chain()
    for number in range(count):
        batch = build_batch(
            [Record(None, b"v")],
            base_offset=number,
            producer_id=9,
            producer_epoch=0,
            base_sequence=number,
        )
        log.append(parse_header(batch), bytes(batch))
    return log


def test_producers_equal_a_replay_of_the_log() -> None:
    log = produced(7)
    replayed = replay_producers(log, 0)
    window = tuple((number, number, number) for number in range(2, 7))
    assert replayed == {9: Producer(0, window)}
    assert not [*check_producers(replayed, replayed, 0)]
    assert not [*check_producers(replay_producers(log, 4), replayed, 4)], "it may know more"
    assert [*check_producers(replayed, {}, 0)]
    assert [*check_producers(replayed, {9: Producer(0, window[1:])}, 0)]
    assert [*check_producers(replayed, {9: Producer(1, window)}, 0)]
    removed = {**replayed, 8: Producer(0, ((0, 0, 3),))}
    assert [*check_producers(replayed, removed, 3)], "its batch was truncated"
    assert not [*check_producers(replayed, removed, 4)], "its batch was deleted"


def test_the_epoch_cache_has_the_epochs_of_what_compaction_has_left() -> None:
    left = [LOG.headers[1], LOG.headers[2]]  # offsets 2 and 3 of epoch 1, 4 and 5 of epoch 3
    for entries in ([(1, 0), (3, 4)], [(1, 2), (3, 4)], [(1, 0), (3, 4), (5, 6)]):
        assert not [*check_compacted_epochs(left, 0, entries)], entries
    assert not [*check_compacted_epochs(left, 3, [(1, 3), (3, 4)])], "the log begins in a batch"
    assert not [*check_compacted_epochs(left, 4, [(3, 4)])], "the first epoch was deleted"
    assert not [
        *check_compacted_epochs([LOG.headers[0], LOG.headers[2]], 0, [(1, 0), (2, 2), (3, 3)])
    ]
    for entries in ([(1, 0), (3, 5)], [(1, 0)], [(3, 4)], [(1, 3), (3, 4)], [(1, 0), (3, 3)], []):
        assert [*check_compacted_epochs(left, 0, entries)], entries
    assert [*check_compacted_epochs(left, 0, [(1, 0), (3, 4), (4, 5)])]
    assert [*check_compacted_epochs([], 0, [(3, 0), (1, 4)])]


def test_producers_have_the_batches_that_compaction_has_left() -> None:
    log = produced(9)
    left = [log.headers[number] for number in (1, 5, 8)]
    window = tuple((number, number, number) for number in range(4, 9))
    for known in (
        Producer(0, window),
        Producer(1, ()),
        producers_of(left)[9],
        Producer(0, (*window[1:], (9, 9, 9))),  # offset 9 was removed by a truncation
    ):
        assert not [*check_compacted_producers(left, {9: known}, 10)], known
    for known in (
        Producer(0, window[:-1]),
        Producer(0, (window[0], *window[2:])),
        Producer(0, ()),
        Producer(0, (*window[1:], (10, 10, 10))),
    ):
        assert [*check_compacted_producers(left, {9: known}, 10)], known
    assert [*check_compacted_producers(left, {}, 10)]
    raised = build_batch([Record(None, b"v")], base_offset=9, producer_id=9, producer_epoch=1)
    later = [*left, parse_header(raised)]
    assert [*check_compacted_producers(later, {9: Producer(0, window)}, 10)], "an older epoch"


def test_an_epoch_has_one_leader() -> None:
    partition = PartitionModel()
    assert not [*partition.observe(1, SEEN)]
    assert not [*partition.observe(2, SEEN._replace(is_leader=False))]
    assert not [*partition.observe(2, SEEN._replace(leader_epoch=4))]
    assert [*partition.observe(2, SEEN)]


def test_the_high_watermark_of_a_leader_never_decreases_across_a_lost_lease() -> None:
    partition = PartitionModel()
    assert not [*partition.observe(1, SEEN)]
    assert not [*partition.observe(1, SEEN._replace(is_leader=False, high_watermark=2))]
    assert [*partition.observe(1, SEEN._replace(high_watermark=3))]
    assert not [*partition.observe(1, SEEN._replace(high_watermark=3, leader_epoch=4))]


STATE = PartitionState(
    replicas=(1, 2, 3), leader=1, leader_epoch=3, partition_epoch=5, isr=(1, 2), elr=(3,)
)
OTHER = chain((0, 2, 1), (2, 2, 1), value=b"w")


def committed(state: PartitionState = STATE) -> PartitionModel:
    """Return the rules of a partition whose leader has committed `LOG` up to offset 4."""
    partition = PartitionModel()
    assert not [*partition.changed(state)]
    assert not [*partition.follow(1, SEEN, LOG, elected=True)]
    assert partition.high_watermark == 4
    return partition


def test_the_controllers_epochs_never_decrease_and_the_leader_is_in_the_isr() -> None:
    later = STATE._replace(partition_epoch=6)
    assert not [*committed().changed(later)]
    assert not [*committed().changed(later._replace(leader=2, leader_epoch=4))]
    assert not [*committed().changed(later._replace(leader=-1, leader_epoch=4))]
    assert [*committed().changed(later._replace(leader_epoch=2))]
    assert [*committed().changed(STATE)]
    assert [*committed().changed(later._replace(leader=3, leader_epoch=4))]
    assert [*committed().changed(later._replace(leader=2))], "in the same epoch"
    assert [*committed().changed(later._replace(isr=(1, 2, 3)))], "a member of both"
    assert [*committed().changed(later._replace(isr=(1, 4)))]


def test_members_of_the_elr_were_in_isr_or_elr_before() -> None:
    shrunk = STATE._replace(partition_epoch=6, isr=(1,), elr=(2, 3))
    assert not [*committed().changed(shrunk)]
    assert [*committed(STATE._replace(elr=())).changed(shrunk)]


def test_a_compacted_log_has_the_newest_committed_record_of_each_key() -> None:
    old, new = KeyedRecord(0, b"a", b"1"), KeyedRecord(2, b"a", b"3")
    other = KeyedRecord(1, b"b", b"2")
    newest = NewestRecords()
    newest.add((old, other, new), 2)
    assert newest.records == {b"a": old, b"b": other}, "the record at 2 is not committed yet"
    newest.add((new,), 3)
    assert not [*newest.check((other, new), 0, 3)]
    assert not [*newest.check((other,), 0, 2)], "the replica does not know the commit yet"
    assert not [*newest.check((new,), 2, 3)], "the log begins at 2"
    assert [*newest.check((old, other), 0, 3)]
    assert [*newest.check((other, new._replace(value=b"1")), 0, 3)]
    newest.add((KeyedRecord(3, b"b", None),), 4)
    assert not [*newest.check((new,), 0, 4)], "a cleaner removes tombstones"


def test_a_clean_election_takes_a_member_of_isr_or_elr() -> None:
    elected = STATE._replace(partition_epoch=6, leader_epoch=4, leader=3, isr=(3,), elr=())
    assert not [*committed().changed(elected)]
    outside = STATE._replace(elr=())
    assert [*committed(outside).changed(elected)]
    unclean = committed(outside)
    assert not [*unclean.changed(elected._replace(recovering=True))]
    assert unclean.unclean_elections == 1


def test_an_elected_leader_has_all_committed_records() -> None:
    now = SEEN._replace(leader_epoch=4, high_watermark=2)
    assert not [*committed().follow(2, now._replace(log_end=4), LOG, elected=True)]
    shorter = chain((0, 2, 1), (2, 1, 1))
    assert [*committed().follow(2, now._replace(log_end=3), shorter, elected=True)]
    assert [*committed().follow(2, now._replace(log_end=4), OTHER, elected=True)]


def test_a_leader_that_was_deposed_before_it_noticed_its_election_may_have_fewer_records() -> None:
    """A paused broker notices its election in epoch 4 after a commit in epoch 5."""
    late = SEEN._replace(leader_epoch=4, high_watermark=2, log_end=3)
    shorter = chain((0, 2, 1), (2, 1, 1))
    model = committed()
    assert not [*model.observe(1, SEEN._replace(leader_epoch=5))]
    assert not [*model.observe(2, late)]
    assert not [*model.follow(2, late, shorter, elected=True)]
    assert [*model.follow(2, late._replace(leader_epoch=5), shorter, elected=True)]


def test_logs_are_equal_below_the_high_watermark() -> None:
    follower = SEEN._replace(is_leader=False, log_end=4)
    assert not [*committed().follow(2, follower, LOG, elected=False)]
    assert [*committed().follow(2, follower, OTHER, elected=False)]
    assert not [*committed().follow(2, follower._replace(high_watermark=0), OTHER, elected=False)]


def test_each_member_of_isr_and_elr_has_had_the_committed_records() -> None:
    partition = committed()
    assert not [*partition.check_reached({1: 6, 2: 4})]
    assert [*partition.check_reached({1: 6, 2: 3})]
    assert [*partition.check_reached({1: 6, 2: 0})], "it has no replica"
    assert "3 of the ELR has reached 3" in "".join(partition.check_reached({1: 6, 2: 4, 3: 3}))
    unclean = STATE._replace(partition_epoch=6, leader_epoch=4, isr=(1,), elr=(), recovering=True)
    assert not [*partition.changed(unclean)]
    assert not [*partition.check_reached({1: 2})]


def test_a_truncation_changes_no_batch_that_it_keeps() -> None:
    assert not [*check_truncation(LOG, LOG.continues(4), 0)]
    assert not [*check_truncation(LOG, LOG.continues(2), 2)]
    other = LOG.continues(2)
    other.bridge(OTHER, 4)
    assert [*check_truncation(LOG, other, 0)]
    assert [*check_truncation(LOG, other, 2)]


def test_a_truncation_to_the_start_of_the_leaders_log_removes_the_batches_of_a_deposed_leader() -> (
    None
):
    """Broker 3 led in epoch 0 alone. The log of the leader of epoch 2 begins above its log end."""
    committed = chain((0, 2, 1), (2, 2, 3), (4, 2, 3))
    deposed = chain((0, 2, 1), (2, 2, 1))
    assert not [*check_truncation(deposed, committed, 6)]
    assert [*check_truncation(deposed, committed, 2)], "the log still has a batch at 2"


def test_the_high_watermark_of_an_earlier_step_is_known() -> None:
    partition = PartitionModel()
    for step, high_watermark in ((10, 2), (20, 4)):
        now = SEEN._replace(high_watermark=high_watermark)
        assert not [*partition.follow(1, now, LOG, elected=False, step=step)]
    found = [partition.committed_at(step) for step in (9, 10, 19, 20, 99, NO_STEP)]
    assert found == [0, 2, 2, 4, 4, 4]


def test_members_of_isr_and_elr_have_all_committed_records() -> None:
    assert not [*committed().check_members({1: (6, LOG), 2: (6, LOG), 3: (6, LOG)})]
    assert [*committed().check_members({2: (2, chain((0, 2, 1)))})]
    assert [*committed().check_members({3: (4, OTHER)})]


def test_members_may_have_batches_of_a_deposed_leader_below_their_log_start() -> None:
    partition = committed()
    other = chain((0, 2, 7))
    other.bridge(LOG, 6)
    other.hashes[1:] = [b"other"] * 2
    assert not [*partition.check_members({3: (6, other)}, {3: 2})]
    assert not [*partition.check_members({3: (6, chain((0, 6, 7)))}, {3: 6})], "an empty log"
    assert [*partition.check_members({3: (6, other)}, {3: 0})]
    assert [*partition.check_members({3: (6, other)}, {3: 1})], "the batch at 0 has record 1"
    assert [*partition.check_members({3: (4, OTHER)}, {3: 2})]


def test_an_unclean_election_begins_with_the_records_of_its_leader() -> None:
    partition = committed()
    elected = STATE._replace(
        partition_epoch=6, leader_epoch=4, leader=3, isr=(3,), elr=(), recovering=True
    )
    assert not [*partition.changed(elected)]
    assert not [*partition.check_members({3: (4, OTHER)})]
    leads = SEEN._replace(leader_epoch=4, log_end=4, high_watermark=2)
    assert not [*partition.follow(3, leads, OTHER, elected=True)]
    assert partition.high_watermark == 2
    assert not [*partition.follow(3, leads._replace(high_watermark=4), OTHER, elected=False)]
    assert [*partition.check_members({1: (6, LOG)})]
    assert not [*partition.check_members({1: (4, OTHER)})]
