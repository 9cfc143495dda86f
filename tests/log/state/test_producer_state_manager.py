"""Idempotent producers: the rules, compared with a slow model, and the two files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.producer_state_manager import (
    LATE_TRANSACTION_BUFFER_MS,
    WINDOW_BATCHES,
    CorruptSnapshot,
    LateTransaction,
    ProducerStateManager,
)
from odradek.records.batch import INT32_MAX, TRANSACTIONAL_MASK, increment_sequence
from odradek.records.control import EndTransactionMarker

PID = 7


def append(
    state: ProducerStateManager,
    epoch: int,
    first: int,
    count: int = 1,
    offset: int = 0,
    stamp: int = 5,
) -> str | int:
    """Return the outcome of a batch: its offset if appended, "dup N", or the error's name."""
    try:
        found = state.check(PID, epoch, first, count - 1)
    except KafkaError as error:
        return error.code.name
    if found is not None:
        return f"dup {found.first_offset}"
    state.update(PID, epoch, first, count - 1, offset + count - 1, stamp)
    return offset


def test_sequences_are_consecutive() -> None:
    state = ProducerStateManager()
    assert append(state, 0, 0, 3, 10) == 10
    assert append(state, 0, 3, 2, 13) == 13
    assert append(state, 0, 6) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert append(state, 0, 4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert append(state, 0, 5, 1, 15) == 15


def test_unknown_producer_may_start_with_any_sequence() -> None:
    assert append(ProducerStateManager(), 3, 1_000) == 0


def test_exactly_the_last_five_batches_are_duplicates() -> None:
    state = ProducerStateManager()
    for at in range(8):
        append(state, 0, at * 2, 2, 100 + at * 2)
    for at in range(8):
        expected = f"dup {100 + at * 2}" if at >= 3 else "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert append(state, 0, at * 2, 2) == expected
    assert append(state, 0, 14, 1) == "OUT_OF_ORDER_SEQUENCE_NUMBER", "another end is no duplicate"


def test_new_epoch_begins_at_zero_and_the_old_one_is_fenced() -> None:
    state = ProducerStateManager()
    append(state, 1, 0, 5, 0)
    assert append(state, 2, 5) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert append(state, 2, 0, 1, 9) == 9
    assert append(state, 1, 5) == "INVALID_PRODUCER_EPOCH"
    assert append(state, 1, 0, 5) == "INVALID_PRODUCER_EPOCH"
    assert append(state, 2, 0, 1) == "dup 9"


def test_sequences_wrap_to_zero() -> None:
    state = ProducerStateManager()
    append(state, 0, INT32_MAX - 1, 4, 0)
    assert append(state, 0, 2, 1, 4) == 4
    other = ProducerStateManager()
    append(other, 0, INT32_MAX, 1, 0)
    assert append(other, 0, 0, 1, 1) == 1
    assert append(other, 0, INT32_MAX, 1) == "dup 0"


def test_old_producers_expire() -> None:
    state = ProducerStateManager()
    append(state, 0, 0, stamp=1_000)
    assert state.expire(1_999, 1_000) == 0
    assert state.expire(2_000, 1_000) == 1
    assert append(state, 0, 77) == 0


batches = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 3]),
        st.integers(0, 2),
        st.integers(0, 12) | st.sampled_from([INT32_MAX - 1, INT32_MAX]),
        st.integers(1, 3),
    ),
    max_size=60,
)


