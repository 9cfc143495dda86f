"""CreateTopics (19), versions 2-7: create topics, or check whether that is possible.

The response has a result for each topic, each with its own error. From version 5 on a result has
the numbers of partitions and replicas and the configs with their sources, from version 7 on the
topic's id. A name that is requested twice is INVALID_REQUEST. KIP-4, KIP-525 (configs in the
response), KIP-516 (ids).

Deviations from Kafka: clients can use a topic when the broker sends the response (Kafka: a little
later). In a cluster the leaders of its partitions serve it by then, unless they need more than five
seconds. The timeout in the request has no effect. Two new names in one request that differ only
in '.' and '_' collide, as they would in two requests.
"""

from __future__ import annotations

from odradek.broker.configs.entries import topic_entries
from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.topic_changes import CreatedTopic, NewTopic
from odradek.metadata.topics import CLUSTER_METADATA
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from odradek.result_tasks import in_task, wait
from odradek.results import Result


@in_task
async def handle(
    services: Services, context: RequestContext, request: CreateTopicsRequest
) -> Result[CreateTopicsResponse]:
    counts: dict[str, int] = {}
    accepted: list[NewTopic] = []
    found: dict[str, CreatableTopicResult] = {}

    def count(topic: CreatableTopic) -> None:
        counts[topic.name] = counts.get(topic.name, 0) + 1

    def accept(topic: CreatableTopic) -> None:
        if counts[topic.name] == 1 and topic.name != CLUSTER_METADATA:
            accepted.append(_new_topic(topic))

    def end(pair: tuple[NewTopic, CreatedTopic | KafkaError]) -> int:
        topic, created = pair
        result = found[topic.name] = _result(services, topic.name, created)
        return len(result.configs or ())

    def result_of(name: str) -> CreatableTopicResult:
        if counts[name] > 1:
            return _refused(name, "Duplicate topic name.")
        if name == CLUSTER_METADATA:
            text = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
            return _refused(name, text)
        return found[name]

    await wait(each(count, request.topics))
    await wait(each(accept, request.topics))
    results = await services.controller.create_topics(accepted, validate_only=request.validate_only)
    await wait(each(end, zip(accepted, results, strict=True), lambda configs: configs))
    return Result(CreateTopicsResponse(topics=await wait(each(result_of, counts))))


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
        [(each.name, each.value) for each in topic.configs],
    )


def _refused(name: str, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name, error_code=ErrorCode.INVALID_REQUEST, error_message=message)


def _result(
    services: Services, name: str, result: CreatedTopic | KafkaError
) -> CreatableTopicResult:
    if isinstance(result, KafkaError):
        return CreatableTopicResult(name, error_code=result.code, error_message=result.message)
    partitions = result.image.partitions
    return CreatableTopicResult(
        name,
        result.image.topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                entry.key.name,
                result.configs.get(entry.key.name, entry.value),
                entry.read_only,
                entry.source,
                entry.key.sensitive,
            )
            for entry in topic_entries(services.config, result.configs)
        ],
    )
