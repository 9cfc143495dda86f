"""DeleteTopics (20), versions 1-6: delete topics by name, from version 6 on by name or id.

With ``delete.topic.enable=false`` the result of every topic is TOPIC_DELETION_DISABLED (before
version 3: INVALID_REQUEST). A topic that is requested twice, or by name and by id, is
INVALID_REQUEST. KIP-516 (ids).

Deviations from Kafka: a single broker deletes the topic and its records before it sends the
response. Kafka, and the other brokers of a cluster, delete them a little later. A topic of the same
name can be created immediately afterwards. The timeout in the request has no effect. Results have
the order of the request. Kafka shuffles them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import ZERO_UUID, TopicName, Uuid
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import (
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from odradek.result_tasks import in_task, wait
from odradek.results import Result


@in_task
async def handle(
    services: Services, context: RequestContext, request: DeleteTopicsRequest
) -> Result[DeleteTopicsResponse]:
    requested = [*request.topics, *(DeleteTopicState(name) for name in request.topic_names)]
    if not services.config.get_bool("delete.topic.enable"):
        return _disabled(context.api_version, requested)
    results = await wait(_results(services.controller.image, requested))
    accepted = [result for result in results if result.error_code == ErrorCode.NONE]
    errors = await services.controller.delete_topics([each.topic_id for each in accepted])
    for result, error in zip(accepted, errors, strict=True):
        if error is not None:
            _refuse(result, error.code, error.message)
    return Result(DeleteTopicsResponse(responses=results))


def _disabled(version: int, requested: Sequence[DeleteTopicState]) -> Result[DeleteTopicsResponse]:
    code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
    message = "Topic deletion is disabled."

    def disabled(topic: DeleteTopicState) -> DeletableTopicResult:
        return DeletableTopicResult(topic.name, topic.topic_id, code, message)

    return each(disabled, requested).then(lambda topics: DeleteTopicsResponse(responses=topics))


def _results(
    image: MetadataImage, requested: Sequence[DeleteTopicState]
) -> Result[list[DeletableTopicResult]]:
    """Return a result for each topic. If the topic can be deleted, it has its id and no error."""
    keys = Counter((topic.name, topic.topic_id) for topic in requested)

    def result_of(key: tuple[str | None, Uuid]) -> DeletableTopicResult:
        name, topic_id = key
        result = DeletableTopicResult(name, topic_id)
        try:
            _check_form(name, topic_id, keys[key])
            result.name, result.topic_id = _existing_topic(image, name, topic_id)
        except KafkaError as error:
            _refuse(result, error.code, error.message)
        return result

    return each(result_of, keys).then(_without_same_topics)


def _refuse(result: DeletableTopicResult, code: ErrorCode, message: str) -> None:
    result.error_code, result.error_message = code, message


def _check_form(name: str | None, topic_id: Uuid, count: int) -> None:
    message = ""
    if name is None and topic_id == ZERO_UUID:
        message = "Neither topic name nor id were specified."
    elif name is not None and topic_id != ZERO_UUID:
        message = "You may not specify both topic name and topic id."
    elif count > 1:
        message = "Duplicate topic name." if name is not None else "Duplicate topic id."
    if message:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _existing_topic(image: MetadataImage, name: str | None, topic_id: Uuid) -> tuple[str, Uuid]:
    if name is None:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            text = "This server does not host this topic ID."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, text)
    else:
        topic = image.topics_by_name.get(TopicName(name))
        if topic is None:
            text = "This server does not host this topic-partition."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return topic.name, topic.topic_id


def _without_same_topics(results: Sequence[DeletableTopicResult]) -> list[DeletableTopicResult]:
    """Refuse topics that are requested by name and by id. As in Kafka, both have one result."""
    by_id: dict[Uuid, DeletableTopicResult] = {}
    kept = []
    for result in results:
        first = result
        if result.error_code == ErrorCode.NONE:
            first = by_id.setdefault(result.topic_id, result)
        if first is result:
            kept.append(result)
        else:
            text = "The provided topic name maps to an ID that was already supplied."
            _refuse(first, ErrorCode.INVALID_REQUEST, text)
    return kept