@given(batches)
def test_producer_state_agrees_with_a_slow_model(sent: list[tuple[int, int, int, int]]) -> None:
    """The model keeps all batches of a producer's epoch and follows the rules literally."""
    state = ProducerStateManager()
    model: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}
    offset = 0
    for pid, epoch, first, count in sent:
        last = increment_sequence(first, count - 1)
        known = model.get(pid)
        expected: str | int = offset
        if known is not None:
            known_epoch, history = known
            same = [o for f, e, o in history[-WINDOW_BATCHES:] if (f, e) == (first, last)]
            next_sequence = increment_sequence(history[-1][1], 1)
            if epoch == known_epoch and first == next_sequence:
                pass
            elif epoch == known_epoch and same:
                expected = f"dup {same[0]}"
            elif epoch < known_epoch:
                expected = "INVALID_PRODUCER_EPOCH"
            elif epoch == known_epoch or first != 0:
                expected = "OUT_OF_ORDER_SEQUENCE_NUMBER"
        try:
            found = state.check(pid, epoch, first, count - 1)
            outcome: str | int = f"dup {found.first_offset}" if found else offset
        except KafkaError as error:
            outcome = error.code.name
        assert outcome == expected
        if outcome == offset:
            state.update(pid, epoch, first, count - 1, offset + count - 1, 1)
            history = known[1] if known is not None and known[0] == epoch else []
            model[pid] = (epoch, [*history, (first, last, offset)])
            offset += count


@given(batches)
def test_files_restore_the_whole_window(sent: list[tuple[int, int, int, int]]) -> None:
    state = ProducerStateManager()
    for at, (pid, epoch, first, count) in enumerate(sent):
        state.update(pid, epoch, first, count - 1, at * 10 + count - 1, 1_000 + at)
    loaded = ProducerStateManager()
    loaded.load_snapshot(state.encode_snapshot())
    assert all(len(entry.batches) == 1 for entry in loaded.producers.values())
    loaded.load_window(state.encode_window())
    assert loaded.encode_snapshot() == state.encode_snapshot()
    assert loaded.encode_window() == state.encode_window()
    for pid, entry in state.producers.items():
        assert loaded.producers[pid].batches == entry.batches


@given(data=st.data(), damage=st.sampled_from(["cut", "flip"]))
def test_torn_files_are_recognised(data: st.DataObject, damage: str) -> None:
    state = ProducerStateManager()
    append(state, 0, 0, 3, 10)
    for whole, load in (
        (state.encode_snapshot(), ProducerStateManager().load_snapshot),
        (state.encode_window(), ProducerStateManager().load_window),
    ):
        position = data.draw(st.integers(0, len(whole) - 1))
        torn = bytearray(whole[:position] if damage == "cut" else whole)
        if damage == "flip":
            torn[position] ^= 1 << data.draw(st.integers(0, 7))
        with pytest.raises(CorruptSnapshot):
            load(bytes(torn))


def test_snapshot_is_kafkas_byte_for_byte() -> None:
    """The layout of ``ProducerSnapshot.json``: version, CRC-32C, count, one entry."""
    state = ProducerStateManager()
    append(state, 2, 4, 3, 10, 99)
    snapshot = state.encode_snapshot()
    assert snapshot[:2] == b"\0\1"
    assert snapshot[6:10] == b"\0\0\0\1"
    entry = snapshot[10:]
    assert entry == (
        (7).to_bytes(8, "big")
        + (2).to_bytes(2, "big")
        + (6).to_bytes(4, "big")
        + (12).to_bytes(8, "big")
        + (2).to_bytes(4, "big")
        + (99).to_bytes(8, "big")
        + b"\xff" * 4
        + b"\xff" * 8
    )


def test_error_codes_are_those_of_the_clients_contract() -> None:
    state = ProducerStateManager()
    append(state, 0, 0)
    with pytest.raises(KafkaError) as caught:
        state.check(PID, 0, 9, 0)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


MAX_TIMEOUT_MS = 900_000
LATE_MS = MAX_TIMEOUT_MS + LATE_TRANSACTION_BUFFER_MS


def begin(state: ProducerStateManager, producer_id: int, offset: int, stamp: int) -> None:
    """A transactional batch of one record."""
    state.update(producer_id, 0, 0, 0, offset, stamp, TRANSACTIONAL_MASK)


def test_transaction_is_late_after_the_maximum_timeout_without_writes() -> None:
    state = ProducerStateManager()
    assert state.late_transaction(10 * LATE_MS, MAX_TIMEOUT_MS) is None, "none is open"
    begin(state, PID, 3, 1_000)
    assert state.late_transaction(1_000 + LATE_MS, MAX_TIMEOUT_MS) is None
    late = state.late_transaction(1_001 + LATE_MS, MAX_TIMEOUT_MS)
    assert late == LateTransaction(PID, 3, 1_000)
    state.update(PID, 0, 1, 0, 4, 1_500, TRANSACTIONAL_MASK)
    assert state.late_transaction(1_001 + LATE_MS, MAX_TIMEOUT_MS) is None, "it was written to"


