"""AlterReplicaLogDirs (34), versions 1-2: move replicas of this broker to other log directories.

If a replica is already in the requested directory, the result is NONE. The errors of a partition
are checked in this order:

1. INVALID_TOPIC_EXCEPTION if the name of the directory for the move would be too long.
2. LOG_DIR_NOT_FOUND if the path differs from the path of every log directory.
3. KAFKA_STORAGE_ERROR if the requested directory or the replica's directory is offline.
4. UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist.
5. REPLICA_NOT_AVAILABLE if its replica is on another node (the node's id was changed).

If a partition is requested twice, the last directory applies, and the response has it once.

Deviations from Kafka: a replica stays in the directory in which it was created. A request for
another directory is INVALID_REQUEST. Kafka copies the log. While any directory is offline, the
error is KAFKA_STORAGE_ERROR, as in Kafka. A directory requested for a partition that does not exist
yet is not remembered. KIP-113.
"""

from __future__ import annotations

import logging

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each_partition
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log.directories.directory_names import FILE_NAME_BYTES_MAX
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
"""Length of the suffix that Kafka adds to the name of a moved directory. The 32 digits of a UUID
stand between the dot and ``-future``.
"""
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
                "%d replicas stay in their log directories, among them %s: AlterReplicaLogDirs "
                "cannot move them to other ones",
                alteration.moves_refused,
                alteration.first_refused,
            )
        return AlterReplicaLogDirsResponse(results=results)

    return each_partition(
        requested.items(),
        lambda topic: topic[1].items(),
        lambda topic, partition: alteration.result(topic[0], partition),
        lambda topic, results: AlterReplicaLogDirTopicResult(topic[0], results),
    ).then(response)


class _ReplicaMoves:
    """The moves in one request. It counts the refused moves that Kafka would begin."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._log_dirs = {each.path: each for each in services.log_manager.log_dirs}
        self.moves_refused = 0
        self.first_refused: TopicPartition | None = None

    def result(
        self, topic: str, partition_path: tuple[int, str]
    ) -> AlterReplicaLogDirPartitionResult:
        """Return the result of one move. `partition_path` is the partition and the directory."""
        number, path = partition_path
        try:
            self._check(TopicPartition(topic, number), path)
        except KafkaError as error:
            return AlterReplicaLogDirPartitionResult(number, error.code)
        return AlterReplicaLogDirPartitionResult(number, ErrorCode.NONE)

    def _check(self, topic_partition: TopicPartition, path: str) -> None:
        """Raise KafkaError unless the replica is already in the directory."""
        if len(str(topic_partition)) + FUTURE_SUFFIX_LENGTH > FILE_NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log_dir = self._log_dirs.get(path)
        if log_dir is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)
        if log_dir.offline:
            raise log_dir.error()
        if self._current(topic_partition) is not log_dir:
            raise self._move_refused(topic_partition)

    def _current(self, topic_partition: TopicPartition) -> LogDir:
        log_dir = self._services.replica_manager.replica_log_dir(topic_partition)
        if log_dir is not None:
            return log_dir
        if self._services.image().partition(*topic_partition) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)

    def _move_refused(self, topic_partition: TopicPartition) -> KafkaError:
        offline = next((each for each in self._log_dirs.values() if each.offline), None)
        if offline is not None:
            return offline.error()
        self.moves_refused += 1
        self.first_refused = self.first_refused or topic_partition
        return KafkaError(ErrorCode.INVALID_REQUEST)
