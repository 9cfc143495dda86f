"""DescribeLogDirs (35), versions 1-4: the log directories, and how large their partitions are.

All partitions (null), or those asked for that are here. From v4 on with the size and the usable
bytes of the file system. A directory that is offline is KAFKA_STORAGE_ERROR. There are no future
logs, and a leader has no lag.

No deviations from Kafka. KIP-113, KIP-827 (sizes of the file system).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from odradek.broker.requests.context import RequestContext, Services
from odradek.errors import ErrorCode
from odradek.log.directories.log_dir import LogDir
from odradek.log.unified_log import UnifiedLog
from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from odradek.protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.slicing import Turns, begun


@begun
async def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    turns = Turns()
    if request.topics is not None:
        wanted = set()
        for each in request.topics:
            await turns.take()
            wanted.update([(each.topic, number) for number in each.partitions])
    manager = services.log_manager
    logs: dict[LogDir, list[UnifiedLog]] = {log_dir: [] for log_dir in manager.log_dirs}
    for log in manager.all_logs():
        await turns.take()
        if wanted is None or log.topic_partition in wanted:
            logs[log.log_dir].append(log)
    return DescribeLogDirsResponse(
        results=[_result(each, await _topics(found, turns)) for each, found in logs.items()]
    )


def _result(log_dir: LogDir, topics: list[DescribeLogDirsTopic]) -> DescribeLogDirsResult:
    path = str(Path(log_dir.path).absolute())
    if log_dir.offline:
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path)
    try:
        space = os.statvfs(path)
    except OSError:
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path)
    return DescribeLogDirsResult(
        ErrorCode.NONE,
        path,
        topics,
        total_bytes=space.f_blocks * space.f_frsize,
        usable_bytes=space.f_bavail * space.f_frsize,
    )


async def _topics(logs: Iterable[UnifiedLog], turns: Turns) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in logs:
        await turns.take()
        name, number = log.topic_partition
        topic = topics.setdefault(name, DescribeLogDirsTopic(name))
        topic.partitions.append(DescribeLogDirsPartition(number, log.size_bytes))
    return list(topics.values())