def test_the_oldest_transaction_decides_and_the_next_one_when_it_has_ended() -> None:
    state = ProducerStateManager()
    begin(state, 1, 0, 5_000)
    begin(state, 2, 1, 1_000)
    now_ms = 2_000 + LATE_MS
    assert state.late_transaction(now_ms, MAX_TIMEOUT_MS) is None, "as in Kafka"
    state.end_transaction(1, 0, EndTransactionMarker(False, 0), 2, 6_000)
    assert state.late_transaction(now_ms, MAX_TIMEOUT_MS) == LateTransaction(2, 1, 1_000)
    state.end_transaction(2, 0, EndTransactionMarker(False, 0), 3, 6_000)
    assert state.late_transaction(now_ms, MAX_TIMEOUT_MS) is None


def test_late_transaction_without_a_time_is_none() -> None:
    """Records may carry no timestamp."""
    state = ProducerStateManager()
    begin(state, PID, 0, -1)
    assert state.late_transaction(LATE_MS * 2, MAX_TIMEOUT_MS) is None


@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "read"]), st.integers(0, 7))))
def test_first_unstable_offset_is_that_of_a_slow_model(steps: list[tuple[str, int]]) -> None:
    state = ProducerStateManager()
    open_since: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    end = high_watermark = 0
    for step, number in steps:
        if step == "begin" and number not in open_since:
            state.update(number, 0, -1, 0, end, 5, TRANSACTIONAL_MASK)
            open_since[number] = end
            end += 1
        elif step == "end" and number in open_since:
            state.end_transaction(number, 0, EndTransactionMarker(True, 0), end, 5)
            ended.append((open_since.pop(number), end))
            end += 1
        elif step == "read":
            high_watermark = min(end, high_watermark + number)
            unstable = [first for first, marker in ended if marker >= high_watermark]
            unstable += open_since.values()
            expected = min(unstable, default=None)
            assert state.first_unstable_offset(high_watermark) == expected


def test_reads_do_not_visit_all_ended_transactions_while_a_follower_lags() -> None:
    class Counted(dict[int, int]):
        visits = 0

        def __iter__(self) -> Iterator[int]:
            for each in super().__iter__():
                Counted.visits += 1
                yield each

        def items(self) -> Iterator[tuple[int, int]]:  # type: ignore[override]
            for each in super().items():
                Counted.visits += 1
                yield each

    state = ProducerStateManager()
    state.unreplicated = Counted()
    for offset in range(0, 200, 2):
        state.update(PID, 0, -1, 0, offset, 5, TRANSACTIONAL_MASK)
        state.end_transaction(PID, 0, EndTransactionMarker(True, 0), offset + 1, 5)
        assert state.first_unstable_offset(1) == 0
    assert Counted.visits == 100 + 1, "one for each read, and all of the first one"


@pytest.mark.parametrize(("ended", "opened_later"), [(6, False), (0, False), (0, True)])
def test_read_during_a_truncation_does_not_determine_later_unstable_offsets(
    ended: int, opened_later: bool
) -> None:
    """Another thread replaces the ended transactions after the read has found the dictionary."""
    state, reloaded = ProducerStateManager(), ProducerStateManager()

    class Replacing(dict[int, int]):
        def __iter__(self) -> Iterator[int]:
            state.replace_by(reloaded)
            return super().__iter__()

    state.unreplicated = Replacing({4: 5})
    reloaded.unreplicated = {ended: ended + 1}
    if opened_later:
        begin(reloaded, PID, 2, 5)
    state.first_unstable_offset(1)
    assert state.unreplicated is reloaded.unreplicated
    if opened_later:
        state.end_transaction(PID, 0, EndTransactionMarker(True, 0), 8, 5)
    assert state.first_unstable_offset(1) == ended
