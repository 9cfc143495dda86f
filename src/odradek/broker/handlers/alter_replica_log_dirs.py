"""AlterReplicaLogDirs (34), versions 1-2: puts replicas of this broker into other log directories.

A replica that is in the directory already stays there: NONE. Errors by partition, in this order:
INVALID_TOPIC_EXCEPTION where the directory of a move would have too long a name, LOG_DIR_NOT_FOUND
unless the path is that of a log directory to the letter, KAFKA_STORAGE_ERROR for one that is
offline or a replica in such a one, UNKNOWN_TOPIC_OR_PARTITION, and REPLICA_NOT_AVAILABLE for a
partition whose replica is elsewhere (the node's id was changed). Of a partition that is named twice
the last directory counts, and it is answered once.

Deviations from Kafka: a replica stays in the directory in which it was made. Another one is
INVALID_REQUEST, where Kafka copies the log; while any directory is offline KAFKA_STORAGE_ERROR, as
Kafka. A directory named for a partition before there is one is not remembered. KIP-113.
"""

from __future__ import annotations

import logging

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each_partition
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log.directories.log_manager import FILE_NAME_BYTES_MAX
from odradek.log.log_dir import LogDir
from odradek.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from odradek.results import Result

FUTURE_SUFFIX_LENGTH = len(".") + 32 + len("-future")
"""What Kafka adds to the name of a directory that it moves: a UUID's digits between these."""
logger = logging.getLogger(__name__)


def handle(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Result[AlterReplicaLogDirsResponse]:
    requested: dict[str, dict[int, str]] = {}

    def collect(entry: tuple[str, AlterReplicaLogDirTopic], number: int) -> None:
        path, topic = entry
        requested.setdefault(topic.name, {})[number] = path

    collected = each_partition(
        ((log_dir.path, topic) for log_dir in request.dirs for topic in log_dir.topics),
        lambda entry: entry[1].partitions,
        collect,
        lambda entry, _: None,
    )
    return collected.chain(lambda _: _altered(services, requested))


def _altered(
    services: Services, requested: dict[str, dict[int, str]]
) -> Result[AlterReplicaLogDirsResponse]:
    alteration = _ReplicaMoves(services)

    def response(results: list[AlterReplicaLogDirTopicResult]) -> AlterReplicaLogDirsResponse:
        if alteration.moves_refused:
            logger.warning(
                "%d replicas stay in their log directories: they cannot be moved to other ones",
                alteration.moves_refused,
            )
        return AlterReplicaLogDirsResponse(results=results)

    return each_partition(
        requested.items(),
        lambda topic: topic[1].items(),
        lambda topic, partition: alteration.answer(topic[0], partition),
        lambda topic, results: AlterReplicaLogDirTopicResult(topic[0], results),
    ).then(response)


class _ReplicaMoves:
    """One request's, which counts the moves that Kafka would begin."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._log_dirs = {each.path: each for each in services.log_manager.log_dirs}
        self.moves_refused = 0

    def answer(
        self, topic: str, partition_path: tuple[int, str]
    ) -> AlterReplicaLogDirPartitionResult:
        """`partition_path`: (partition, path)."""
        number, path = partition_path
        try:
            self._check(TopicPartition(topic, number), path)
        except KafkaError as error:
            return AlterReplicaLogDirPartitionResult(number, error.code)
        return AlterReplicaLogDirPartitionResult(number, ErrorCode.NONE)

    def _check(self, topic_partition: TopicPartition, path: str) -> None:
        """Raises KafkaError unless the replica is in the directory already."""
        if len(str(topic_partition)) + FUTURE_SUFFIX_LENGTH > FILE_NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log_dir = self._log_dirs.get(path)
        if log_dir is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)
        if log_dir.offline:
            raise log_dir.error()
        if self._current(topic_partition) is not log_dir:
            raise self._move_refused()

    def _current(self, topic_partition: TopicPartition) -> LogDir:
        log_dir = self._services.replica_manager.replica_log_dir(topic_partition)
        if log_dir is not None:
            return log_dir
        if self._services.image().partition(*topic_partition) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)

    def _move_refused(self) -> KafkaError:
        offline = next((each for each in self._log_dirs.values() if each.offline), None)
        if offline is not None:
            return offline.error()
        self.moves_refused += 1
        return KafkaError(ErrorCode.INVALID_REQUEST)
