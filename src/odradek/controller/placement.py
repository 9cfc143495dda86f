"""Placement of new topics and partitions on brokers. Pure decisions.

The rules and their error messages are those of Kafka's ``ReplicationControlManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import chain

from odradek.config.broker import BrokerConfig
from odradek.controller.replica_placer import Between, placing_replicas
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid, uuid_to_string
from odradek.metadata.image import BrokerRegistration, MetadataImage, PartitionImage, TopicImage
from odradek.metadata.topic_changes import USE_DEFAULT, CreatedTopic, NewPartitions, NewTopic
from odradek.metadata.topics import (
    check_change_count,
    check_topic_configs,
    check_topic_name,
    config_elements,
    new_partition,
)
from odradek.slicing import ELEMENTS_PER_SLICE


def placing_topics(
    image: MetadataImage,
    config: BrokerConfig,
    topics: Sequence[NewTopic],
    new_uuid: Callable[[], Uuid],
    between: Between = min,
) -> Generator[None, None, list[CreatedTopic | KafkaError]]:
    """Decide on the topics of one request, in order and in time slices.

    Return each new topic or its error. `between` chooses where the rotation over the brokers
    begins. The default is the first one.
    """
    plan = _Plan(image, config, between)
    left = ELEMENTS_PER_SLICE
    results: list[CreatedTopic | KafkaError] = []
    for topic in topics:
        try:
            check_change_count(len(topics))
            results.append((yield from plan.adding(topic, topic.topic_id or new_uuid())))
        except KafkaError as error:
            results.append(error.with_traceback(None))
        left -= 1 + len(topic.configs) + config_elements(value for _, value in topic.configs)
        if isinstance(results[-1], CreatedTopic):
            left -= results[-1].image.partition_count
        if left <= 0:
            left = ELEMENTS_PER_SLICE
            yield
    return results


class _Plan:
    """The topics of one request while they are planned: their names, and the count of changes."""

    def __init__(self, image: MetadataImage, config: BrokerConfig, between: Between) -> None:
        self._image = image
        self._config = config
        self._between = between
        self._new: set[TopicName] = set()
        self._new_ids: set[Uuid] = set()
        # Names by their unified text, only of names that can collide. Built when one is requested.
        self._ambiguous: dict[str, TopicName] | None = None
        self._changes = 0

    def adding(self, topic: NewTopic, topic_id: Uuid) -> Generator[None, None, CreatedTopic]:
        check_topic_name(topic.name)
        self._check_free(topic.name)
        if topic.topic_id is not None:
            self._check_id(topic_id)
        configs = _checked_configs(self._config, topic)
        if topic.assignments:
            replicas = yield from _manual_assignment(self._image, topic)
        else:
            replicas = yield from _automatic_assignment(
                self._image, self._config, topic, self._between
            )
        changes = 1 + len(replicas) + len(configs)
        check_change_count(self._changes + changes)
        self._changes += changes
        partitions = yield from _new_partitions(0, replicas)
        name = TopicName(topic.name)
        self._new.add(name)
        self._new_ids.add(topic_id)
        if self._ambiguous is not None and is_ambiguous(name):
            self._ambiguous[unified(name)] = name
        return CreatedTopic(TopicImage(name, topic_id, partitions), configs)

    def _check_id(self, topic_id: Uuid) -> None:
        """Refuse an id that a topic has, or a deleted topic whose logs may still exist."""
        if (
            topic_id in self._new_ids
            or topic_id in self._image.topics_by_id
            or topic_id in self._image.deletions
        ):
            text = f"A topic with the id {uuid_to_string(topic_id)} already exists."
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, text)

    def _check_free(self, name: str) -> None:
        """Refuse an existing name. In Kafka's metrics '.' and '_' are the same character."""
        if name in self._image.topics_by_name or name in self._new:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if not is_ambiguous(name):
            return
        if self._ambiguous is None:
            existing = (each for each, _ in self._image.topics_by_name.unordered_items())
            self._ambiguous = {
                unified(each): each for each in chain(existing, self._new) if is_ambiguous(each)
            }
        other = self._ambiguous.get(unified(name))
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )


def is_ambiguous(name: str) -> bool:
    """Return whether another name may collide with this one."""
    return "." in name or "_" in name


def unified(name: str) -> str:
    """Return the same text for all names that collide."""
    return name.replace(".", "_")


def _new_partitions(
    first: int, replicas: Sequence[tuple[BrokerId, ...]]
) -> Generator[None, None, list[PartitionImage]]:
    partitions = []
    for count, ids in enumerate(replicas, 1):
        partitions.append(new_partition(first + count - 1, ids))
        if not count % ELEMENTS_PER_SLICE:
            yield
    return partitions


