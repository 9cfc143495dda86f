"""The control requests of a follower: the leader's log start and log end, by ListOffsets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.errors import ErrorCode
from odradek.ids import BrokerId
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.replication.followed_replica import FollowedReplica
from odradek.replication.offset_lookup import EARLIEST, LATEST

LOOKUPS_A_REQUEST_MAX = 50
"""Maximum number of partitions in a request. The truncations after its response are begun in one
time slice.
"""


class LeaderOffsets(NamedTuple):
    """The outcome of a lookup. The offsets are -1 with an error."""

    log_start_offset: int
    log_end_offset: int
    error_code: int


def list_offsets_requests(
    broker_id: BrokerId, replicas: Sequence[FollowedReplica]
) -> tuple[ListOffsetsRequest, ListOffsetsRequest]:
    """Return the requests for the leader's log ends and log starts.

    The leader takes the log end for the latest offset, because the request has a replica id.
    """
    latest, earliest = (_request(broker_id, replicas, each) for each in (LATEST, EARLIEST))
    return latest, earliest


def _request(
    broker_id: BrokerId, replicas: Sequence[FollowedReplica], timestamp: int
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for replica in replicas:
        name, number = replica.partition.topic_partition
        if name not in topics:
            topics[name] = ListOffsetsTopic(name, [])
        requested = ListOffsetsPartition(number, replica.leader_epoch, timestamp)
        topics[name].partitions.append(requested)
    return ListOffsetsRequest(broker_id, 0, list(topics.values()))


def leader_offsets(
    latest: ListOffsetsResponse, earliest: ListOffsetsResponse
) -> dict[tuple[str, int], LeaderOffsets]:
    """Return the offsets of the partitions that are in both responses."""
    starts = {
        (topic.name, each.partition_index): each
        for topic in earliest.topics
        for each in topic.partitions
    }
    found = {}
    for topic in latest.topics:
        for end in topic.partitions:
            start = starts.get((topic.name, end.partition_index))
            if start is None:
                continue
            code = end.error_code or start.error_code
            if not code and min(start.offset, end.offset) < 0:
                code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            found[topic.name, end.partition_index] = LeaderOffsets(start.offset, end.offset, code)
    return found
