"""One OffsetCommit or TxnOffsetCommit: which partitions are stored, as what, and what each is
answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from odradek.cluster.image import MetadataImage, TopicImage
from odradek.coordinator.group.records import offset_commit_record
from odradek.coordinator.runtime import CoordinatorRecord
from odradek.errors import ErrorCode
from odradek.ids import TopicName
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
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
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NO_RETENTION = -1

R = TypeVar("R", OffsetCommitResponse, TxnOffsetCommitResponse)
Topic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
Partition = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
Answer = OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition


class Terms(NamedTuple):
    """What a commit is judged by: the topics that exist, the time,
    ``offset.metadata.max.bytes``."""

    image: MetadataImage
    now_ms: int
    metadata_max: int


def plain_commit(
    request: OffsetCommitRequest, code: ErrorCode, terms: Terms
) -> Commit[OffsetCommitResponse]:
    """An OffsetCommit that its group answers with `code`. A retention time (versions 2-4) becomes
    the expire timestamp of the records."""
    retention_ms = request.retention_time_ms
    expire_ms = -1 if retention_ms == NO_RETENTION else terms.now_ms + retention_ms
    return Commit(
        request.group_id,
        request.topics,
        code,
        terms,
        expire_ms,
        (OffsetCommitResponse, OffsetCommitResponseTopic, OffsetCommitResponsePartition),
    )


def transactional_commit(
    request: TxnOffsetCommitRequest, code: ErrorCode, terms: Terms
) -> Commit[TxnOffsetCommitResponse]:
    """A TxnOffsetCommit that its group answers with `code`."""
    return Commit(
        request.group_id,
        request.topics,
        code,
        terms,
        -1,
        (TxnOffsetCommitResponse, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition),
    )


class Commit(Generic[R]):
    """The records and the response of one request, both made in one pass.

    `code` is what the group says to the request; partitions that do not exist are
    UNKNOWN_TOPIC_OR_PARTITION whatever it is, as in Kafka. `kinds` are the response's classes.
    """

    __slots__ = (
        "_answer_kind",
        "_code",
        "_expire_ms",
        "_group_id",
        "_stored",
        "_terms",
        "records",
        "response",
    )

    def __init__(
        self,
        group_id: str,
        topics: Sequence[Topic],
        code: ErrorCode,
        terms: Terms,
        expire_ms: int,
        kinds: tuple[Callable[..., R], Callable[..., object], Callable[..., Answer]],
    ) -> None:
        self._group_id = group_id
        self._code = code
        self._terms = terms
        self._expire_ms = expire_ms
        self._stored: list[Answer] = []
        self.records: list[CoordinatorRecord] = []
        known = terms.image.topics_by_name
        response, response_topic, answer_kind = kinds
        self._answer_kind: Callable[..., Answer] = answer_kind
        self.response: R = response(
            topics=[
                response_topic(
                    name=topic.name,
                    partitions=self._partitions(topic, known.get(TopicName(topic.name))),
                )
                for topic in topics
            ]
        )

    def failed(self, code: ErrorCode) -> R:
        """The response when the records could not be committed because of `code` (NONE: they
        were)."""
        for partition in self._stored:
            partition.error_code = code
        return self.response

    def _partitions(self, topic: Topic, image: TopicImage | None) -> list[Answer]:
        count = 0 if image is None else len(image.partitions)
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            if not 0 <= index < count:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif self._code is not ErrorCode.NONE:
                code = self._code
            elif len(partition.committed_metadata or "") > self._terms.metadata_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                code = ErrorCode.NONE
            answer = self._answer_kind(partition_index=index, error_code=code)
            answers.append(answer)
            if code is ErrorCode.NONE:
                self._stored.append(answer)
                self.records.append(self._record(topic.name, partition))
        return answers

    def _record(self, topic: str, partition: Partition) -> CoordinatorRecord:
        return offset_commit_record(
            OffsetCommitKey(group=self._group_id, topic=topic, partition=partition.partition_index),
            OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.committed_metadata or "",
                commit_timestamp=self._terms.now_ms,
                expire_timestamp=self._expire_ms,
            ),
        )
