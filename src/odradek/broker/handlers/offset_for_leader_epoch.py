"""OffsetForLeaderEpoch, versions 2-4: where an epoch ended in our log (KIP-101, KIP-279, KIP-320).

The answer is the largest epoch that is not above the one asked for, and the offset behind its last
record; -1 for both when our log does not know it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.errors import KafkaError
from odradek.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.slicing import Turns, begun

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.offset_for_leader_epoch_request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )


@begun
async def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Each partition from the epochs that its log remembers; nothing is read."""
    turns = Turns()
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                await turns.map(partial(_end_offset, services, topic.topic), topic.partitions),
            )
            for topic in request.topics
        ]
    )


def _end_offset(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        partition = services.replica_manager.partition(topic, wanted.partition)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as error:
        answer.error_code = int(error.code)
    return answer
