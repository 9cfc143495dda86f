"""The coordinators of a simulated cluster: their committed logs, and the rules about them.

`CoordinatorModel` follows the committed records of the internal topics (`coordinator_logs`). The
observers of the brokers pass them on, and clients report the responses that they get.
`CoordinatorObserver` compares the shards of one broker with the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from odradek.coordinator.group.group_shard import GroupShard
from odradek.coordinator.runtime import partition_for
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.records.batch import BatchHeader
from odradek.records.control import read_marker
from tests.simulation.coordinator_logs import (
    COMPLETE_OF,
    Commit,
    LogRecord,
    OffsetKey,
    OffsetsLog,
    TransactionLog,
    check_groups,
    ends_another,
    records_in,
)
from tests.simulation.world_settings import INTERNAL_PARTITIONS

if TYPE_CHECKING:
    from tests.simulation.invariants import PartitionModel
    from tests.simulation.machine import Machine

Batches = Iterable[tuple[BatchHeader, bytes]]
FAMILIES = {TRANSACTION_STATE: "transaction", CONSUMER_OFFSETS: "group"}
"""The families of `record_codec` of the internal topics."""


class CoordinatorModel:
    """The committed logs of all coordinators of a cluster.

    Args:
        report: Takes each violation.
        count: Counts events for the coverage.
        find: Returns the rules of a partition, or None if it does not exist.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        count: Callable[[str], None],
        find: Callable[[str, int], PartitionModel | None],
    ) -> None:
        self._report = report
        self._count = count
        self._find = find
        self.transactions: dict[int, TransactionLog] = {}
        self.offsets: dict[int, OffsetsLog] = {}
        self.groups: dict[int, GroupShard] = {}
        self._names: dict[int, str] = {}
        self._unclean: dict[tuple[str, int], int] = {}
        self._markers: dict[tuple[str, int], int] = {}
        self._ended: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._left_open: set[tuple[str, int, int]] = set()

    # -- committed records -------------------------------------------------------------------------

    def log(self, topic: str, number: int) -> TransactionLog | OffsetsLog:
        """Return the log of an internal partition."""
        if topic == TRANSACTION_STATE:
            return self.transactions.setdefault(number, TransactionLog())
        return self.offsets.setdefault(number, OffsetsLog())

    def group_shard(self, number: int) -> GroupShard:
        """Return the groups of a partition of ``__consumer_offsets``, replayed from its log."""
        return self.groups.setdefault(number, GroupShard(number))

    def end(self, topic: str, number: int, model: PartitionModel) -> int:
        """Return the offset from which on the log needs further committed records.

        An unclean election may remove committed records, so the log is read again after it.
        """
        if self._unclean.get((topic, number), 0) != model.unclean_elections:
            self._unclean[topic, number] = model.unclean_elections
            logs: dict[int, Any] = self.offsets
            if topic == TRANSACTION_STATE:
                logs = self.transactions
            logs.pop(number, None)
            if logs is self.offsets:
                self.groups.pop(number, None)
        return self.log(topic, number).end

    def committed(self, topic: str, number: int, model: PartitionModel, batches: Batches) -> None:
        """Add committed batches, up to the true high watermark."""
        log = self.log(topic, number)
        for header, batch in batches:
            if header.last_offset < log.end:
                continue
            for record in records_in(FAMILIES[topic], header, batch):
                if isinstance(log, OffsetsLog):
                    log.add(record)
                    if record.key is not None and not isinstance(record.key, OffsetCommitKey):
                        self.group_shard(number).replay(record.offset, record.key, record.value)
                else:
                    self._add(log, record, model)
            log.end = header.last_offset + 1

    def _add(self, log: TransactionLog, record: LogRecord, model: PartitionModel) -> None:
        for problem in log.add(record):
            self._report(f"{model.name}: {problem}")
        name = record.key.transactional_id
        entry = log.current(name)
        if entry is None:
            return
        self._names[entry.producer_id] = name
        if entry.state in COMPLETE_OF.values():
            begun = log.begun_by.pop(name, record.leader_epoch)
            if model.leaders.get(begun) != model.leaders.get(record.leader_epoch):
                self._count("transactions completed by another coordinator")

    def marker(self, topic: str, number: int, header: BatchHeader, batch: bytes) -> None:
        """Check a marker that was committed in a partition.

        After an unclean election the high watermark passes the same markers again.
        """
        key = (topic, number, header.producer_id)
        ended = header.partition_leader_epoch, header.base_offset
        self._ended[key] = max(self._ended.get(key, ended), ended)
        if header.base_offset <= self._markers.get((topic, number), -1):
            return
        self._markers[topic, number] = header.base_offset
        name = self._names.get(header.producer_id)
        if name is None or read_marker(batch) is None:
            return
        self._count("markers checked")
        entry = self.log_of(name).current(name)
        producer = header.producer_id, header.producer_epoch
        if ends_another(entry, producer, (topic, number)):
            self._report(
                f"{topic}-{number}: the marker at {header.base_offset} ends a transaction of "
                f"{name} whose outcome is not decided: {entry}"
            )

    def has_lost_marker(
        self, topic: str, number: int, producer_id: int, first: BatchHeader
    ) -> bool:
        """Return whether an unclean election has removed the committed marker of a transaction.

        The coordinator has completed the transaction, so it sends no other marker. As in Kafka the
        transaction stays open in the partition, until a later one of the producer ends there.

        Args:
            first: The first batch of the transaction, which is open in the log. After the election
                another transaction may begin at its offset, but in a later leader epoch.
        """
        key, model = (topic, number, producer_id), self._find(topic, number)
        marker_epoch, marker_offset = self._ended.get(key, (-1, -1))
        if (
            model is None
            or marker_epoch >= model.unclean_epoch
            or first.base_offset >= marker_offset
            or first.partition_leader_epoch > marker_epoch
        ):
            return False
        if key not in self._left_open:
            self._left_open.add(key)
            self._count("transactions left open by a lost marker")
        return True

    def open_transactions(self) -> list[str]:
        """Return the transactional ids whose transaction has not ended."""
        return [name for log in self.transactions.values() for name in log.open()]

    # -- responses to clients ----------------------------------------------------------------------

    def log_of(self, name: str) -> TransactionLog:
        """Return the log of a transactional id."""
        number = partition_for(name, INTERNAL_PARTITIONS)
        return self.transactions.setdefault(number, TransactionLog())

    def _committed_at(self, topic: str, name: str, step: int) -> int | None:
        """Return the committed end of the partition of a group or id when a response was sent."""
        model = self._find(topic, partition_for(name, INTERNAL_PARTITIONS))
        if model is None or model.unclean_elections:
            return None
        return model.committed_at(step)

    def outcome_sent(
        self, name: str, producer: tuple[int, int], committed: bool, since: int, step: int
    ) -> None:
        """Check the response to an EndTxn without an error, which a broker has sent in `step`.

        Args:
            name: The transactional id.
            producer: Producer id and epoch of the request.
            committed: The requested outcome.
            since: `end` of the log when the transaction began.
        """
        end = self._committed_at(TRANSACTION_STATE, name, step)
        if end is None:
            return
        self._count("outcomes checked")
        if not self.log_of(name).has_outcome(name, producer, committed, since, end):
            what = "commit" if committed else "abort"
            self._report(
                f"transaction {name} of producer {producer}: the {what} was answered, but no such "
                f"outcome is committed from {since} to {end}"
            )

    def commit_sent(self, key: OffsetKey, offset: int, metadata: str, step: int) -> None:
        """Check the response to a commit of an offset without an error, sent in `step`."""
        end = self._committed_at(CONSUMER_OFFSETS, key[0], step)
        if end is None:
            return
        self._count("commits checked")
        log = self._offsets_of(key[0])
        found = log.find(key, offset, metadata, end)
        if found is None:
            self._report(f"offset {offset} of {key} was answered, but is not committed below {end}")
        elif log.newest.get(key) is found:
            log.note_answer(key, found)

    def commit_decided(self, key: OffsetKey, offset: int, metadata: str) -> None:
        """Note that the transaction of a commit that was answered before is committed."""
        log = self._offsets_of(key[0])
        found = log.find(key, offset, metadata, log.end)
        if found is not None:
            log.note_answer(key, found)

    def _offsets_of(self, group: str) -> OffsetsLog:
        number = partition_for(group, INTERNAL_PARTITIONS)
        return self.offsets.setdefault(number, OffsetsLog())

    def answered(self, key: OffsetKey) -> int:
        """Return the record of the newest answered commit, for `fetch_sent`."""
        return self._offsets_of(key[0]).answered.get(key, -1)

    def fetch_sent(
        self, key: OffsetKey, offset: int, metadata: str, answered: int, step: int
    ) -> None:
        """Check an offset that OffsetFetch has returned in `step`, -1 for none.

        `answered` is that of the moment before the request.
        """
        end = self._committed_at(CONSUMER_OFFSETS, key[0], step)
        if end is None:
            return
        self._count("fetched offsets checked")
        log = self._offsets_of(key[0])
        found = None if offset < 0 else log.find(key, offset, metadata, end)
        if found is None and offset >= 0:
            self._report(f"offset {offset} of {key} was returned, but is not committed below {end}")
        elif (-1 if found is None else found.record_offset) < answered:
            self._report(
                f"offset {offset} of {key} was returned ({found}), but the commit at {answered} "
                "had been answered before"
            )
        elif found is not None:
            log.note_answer(key, found)


