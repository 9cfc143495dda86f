"""Decisions about OffsetCommit and TxnOffsetCommit: the records, and the code of each partition."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from odradek.coordinator.coordinator_result import CoordinatorRecord, CoordinatorResult
from odradek.coordinator.group.group_records import offset_commit_record
from odradek.coordinator.group.offsets.offset_block import OffsetBlock
from odradek.errors import ErrorCode
from odradek.ids import TopicName
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.slicing import ELEMENTS_PER_SLICE

NO_RETENTION = -1
TIMESTAMP_MAX = 2**63 - 1

R = TypeVar("R", OffsetCommitResponse, TxnOffsetCommitResponse)
Q = TypeVar("Q", OffsetCommitRequest, TxnOffsetCommitRequest)
Topic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
PartitionResponse = OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition


class CommitContext(NamedTuple):
    """The topics that exist, the time, and ``offset.metadata.max.bytes``."""

    image: MetadataImage
    now_ms: int
    metadata_max: int


def plain_commit(
    request: OffsetCommitRequest, code: ErrorCode, context: CommitContext
) -> CoordinatorResult[OffsetCommitResponse]:
    """Return the result of an OffsetCommit that the group accepts (`code` NONE) or refuses.

    A retention time (versions 2-4) becomes the expire timestamp of the records.
    """
    retention_ms = request.retention_time_ms
    expire_ms = -1
    if retention_ms != NO_RETENTION:
        expire_ms = min(context.now_ms + retention_ms, TIMESTAMP_MAX)
    return _commit(
        request.group_id,
        request.topics,
        code,
        context,
        expire_ms,
        (OffsetCommitResponse, OffsetCommitResponseTopic, OffsetCommitResponsePartition),
    )


def making_commit(
    request: Q,
    code: ErrorCode,
    context: CommitContext,
    decide: Callable[[Q, ErrorCode, CommitContext], CoordinatorResult[R]],
) -> Generator[None, None, tuple[OffsetBlock, R]]:
    """Make the records and the response of `decide(request, code, context)` in time slices.

    Args:
        request: The request.
        code: The group's code for the request.
        context: The topics that exist.
        decide: `plain_commit` or `transactional_commit`.
    """
    block, left = OffsetBlock(request.group_id), ELEMENTS_PER_SLICE
    response = decide(replace(request, topics=[]), code, context).response
    for topic in request.topics:
        left -= 1
        partitions: list[Any] = []
        for first in range(0, max(len(topic.partitions), 1), ELEMENTS_PER_SLICE):
            if left <= 0:
                left = ELEMENTS_PER_SLICE
                yield
            requested = topic.partitions[first : first + ELEMENTS_PER_SLICE]
            part = replace(request, topics=[replace(topic, partitions=requested)])
            made = decide(part, code, context)
            block.add(made.records)
            (of_topic,) = made.response.topics
            if not first:
                partitions = of_topic.partitions
                response.topics.append(of_topic)
            else:
                partitions += of_topic.partitions
            left -= len(requested)
    yield
    return block, response


def comparing_topics(
    request: OffsetCommitRequest | TxnOffsetCommitRequest, old: MetadataImage, new: MetadataImage
) -> Generator[None, None, bool]:
    """Return whether no topic of the request was created or deleted between two images.

    Yields after each time slice.
    """
    names = [topic.name for topic in request.topics]
    for number, name in enumerate(map(TopicName, names), 1):
        if not number % ELEMENTS_PER_SLICE:
            yield
        before, after = old.topics_by_name.get(name), new.topics_by_name.get(name)
        if before is not after and (
            before is None or after is None or before.topic_id != after.topic_id
        ):
            return False
    return True


def transactional_commit(
    request: TxnOffsetCommitRequest, code: ErrorCode, context: CommitContext
) -> CoordinatorResult[TxnOffsetCommitResponse]:
    """Return the result of a TxnOffsetCommit that the group accepts (`code` NONE) or refuses."""
    return _commit(
        request.group_id,
        request.topics,
        code,
        context,
        -1,
        (TxnOffsetCommitResponse, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition),
    )


def _commit(
    group_id: str,
    topics: Sequence[Topic],
    code: ErrorCode,
    context: CommitContext,
    expire_ms: int,
    kinds: tuple[Callable[..., R], Callable[..., object], Callable[..., PartitionResponse]],
) -> CoordinatorResult[R]:
    """Return the records and the response of one request, both made in one pass.

    `code` is the group's code for the request. Partitions that do not exist always get
    UNKNOWN_TOPIC_OR_PARTITION, as in Kafka. `kinds` are the classes of the response, its topics and
    its partitions.
    """
    image, now_ms, metadata_max = context
    known = image.topics_by_name
    response_kind, topic_kind, partition_kind = kinds
    records: list[CoordinatorRecord] = []
    responses = []
    for topic in topics:
        name = topic.name
        found = known.get(TopicName(name))
        count = 0 if found is None else found.partition_count
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            partition_code = code
            if not 0 <= index < count:
                partition_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif code is ErrorCode.NONE and len(metadata) > metadata_max:
                partition_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif code is ErrorCode.NONE:
                key = OffsetCommitKey(group_id, name, index)
                offset, epoch = partition.committed_offset, partition.committed_leader_epoch
                value = OffsetCommitValue(offset, epoch, metadata, now_ms, expire_ms)
                records.append(offset_commit_record(key, value))
            partitions.append(partition_kind(index, partition_code))
        responses.append(topic_kind(name=name, partitions=partitions))
    return CoordinatorResult(records, response_kind(topics=responses))


def commit_failed(response: R, code: ErrorCode) -> R:
    """Set `code` in the response to a commit whose records cannot be committed, and return it."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.NONE:  # it has a record
                partition.error_code = code
    return response
