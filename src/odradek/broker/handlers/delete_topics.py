"""DeleteTopics (20), versions 1-6: deletes topics by name, or by name or id (v6).

With ``delete.topic.enable=false`` every topic is TOPIC_DELETION_DISABLED (before v3:
INVALID_REQUEST). A topic that is named twice, or by name and by id, is INVALID_REQUEST.

Deviation from Kafka: the topic and its records are gone when the answer leaves (Kafka deletes a
little later), so a topic of the same name can be created at once, and the request's time-out has
nothing to limit. Results come in the order asked, Kafka shuffles them. KIP-516 (ids).
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
    asked = [*request.topics, *(DeleteTopicState(name) for name in request.topic_names)]
    if not services.config.get_bool("delete.topic.enable"):
        return _disabled(context.api_version, asked)
    answers = await wait(_answers(services.image(), asked))
    accepted = [answer for answer in answers if answer.error_code == ErrorCode.NONE]
    errors = await services.controller.delete_topics([each.topic_id for each in accepted])
    for answer, error in zip(accepted, errors, strict=True):
        if error is not None:
            _refuse(answer, error.code, error.message)
    return Result(DeleteTopicsResponse(responses=answers))


def _disabled(version: int, asked: Sequence[DeleteTopicState]) -> Result[DeleteTopicsResponse]:
    code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
    message = "Topic deletion is disabled."

    def disabled(topic: DeleteTopicState) -> DeletableTopicResult:
        return DeletableTopicResult(topic.name, topic.topic_id, code, message)

    return each(disabled, asked).then(lambda topics: DeleteTopicsResponse(responses=topics))


def _answers(
    image: MetadataImage, asked: Sequence[DeleteTopicState]
) -> Result[list[DeletableTopicResult]]:
    """An answer for each topic, without an error and with its id where it can be deleted."""
    keys = Counter((topic.name, topic.topic_id) for topic in asked)

    def answer_to(key: tuple[str | None, Uuid]) -> DeletableTopicResult:
        name, topic_id = key
        answer = DeletableTopicResult(name, topic_id)
        try:
            _check_form(name, topic_id, keys[key])
            answer.name, answer.topic_id = _found(image, name, topic_id)
        except KafkaError as error:
            _refuse(answer, error.code, error.message)
        return answer

    return each(answer_to, keys).then(_without_same_topics)


def _refuse(answer: DeletableTopicResult, code: ErrorCode, message: str) -> None:
    answer.error_code, answer.error_message = code, message


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


def _found(image: MetadataImage, name: str | None, topic_id: Uuid) -> tuple[str, Uuid]:
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


def _without_same_topics(answers: Sequence[DeletableTopicResult]) -> list[DeletableTopicResult]:
    """A topic asked for by name and by id is refused, with one answer for both as in Kafka."""
    found: dict[Uuid, DeletableTopicResult] = {}
    kept = []
    for answer in answers:
        first = answer
        if answer.error_code == ErrorCode.NONE:
            first = found.setdefault(answer.topic_id, answer)
        if first is answer:
            kept.append(answer)
        else:
            text = "The provided topic name maps to an ID that was already supplied."
            _refuse(first, ErrorCode.INVALID_REQUEST, text)
    return kept
