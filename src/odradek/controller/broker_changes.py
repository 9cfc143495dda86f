"""The records that follow when brokers register, restart, stop or fail. Pure.

One function handles all changes of brokers, from a single expired broker to a take-over: it visits
each partition once, and makes at most one record for it. A record raises the leader epoch and the
partition epoch by one at most, because the partition epoch is the version of the partition's node.

The records of partitions come before those of brokers. If the write is divided and the controller
fails between the parts, the next controller finds the old registration and decides again. In the
other order it would take a broker that restarted uncleanly for an in-sync replica.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field, replace

from odradek.controller.election import (
    Acceptable,
    Election,
    ElectionPolicy,
    changed_partition,
    without_brokers,
    without_lost_log,
)
from odradek.ids import LOST_DIRECTORY, ZERO_UUID, BrokerId, TopicName, Uuid
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
)
from odradek.metadata.image_records import partition_change, registration_record
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.records import MetadataRecord
from odradek.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek.slicing import ELEMENTS_PER_SLICE

ELECTION_COST = 4
"""A decision on a partition takes the time of so many other partitions, which are only visited."""

Policies = Callable[[TopicName], ElectionPolicy]
"""Returns what decides the elections of a topic's partitions."""


@dataclass(slots=True)
class BrokerChanges:
    """Changes of brokers that the controller handles together.

    Attributes:
        after: The new registration of each changed broker. None: it is unregistered.
        restarts: The brokers that have a new process, and whether the previous one stopped cleanly.
            A replica whose directory had failed before the restart did not.
        lost: Those of them that have lost a log directory between two processes.
    """

    after: dict[BrokerId, BrokerRegistration | None] = field(default_factory=dict)
    restarts: dict[BrokerId, bool] = field(default_factory=dict)
    lost: set[BrokerId] = field(default_factory=set)


def planning_broker_changes(
    image: MetadataImage, changes: BrokerChanges, policies: Policies
) -> Generator[None, None, list[MetadataRecord]]:
    """Return the records of the brokers and of the partitions that they concern."""
    removed = [broker for broker, after in changes.after.items() if after is None]
    brokers = image.brokers.with_changes(
        {broker: after for broker, after in changes.after.items() if after is not None}, removed
    )
    records = yield from planning_elections(image, policies, brokers, changes)
    for broker, after in changes.after.items():
        before = image.brokers.get(broker)
        if after is not None:
            if after != before:
                records.append(broker_record(before, after))
        elif before is not None:
            records.append(UnregisterBrokerRecord(broker, before.epoch))
    return records


def planning_elections(
    image: MetadataImage,
    policies: Policies,
    brokers: PersistentMap[BrokerId, BrokerRegistration] | None = None,
    changes: BrokerChanges | None = None,
) -> Generator[None, None, list[MetadataRecord]]:
    """Return the changes of the partitions that follow from the state of the brokers.

    Without changes these are elections of partitions that have no leader although one is
    available, for example because unclean elections were enabled.
    """
    situation = _Situation(
        image.brokers if brokers is None else brokers, changes or BrokerChanges(), image.brokers
    )
    records: list[MetadataRecord] = []
    left = ELEMENTS_PER_SLICE
    for topic in image.topics_by_id.values():
        policy: ElectionPolicy | None = None
        for partition in topic.partitions:
            left -= 1
            if not left:
                left = ELEMENTS_PER_SLICE
                yield
            if not situation.concerns(partition):
                continue
            left = max(1, left - ELECTION_COST)
            if policy is None:
                policy = policies(topic.name)
            after = situation.changed(partition, policy) or partition
            record = partition_change(topic.topic_id, partition, after)
            if record is not None:
                records.append(record)
    return records


class _Situation:
    """The brokers after the changes, and their registrations before."""

    def __init__(
        self,
        brokers: Mapping[BrokerId, BrokerRegistration],
        changes: BrokerChanges,
        before: Mapping[BrokerId, BrokerRegistration],
    ) -> None:
        self._brokers = brokers
        self._before = before
        self._restarts = changes.restarts
        self._lost = changes.lost
        self._eligible = frozenset(
            broker
            for broker, each in brokers.items()
            if not each.fenced and not each.in_controlled_shutdown
        )

    def concerns(self, partition: PartitionImage) -> bool:
        """Return whether the partition may have to change."""
        if partition.leader == NO_LEADER and not self._eligible.isdisjoint(partition.replicas):
            return True
        if partition.elr or partition.directories:
            return True
        if not self._eligible.issuperset(partition.isr):
            return True
        return any(
            broker in partition.isr or broker in partition.last_known_elr
            for broker in self._restarts
        )

    def _has_lost(self, partition: PartitionImage, broker: BrokerId) -> bool:
        """Return whether the replica's directory is missing, or may be the missing directory."""
        directory = directory_of(partition, broker)
        found = self._brokers.get(broker)
        return (
            broker in self._lost
            and found is not None
            and broker in partition.replicas
            and (directory == ZERO_UUID or directory not in found.directories)
        )

    def _had_failed(self, partition: PartitionImage, broker: BrokerId) -> bool:
        """Return whether the replica's directory had failed before the broker restarted.

        A write error may have dropped pages from the page cache. The boot id proves nothing then.
        A broker reports the replicas of a directory before its failure. A replica whose directory
        is not known was therefore in another one.
        """
        directory = directory_of(partition, broker)
        before = self._before.get(broker)
        return (
            before is not None and directory != LOST_DIRECTORY and not is_online(before, directory)
        )

    def _is_clean(self, partition: PartitionImage, broker: BrokerId) -> bool:
        """Return whether a replica still has its records after the restart of its broker."""
        return (
            self._restarts[broker]
            and not self._has_lost(partition, broker)
            and not self._had_failed(partition, broker)
        )

    def changed(self, partition: PartitionImage, policy: ElectionPolicy) -> PartitionImage | None:
        """Return the partition after the changes, one epoch later. None if it is as before.

        All members that restarted or may not lead leave the ISR in one step. Each of them had all
        records below the high watermark. In several steps, only the last one would go to the ELR.
        """
        acceptable = acceptable_leader(self._brokers, partition)
        restarted = [each for each in self._restarts if each in (*partition.isr, *partition.elr)]
        leaving = [each for each in partition.isr if each in restarted or not acceptable(each)]
        now = partition
        if restarted or leaving:
            # A broker that restarted can lead in the second step only. It begins a leader epoch.
            now = (
                without_brokers(
                    partition,
                    leaving,
                    lambda each: each not in self._restarts and acceptable(each),
                    policy,
                    election=Election.ONLINE,
                    unclean_restarts=[
                        each for each in restarted if not self._is_clean(partition, each)
                    ],
                )
                or now
            )
        if len(partition.replicas) > 1:
            now = _without_last_known(now, [b for b in self._lost if self._has_lost(partition, b)])
        if now.leader == NO_LEADER or now.elr:
            now = changed_partition(now, acceptable, policy) or now
        return one_epoch_later(partition, now)