class CoordinatorObserver:
    """The shards of one broker. The observer of the broker calls it."""

    def __init__(
        self,
        machine: Machine,
        model: CoordinatorModel,
        report: Callable[[str], None],
        count: Callable[[str], None],
        find: Callable[[str, int], PartitionModel | None],
    ) -> None:
        self._machine = machine
        self._model = model
        self._report = report
        self._count = count
        self._find = find
        self._served: tuple[Any, ...] = ()

    def step(self, coordinators: Any) -> None:
        """Check the shards that began to serve in this step."""
        transactions, groups = coordinators.made_transactions, coordinators.made_groups
        served: tuple[Any, ...] = ()
        if transactions is not None:
            served = (*transactions.runtime._shards.values(),)
        if groups is not None:
            served = (*served, *groups.runtime._shards.values())
        if served != self._served:
            before, self._served = self._served, served
            for topic, runtime in _runtimes(coordinators):
                for number, shard in runtime._shards.items():
                    if all(shard is not each for each in before):
                        self._begins(topic, number, runtime._lifecycles[number])

    def ended(self) -> None:
        """The process of the broker has ended."""
        self._served = ()

    def _begins(self, topic: str, number: int, lifecycle: Any) -> None:
        """A shard serves when all records that it has loaded are committed."""
        model = self._find(topic, number)
        if not lifecycle._log_end_offset or model is None:
            return
        self._count(f"coordinator loads of {FAMILIES[topic]}s")
        if lifecycle._log_end_offset > model.high_watermark:
            self._report(
                f"{self._machine.host}: the coordinator of {topic}-{number} serves what it has "
                f"loaded below {lifecycle._log_end_offset}, but records below "
                f"{model.high_watermark} are committed"
            )

    def serves(self, coordinators: Any, topic: str, number: int) -> bool:
        """Return whether the broker serves the shard of a partition."""
        return any(
            number in runtime._shards for each, runtime in _runtimes(coordinators) if each == topic
        )

    def replay(self, coordinators: Any, later: Callable[[str, int, int], Batches | None]) -> None:
        """Compare the shards with a replay of their logs.

        A shard that another broker has succeeded is not compared.

        Args:
            coordinators: The coordinators of the broker.
            later: Returns the batches of a partition from an offset on, or None if they cannot be
                read now.
        """
        for topic, runtime in _runtimes(coordinators):
            for number, shard in runtime._shards.items():
                model, epoch = self._find(topic, number), runtime._lifecycles[number].leader_epoch
                if model is None or model.awaits_leader or model.epoch != epoch:
                    continue
                start = self._model.end(topic, number, model)
                batches = later(topic, number, start)
                if batches is None:
                    continue
                for problem in self._compare(topic, number, shard, [*batches]):
                    self._report(f"{self._machine.host} {topic}-{number}: {problem}")

    def _compare(
        self, topic: str, number: int, shard: Any, batches: list[tuple[BatchHeader, bytes]]
    ) -> Iterator[str]:
        log = self._model.log(topic, number)
        if isinstance(log, TransactionLog):
            self._count("coordinator replays checked")
            later = (
                record
                for header, batch in batches
                for record in records_in(FAMILIES[topic], header, batch)
            )
            yield from log.check(shard.transactions, later)
        elif not batches and not shard.offsets._unapplied:
            self._count("coordinator replays checked")
            yield from log.check(_offsets_of(shard.offsets._by_group))
            for producer_id in sorted({*log.pending, *shard.offsets._pending}):
                expected = log.pending.get(producer_id, {})
                found = _offsets_of(shard.offsets._pending.get(producer_id, {}))
                if expected != found:
                    yield f"pending of producer {producer_id}: {found}, a replay has {expected}"
            yield from check_groups(self._model.group_shard(number).groups, shard.groups)


def _runtimes(coordinators: Any) -> Iterator[tuple[str, Any]]:
    """Yield topic and runtime of each coordinator that exists."""
    if coordinators.made_transactions is not None:
        yield TRANSACTION_STATE, coordinators.made_transactions.runtime
    if coordinators.made_groups is not None:
        yield CONSUMER_OFFSETS, coordinators.made_groups.runtime


def _offsets_of(groups: Mapping[str, Mapping[str, Mapping[int, Any]]]) -> dict[OffsetKey, Commit]:
    """Return the commits of an `OffsetStore` as the log has them."""
    return {
        (group, topic, number): Commit(found.record_offset, found.offset, found.metadata)
        for group, topics in groups.items()
        for topic, partitions in topics.items()
        for number, found in partitions.items()
    }