def placing_partitions(
    image: MetadataImage, request: NewPartitions, between: Between = min
) -> Generator[None, None, TopicImage]:
    """Return the topic with the partitions added, after time slices.

    A request adds partitions to a topic only once. `between` is as for `placing_topics`.

    Raises:
        KafkaError: The request is refused.
    """
    topic = image.topics_by_name.get(TopicName(request.name))
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    present = len(topic.partitions)
    if request.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if request.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); "
            f"{request.count} would not be an increase.",
        )
    check_change_count(request.count - present)
    replicas = yield from _added_replicas(image, topic, request, between)
    added = yield from _new_partitions(present, replicas)
    changed = {partition.partition: partition for partition in added}
    return TopicImage(topic.name, topic.topic_id, topic.partitions.with_changes(changed))


def _added_replicas(
    image: MetadataImage, topic: TopicImage, request: NewPartitions, between: Between
) -> Generator[None, None, list[tuple[BrokerId, ...]]]:
    additional = request.count - len(topic.partitions)
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        last = topic.partitions[-1].replicas
        return (yield from placing_replicas(image.brokers, additional, factor, between, last))
    if len(request.assignments) != additional:
        raise _bad_assignment(
            f"Attempted to add {additional} additional partition(s), "
            f"but only {len(request.assignments)} assignment(s) were specified."
        )
    replicas: list[tuple[BrokerId, ...]] = []
    for count, ids in enumerate(request.assignments, 1):
        replicas.append(checked_replicas(image.brokers, ids, factor))
        if not count % ELEMENTS_PER_SLICE:
            yield
    for number, each in enumerate(replicas, len(topic.partitions)):
        _check_active(image, number, each)
    return replicas


def _checked_configs(config: BrokerConfig, topic: NewTopic) -> dict[str, str]:
    missing = [name for name, value in topic.configs if value is None]
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(missing)}",
        )
    configs = {name: value for name, value in topic.configs if value is not None}
    check_topic_configs(config, configs)
    return configs


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _manual_assignment(
    image: MetadataImage, topic: NewTopic
) -> Generator[None, None, list[tuple[BrokerId, ...]]]:
    for name, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != USE_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    check_change_count(len(topic.assignments))
    replicas: dict[int, tuple[BrokerId, ...]] = {}
    factor: int | None = None
    for count, (number, ids) in enumerate(topic.assignments, 1):
        if not count % ELEMENTS_PER_SLICE:
            yield
        if number in replicas:
            raise _bad_assignment(
                f"Found multiple manual partition assignments for partition {number}"
            )
        replicas[number] = checked_replicas(image.brokers, ids, factor)
        factor = len(ids)
    for number, each in replicas.items():
        _check_active(image, number, each)
    if sorted(replicas) != list(range(len(replicas))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return [replicas[number] for number in range(len(replicas))]


def _check_active(image: MetadataImage, number: int, replicas: Sequence[BrokerId]) -> None:
    """Refuse an assignment without a broker that can lead the new partition.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    if not any(map(image.is_eligible, replicas)):
        raise _bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {number} are "
            "fenced or in controlled shutdown."
        )


def checked_replicas(
    brokers: Mapping[BrokerId, BrokerRegistration], ids: Sequence[int], factor: int | None = None
) -> tuple[BrokerId, ...]:
    """Return the replicas of a manual assignment.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT. There are not `factor` replicas, one occurs twice,
            or a broker is not registered.
    """
    if not ids:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    previous: int | None = None
    for broker in sorted(ids):
        if broker not in brokers:
            raise _bad_assignment(
                f"The manual partition assignment includes broker {broker}, "
                "but no such broker is registered."
            )
        if broker == previous:
            raise _bad_assignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        previous = broker
    if factor is not None and len(ids) != factor:
        raise _bad_assignment(
            f"The manual partition assignment includes a partition with {len(ids)} replica(s), "
            f"but this is not consistent with previous partitions, which have {factor} replica(s)."
        )
    return tuple(BrokerId(broker) for broker in ids)


def _automatic_assignment(
    image: MetadataImage, config: BrokerConfig, topic: NewTopic, between: Between
) -> Generator[None, None, list[tuple[BrokerId, ...]]]:
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    count, factor = topic.num_partitions, topic.replication_factor
    if count == USE_DEFAULT:
        count = config.get_int("num.partitions")
    if factor == USE_DEFAULT:
        factor = config.get_int("default.replication.factor")
    check_change_count(count)
    return (yield from placing_replicas(image.brokers, count, factor, between))
