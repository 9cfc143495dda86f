"""`odradek cluster elect`: elections that an administrator requests. KIP-183, KIP-460."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.cli.failures import Subject, missing_partition
from odradek.cli.output import CommandError
from odradek.cli.wire import WireClient, check
from odradek.errors import ErrorCode
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
)
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse

PREFERRED, UNCLEAN = 0, 1
REQUEST_TIMEOUT_MS = 60_000
SUCCESS = {ErrorCode.NONE: "elected", ErrorCode.ELECTION_NOT_NEEDED: "not needed"}


def elect(
    bootstrap_server: str, topics: Sequence[str], partitions: Sequence[int], *, unclean: bool
) -> list[dict[str, object]]:
    """Elect leaders, and return a row for each partition with its result.

    Args:
        bootstrap_server: Addresses of brokers.
        topics: The topics. Empty: all partitions that need an election.
        partitions: Partitions of the topics. Empty: all of them.
        unclean: Whether a replica that is not in sync may be elected.

    Raises:
        CommandError: A topic or partition does not exist, or the request failed.
    """
    with WireClient(bootstrap_server) as client:
        requested = [_requested(client, topic, partitions) for topic in topics]
        request = ElectLeadersRequest(
            UNCLEAN if unclean else PREFERRED, requested or None, REQUEST_TIMEOUT_MS
        )
        response = client.call(request, ElectLeadersResponse, 2)
    check(response.error_code, Subject("cluster", bootstrap_server))
    return [
        _row(topic.topic, each)
        for topic in sorted(response.replica_election_results, key=lambda topic: topic.topic)
        for each in sorted(topic.partition_result, key=lambda each: each.partition_id)
    ]


def failed(rows: Sequence[dict[str, object]]) -> CommandError | None:
    """Return the error for the rows whose election failed, or None."""
    names = [f"{row['topic']}-{row['partition']}" for row in rows if row["error"] is not None]
    if not names:
        return None
    return CommandError(
        f"No leader was elected for {', '.join(names)}. `odradek cluster status` says what they"
        " lack."
    )


def _requested(client: WireClient, topic: str, partitions: Sequence[int]) -> TopicPartitions:
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found = client.call(request, MetadataResponse, 12).topics[0]
    check(found.error_code, Subject("topic", topic))
    numbers = sorted(each.partition_index for each in found.partitions)
    for each in partitions:
        if each not in numbers:
            raise missing_partition(topic, each)
    return TopicPartitions(topic, list(partitions) or numbers)


def _row(topic: str, result: PartitionResult) -> dict[str, object]:
    code = ErrorCode(result.error_code)
    return {
        "topic": topic,
        "partition": result.partition_id,
        "result": SUCCESS.get(code, "failed"),
        "error": None if code in SUCCESS else result.error_message or code.name,
    }
