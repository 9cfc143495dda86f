"""One transactional id for tests: decisions are committed, markers are written, and the test moves
time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

from odradek.coordinator.transaction import transaction_decisions as state
from odradek.coordinator.transaction.transaction_decisions import (
    Decide,
    Identity,
    Init,
    ProducerIdAndEpoch,
    TransactionResult,
)
from odradek.coordinator.transaction.transaction_metadata import (
    PREPARED,
    TransactionMetadata,
    TransactionState,
    from_record,
    to_record,
)
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition

START_MS = 1_000_000
TIMEOUT_MS = 60_000


def partitions(*names: str) -> frozenset[TopicPartition]:
    """``a0`` is partition 0 of topic a."""
    return frozenset(TopicPartition(name[:-1], int(name[-1])) for name in names)


@dataclass
class Machine:
    """Driver of one transactional id. Decisions are committed at once, and `finish` writes the
    markers."""

    transaction_version: int = 1
    current: TransactionMetadata | None = None
    now_ms: int = START_MS
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def run(self, decide: Decide) -> TransactionResult:
        decision = decide(self.current, None)
        if decision.needs_producer_id:
            decision = decide(self.current, next(self.ids))
            assert not decision.needs_producer_id
        if decision.next is not None:
            self.current = decision.next
        return decision

    def init(
        self, expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> TransactionResult:
        known = None if expected is None else ProducerIdAndEpoch(*expected)
        event = Init("x", timeout_ms, known)
        version = self.transaction_version
        return self.run(
            lambda current, fresh: state.init_producer_id(
                current, event, self.now_ms, version, fresh
            )
        )

    def add(self, identity: tuple[int, int], *names: str, version: int = 0) -> ErrorCode:
        who = Identity("x", *identity)
        requested = partitions(*names)
        return self.run(
            lambda current, _: state.add_partitions(current, who, requested, self.now_ms, version)
        ).response.code

    def verify(self, identity: tuple[int, int], *names: str) -> list[ErrorCode]:
        who = Identity("x", *identity)
        codes = state.verify_partitions(self.current, who, partitions(*names))
        return [codes[each] for each in sorted(codes)]

    def end(
        self, identity: tuple[int, int], committed: bool, version: int = 0
    ) -> TransactionResult:
        who = Identity("x", *identity)
        return self.run(
            lambda current, fresh: state.end_transaction(
                current, who, committed, self.now_ms, version, fresh
            )
        )

    def time_out(self) -> bool:
        """Abort the transaction if it is open for too long."""
        current = self.current
        if current is None or not state.is_timed_out(current, self.now_ms):
            return False
        version = self.transaction_version
        self.run(lambda _, fresh: state.fence(current, self.now_ms, version, fresh))
        return True

    def finish(self) -> bool:
        """Complete the transaction: all markers are written."""
        if self.current is None or self.current.state not in PREPARED:
            return False
        self.current = state.complete(self.current, self.now_ms)
        return True

    def restart(self) -> None:
        """Restart with the state of the log only."""
        if self.current is not None:
            record = to_record(self.current, self.transaction_version)
            self.current = from_record(record.key, record.value)

    def set(self, **changes: object) -> None:
        assert self.current is not None
        self.current = replace(self.current, **changes)  # type: ignore[arg-type]

    @property
    def state(self) -> TransactionState:
        assert self.current is not None
        return self.current.state

    @property
    def identity(self) -> tuple[int, int]:
        assert self.current is not None
        return self.current.producer_id, self.current.producer_epoch


def begun(version: int = 0, level: int = 1) -> tuple[Machine, tuple[int, int]]:
    """Return a machine with an ongoing transaction, and its producer."""
    machine = Machine(transaction_version=level)
    response = machine.init()
    identity = (response.response.producer_id, response.response.producer_epoch)
    assert machine.add(identity, "a0", "a1", version=version) is ErrorCode.NONE
    return machine, identity
