"""DescribeLogDirs (35), versions 1-4: return the log directories and the sizes of partitions.

The response has all partitions (topics are null), or the requested partitions that exist on this
broker. From version 4 on it has the total and the usable bytes of the file system. An offline
directory has KAFKA_STORAGE_ERROR. No partition is a future log, and the lag is always 0.

No deviations from Kafka. KIP-113, KIP-827 (sizes of the file system).
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.environment.files import Files
from odradek.errors import ErrorCode
from odradek.log.directories.log_manager import LogManager
from odradek.log.log_dir import LogDir
from odradek.log.unified_log import UnifiedLog
from odradek.protocol.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from odradek.protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> Result[DescribeLogDirsResponse]:
    manager = services.log_manager
    if request.topics is None:
        return _described(manager, None)
    requested: set[tuple[str, int]] = set()

    def collect(topic: DescribableLogDirTopic) -> None:
        requested.update((topic.topic, number) for number in topic.partitions)

    collected = each(collect, request.topics)
    return collected.chain(lambda _: _described(manager, requested))


def _described(
    manager: LogManager, requested: set[tuple[str, int]] | None
) -> Result[DescribeLogDirsResponse]:
    """Describe the logs of all partitions, or of the requested ones."""
    topics: dict[LogDir, dict[str, DescribeLogDirsTopic]] = {
        log_dir: {} for log_dir in manager.log_dirs
    }

    def describe(log: UnifiedLog) -> None:
        if requested is None or log.topic_partition in requested:
            name, number = log.topic_partition
            topic = topics[log.log_dir].setdefault(name, DescribeLogDirsTopic(name))
            topic.partitions.append(DescribeLogDirsPartition(number, log.size_bytes))

    return each(describe, manager.all_logs()).then(
        lambda _: DescribeLogDirsResponse(
            results=[
                _result(manager.files, each, list(named.values())) for each, named in topics.items()
            ]
        )
    )


def _result(
    files: Files, log_dir: LogDir, topics: list[DescribeLogDirsTopic]
) -> DescribeLogDirsResult:
    path = log_dir.path
    if log_dir.offline:
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path)
    try:
        space = files.space(path)
    except OSError:
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path)
    return DescribeLogDirsResult(
        ErrorCode.NONE,
        path,
        topics,
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
    )
