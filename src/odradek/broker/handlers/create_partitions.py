"""CreatePartitions (37), versions 0-3: add partitions to topics, or check whether that is possible.

`count` is the total number of partitions after the change. A topic that is requested twice is
INVALID_REQUEST. KIP-195.

Deviations from Kafka: clients can use the partitions when the broker sends the response, in a
cluster as after CreateTopics. More than 10,000 new partitions in a topic are POLICY_VIOLATION
(Kafka: UNKNOWN_SERVER_ERROR, or no response).
"""

from __future__ import annotations

from collections import Counter

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.topic_changes import NewPartitions
from odradek.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from odradek.result_tasks import in_task, wait
from odradek.results import Result


@in_task
async def handle(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> Result[CreatePartitionsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    accepted = [topic for topic in request.topics if counts[topic.name] == 1]
    errors = await services.controller.create_partitions(
        await wait(each(_new_partitions, accepted)), validate_only=request.validate_only
    )
    results = {
        name: CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name in counts
    }

    def note(created: tuple[CreatePartitionsTopic, KafkaError | None]) -> None:
        topic, error = created
        code = ErrorCode.NONE if error is None else error.code
        results[topic.name] = CreatePartitionsTopicResult(topic.name, code, _message(error))

    noted = each(note, zip(accepted, errors, strict=True))
    return noted.then(lambda _: CreatePartitionsResponse(results=list(results.values())))


def _message(error: KafkaError | None) -> str | None:
    if error is None or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None  # Kafka has no message for a topic that does not exist.
    return error.message


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    replicas = None if assignments is None else [each.broker_ids for each in assignments]
    return NewPartitions(topic.name, topic.count, replicas)
