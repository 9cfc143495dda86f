"""One OffsetCommit: which partitions are stored, as what, and what each is answered."""

from __future__ import annotations

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

NO_RETENTION = -1


class Commit:
    """The records and the response of one request, both made in one pass.

    `code` is what the group says to the request; partitions that do not exist are
    UNKNOWN_TOPIC_OR_PARTITION whatever it is, as in Kafka. A retention time (OffsetCommit 2-4)
    becomes the expire timestamp of the records.
    """

    __slots__ = ("_code", "_metadata_max", "_now_ms", "_request", "_stored", "records", "response")

    def __init__(
        self,
        image: MetadataImage,
        request: OffsetCommitRequest,
        code: ErrorCode,
        now_ms: int,
        metadata_max: int,
    ) -> None:
        self._request = request
        self._code = code
        self._now_ms = now_ms
        self._metadata_max = metadata_max
        self._stored: list[OffsetCommitResponsePartition] = []
        self.records: list[CoordinatorRecord] = []
        topics = image.topics_by_name
        self.response = OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=self._partitions(topic, topics.get(TopicName(topic.name))),
                )
                for topic in request.topics
            ]
        )

    def failed(self, code: ErrorCode) -> OffsetCommitResponse:
        """The response when the records could not be committed because of `code` (NONE: they
        were)."""
        for partition in self._stored:
            partition.error_code = code
        return self.response

    def _partitions(
        self, topic: OffsetCommitRequestTopic, image: TopicImage | None
    ) -> list[OffsetCommitResponsePartition]:
        count = 0 if image is None else len(image.partitions)
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            if not 0 <= index < count:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif self._code is not ErrorCode.NONE:
                code = self._code
            elif len(partition.committed_metadata or "") > self._metadata_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                code = ErrorCode.NONE
            answer = OffsetCommitResponsePartition(partition_index=index, error_code=code)
            answers.append(answer)
            if code is ErrorCode.NONE:
                self._stored.append(answer)
                self.records.append(self._record(topic.name, partition))
        return answers

    def _record(self, topic: str, partition: OffsetCommitRequestPartition) -> CoordinatorRecord:
        retention_ms = self._request.retention_time_ms
        expire_ms = -1 if retention_ms == NO_RETENTION else self._now_ms + retention_ms
        return offset_commit_record(
            OffsetCommitKey(
                group=self._request.group_id, topic=topic, partition=partition.partition_index
            ),
            OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.committed_metadata or "",
                commit_timestamp=self._now_ms,
                expire_timestamp=expire_ms,
            ),
        )
