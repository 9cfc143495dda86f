"""Offsets that are committed in a transaction: fenced, pending, and then committed or dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.consumer.consumer_member import ConsumerMember
from odradek.coordinator.group.offsets.offset_store import validate_transactional_commit
from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.verification import NO_GUARD, NOT_VERIFIED
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.coordinator.group.group_machine import Machine
from tests.coordinator.group.on_disk import OnDisk, coordinator, now, settled
from tests.coordinator.group.test_group_coordinator import code_of, commit, stable
from tests.helpers.event_loop import on_loop

E = ErrorCode
PRODUCER, EPOCH = 4_000, 0


def request(offset: int = 9, *, topic: str = "t", **options: Any) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(0, offset, -1, "")
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=options.pop("group_id", "g"),
        producer_id=PRODUCER,
        producer_epoch=options.pop("epoch", EPOCH),
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        **options,
    )


def commit_in_transaction(state: OnDisk, guard: int = NOT_VERIFIED, **options: Any) -> Any:
    return now(state.groups.offsets.commit_transactional(request(**options), guard))


def end(state: OnDisk, committed: bool, epoch: int = EPOCH) -> Any:
    return state.groups.offsets.complete_transaction(0, PRODUCER, epoch, 0, committed)


def offset_of(state: OnDisk, group_id: str = "g") -> int | None:
    value = state.groups.shards.of(group_id).offsets.get(group_id, "t", 0)
    return None if value is None else value.offset


def is_pending(state: OnDisk) -> bool:
    return state.groups.shards.of("g").offsets.is_pending("g", "t", 0)


@pytest.mark.parametrize("committed", [True, False])
def test_pending_offsets_wait_for_the_marker_across_restarts(
    tmp_path: Path, committed: bool
) -> None:
    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path) as state:
            assert code_of(commit(state, 5)) is E.NONE
            assert code_of(commit_in_transaction(state)) is E.NONE
            assert (offset_of(state), is_pending(state)) == (5, True)
        async with coordinator(path) as state:
            assert (offset_of(state), is_pending(state)) == (5, True)
            assert now(end(state, committed)) is E.NONE
            assert (offset_of(state), is_pending(state)) == (9 if committed else 5, False)
        async with coordinator(path) as state:
            assert (offset_of(state), is_pending(state)) == (9 if committed else 5, False)

    run(tmp_path)


@on_loop
async def test_responses_and_markers_wait_for_the_disk(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        response = commit_in_transaction(state)
        assert not response.done
        state.flushes[0].set_result(None)
        assert code_of(await settled(response)) is E.NONE
        ended = end(state, True)
        assert not ended.done
        state.flushes[1].set_result(None)
        assert await settled(ended) is E.NONE
        assert offset_of(state) == 9


@on_loop
async def test_later_plain_commit_is_not_overwritten_by_the_transaction(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        commit_in_transaction(state)
        commit(state, 12)
        end(state, True)
        assert offset_of(state) == 12
    async with coordinator(tmp_path) as state:
        assert offset_of(state) == 12


@on_loop
async def test_unverified_commit_opens_no_transaction(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        assert code_of(commit_in_transaction(state, NO_GUARD)) is E.INVALID_TXN_STATE
        assert code_of(commit_in_transaction(state)) is E.NONE
        assert code_of(commit_in_transaction(state, NO_GUARD)) is E.NONE, "it is open now"


@on_loop
async def test_producer_of_an_older_epoch_is_fenced(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        commit_in_transaction(state, epoch=1)
        response = commit_in_transaction(state, epoch=0)
        assert code_of(response) is E.INVALID_PRODUCER_EPOCH
        with pytest.raises(KafkaError) as error:
            end(state, True, epoch=0)
        assert error.value.code is E.INVALID_PRODUCER_EPOCH
        assert is_pending(state)


@on_loop
async def test_marker_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        commit_in_transaction(state)
        state.append_error = E.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError):
            end(state, True)
        assert is_pending(state)
        state.append_error = None
        end(state, True)
        assert offset_of(state) == 9


@on_loop
async def test_marker_for_a_coordinator_that_stopped_or_loads_is_refused(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        commit_in_transaction(state)
    async with coordinator(tmp_path, start=False) as state:
        with pytest.raises(KafkaError) as error:
            end(state, True)
        assert error.value.code is E.COORDINATOR_NOT_AVAILABLE
        state.groups.start()
        with pytest.raises(KafkaError) as error:
            end(state, True)
        assert error.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
        await state.groups.runtime.loads_done()
        end(state, True)
        assert offset_of(state) == 9


@on_loop
async def test_topics_and_group_ids_are_checked(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        response = commit_in_transaction(state, topic="none")
        assert code_of(response) is E.UNKNOWN_TOPIC_OR_PARTITION
        assert code_of(commit_in_transaction(state, group_id="")) is E.INVALID_GROUP_ID


@on_loop
async def test_former_members_of_the_group_are_fenced(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        own = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        assert code_of(commit_in_transaction(state, **own)) is E.NONE
        state.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
        assert code_of(commit_in_transaction(state, **own)) is E.UNKNOWN_MEMBER_ID


def group_of(state: GroupState) -> ClassicGroup:
    machine = Machine()
    (leader,) = machine.stable()
    machine.join(instance="i", protocols={"range": b"r"})
    machine.join(leader)
    machine.group.state = state
    return machine.group


@pytest.mark.parametrize("state", list(GroupState))
@pytest.mark.parametrize(
    ("member", "instance", "behind", "expected"),
    [
        ("leader", None, 0, E.NONE),
        ("leader", None, 1, E.ILLEGAL_GENERATION),
        ("nobody", None, 0, E.UNKNOWN_MEMBER_ID),
        ("leader", "i", 0, E.FENCED_INSTANCE_ID),
        ("leader", "unknown", 0, E.UNKNOWN_MEMBER_ID),
        # The request has no member and no generation. The transactional id alone fences it.
        ("", None, None, E.NONE),
        # A member id without a generation does not belong to this generation.
        ("leader", None, None, E.ILLEGAL_GENERATION),
    ],
)
def test_fencing_by_group_metadata_in_every_state(
    state: GroupState, member: str, instance: str | None, behind: int | None, expected: ErrorCode
) -> None:
    group = group_of(state)
    asked = request(
        member_id=group.leader_id if member == "leader" else member,
        group_instance_id=instance,
        generation_id=-1 if behind is None else group.generation_id - behind,
    )
    if state is GroupState.DEAD:
        expected = E.COORDINATOR_NOT_AVAILABLE
    elif state is GroupState.EMPTY and behind is None:
        expected = E.NONE
    assert validate_transactional_commit(group, asked) is expected


@pytest.mark.parametrize(
    ("member", "instance", "epoch", "expected"),
    [
        ("a", None, 5, E.NONE),
        ("a", None, 4, E.ILLEGAL_GENERATION),
        ("a", None, -1, E.ILLEGAL_GENERATION),
        ("nobody", None, 5, E.UNKNOWN_MEMBER_ID),
        # The request has no member and no epoch (KAFKA-18060).
        ("", None, -1, E.NONE),
        ("", "i", -1, E.UNKNOWN_MEMBER_ID),
        ("", None, 5, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_fencing_by_the_epochs_of_a_consumer_group(
    member: str, instance: str | None, epoch: int, expected: ErrorCode
) -> None:
    group = ConsumerGroup("g", epoch=5)
    asked = request(member_id=member, group_instance_id=instance, generation_id=epoch)
    if epoch < 0:
        assert validate_transactional_commit(group, asked) is E.NONE, "it has no members"
    group.put_member(ConsumerMember("a", member_epoch=5))
    assert validate_transactional_commit(group, asked) is expected


@pytest.mark.parametrize(("generation", "expected"), [(-1, E.NONE), (1, E.ILLEGAL_GENERATION)])
def test_group_that_does_not_exist(generation: int, expected: ErrorCode) -> None:
    assert validate_transactional_commit(None, request(generation_id=generation)) is expected