def _without_last_known(partition: PartitionImage, lost: Collection[BrokerId]) -> PartitionImage:
    """Forget a last known leader that begins again with an empty log, as `without_lost_log`."""
    known = tuple(each for each in partition.last_known_elr if each not in lost)
    if known == partition.last_known_elr:
        return partition
    return replace(partition, last_known_elr=known, partition_epoch=partition.partition_epoch + 1)


def with_directories(
    partition: PartitionImage,
    directories: tuple[Uuid, ...],
    brokers: Mapping[BrokerId, BrokerRegistration],
    policy: ElectionPolicy,
) -> PartitionImage:
    """Return a partition whose replicas are in these log directories.

    A replica whose directory is not online leaves the ISR and gives up its leadership at once. A
    replica that gets another directory while its own one is not online begins with an empty log
    (`without_lost_log`). `LOST_DIRECTORY` says nothing about the log.
    """
    now = moved = replace(partition, directories=directories)
    for broker in partition.replicas:
        previous = directory_of(partition, broker)
        found = brokers.get(broker)
        if (
            found is not None
            and previous not in (LOST_DIRECTORY, directory_of(moved, broker))
            and not is_online(found, previous)
        ):
            acceptable = acceptable_leader(brokers, moved)
            now = without_lost_log(now, broker, acceptable, policy) or now
    now = _Situation(brokers, BrokerChanges(), brokers).changed(now, policy) or now
    if now.partition_epoch == partition.partition_epoch:
        now = replace(now, partition_epoch=now.partition_epoch + 1)
    return one_epoch_later(partition, now) or partition


def acceptable_leader(
    brokers: Mapping[BrokerId, BrokerRegistration], partition: PartitionImage
) -> Acceptable:
    """Return which brokers may lead: they are live and have the replica's directory online."""

    def acceptable(broker: BrokerId) -> bool:
        found = brokers.get(broker)
        if found is None or found.fenced or found.in_controlled_shutdown:
            return False
        return is_online(found, directory_of(partition, broker))

    return acceptable


def directory_of(partition: PartitionImage, broker: BrokerId) -> Uuid:
    """Return the log directory of a replica, or zero if it is not known."""
    if not partition.directories or broker not in partition.replicas:
        return ZERO_UUID
    return partition.directories[partition.replicas.index(broker)]


def is_online(broker: BrokerRegistration, directory: Uuid) -> bool:
    """Return whether a broker has a log directory online.

    A broker that has registered no directories has all of them online. A replica whose
    directory is not known counts as online.
    """
    return directory == ZERO_UUID or not broker.directories or directory in broker.directories


def one_epoch_later(before: PartitionImage, after: PartitionImage) -> PartitionImage | None:
    """Merge several changes into one. Return None if there is none."""
    if after.partition_epoch == before.partition_epoch:
        return None
    raised = after.leader_epoch > before.leader_epoch
    return replace(
        after,
        leader_epoch=before.leader_epoch + raised,
        partition_epoch=before.partition_epoch + 1,
    )


def broker_record(before: BrokerRegistration | None, after: BrokerRegistration) -> MetadataRecord:
    """Return the record of a registration, or of its change."""
    if before is None or before.epoch != after.epoch or before.boot_id != after.boot_id:
        return registration_record(after)  # a change record has no boot id
    return BrokerRegistrationChangeRecord(
        after.id,
        after.epoch,
        fenced=_change(before.fenced, after.fenced),
        in_controlled_shutdown=_change(before.in_controlled_shutdown, after.in_controlled_shutdown),
        drained=_change(before.drained, after.drained),
        log_dirs=[] if after.directories == before.directories else list(after.directories),
    )


def _change(before: bool, after: bool) -> int:
    """Return Kafka's number for a flag in ``BrokerRegistrationChangeRecord``."""
    if before == after:
        return 0
    return 1 if after else -1
