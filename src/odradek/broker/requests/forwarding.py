"""Requests that another broker has to execute: the active controller.

A broker of a cluster accepts every admin request. If it is not the controller, it sends the request
in an Envelope to the controller and returns the controller's response. The envelope has the
client's principal, address and listener. A malformed response never reaches the client, nor does a
response to another request.

The client gets REQUEST_TIMED_OUT for all elements of its request if the controller did not respond
within `ControllerChannelSettings.timeout_ms`. The request may have been executed then. For other
errors of the envelope the client gets UNKNOWN_SERVER_ERROR, or the end of the connection if the
controller does not know the version of the request, as in Kafka (``ForwardingManagerImpl``).

A request may wait for the controller for a minute. It waits as bytes, which `ForwardedBytes` limits
over all requests, and not as a decoded request. It is cancelled when the client disconnects. A
request that was not sent then has no effect.

A single broker does not import this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.broker.requests.cluster import forwards
from odradek.broker.requests.elements import each
from odradek.broker.requests.envelopes import wrap
from odradek.broker.requests.error_responses import finding_error, making_error_response
from odradek.client.connection import TooManyRequests, UnsupportedRequest
from odradek.errors import ErrorCode, KafkaError
from odradek.net.connection import CloseConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message, decoding, encoding
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.freeing import arrays_of, freeing
from odradek.protocol.headers import (
    RESPONSE_FLEXIBLE_FROM,
    parse_request_header,
    request_header,
)
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.create_topics_response import (
    CreatableTopicResult,
    CreateTopicsResponse,
)
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.protocol.registry import response_class
from odradek.protocol.wire import ANY_LATER
from odradek.result_tasks import in_task, wait
from odradek.results import Result
from odradek.slicing import end_slice, in_slices

if TYPE_CHECKING:
    from odradek.broker.requests.cluster import ClusterRequests
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.metadata.topic_changes import NewTopic
    from odradek.protocol.wire import Chunk

logger = logging.getLogger(__name__)

FRAME_BYTES_A_SLICE = 262_144
"""A frame above this size is encoded in one time slice, and its envelope in the next."""

CREATION_TIMEOUT_MS = 30_000
"""The timeout in a CreateTopics request for topics that are created automatically."""


Handle = Callable[["Services", "RequestContext", Message], Result[Message | None]]


def executed_by_controller(handle: Handle) -> Handle:
    """Return a handler that sends the request to the controller if it is another broker.

    A controller that is deposed while it executes the request of a client sends the request to the
    next one. The client never gets NOT_CONTROLLER, because any broker accepts its requests.
    """
    execute_here = refused_by_controller(handle)

    def execute(
        services: Services, context: RequestContext, request: Message
    ) -> Result[Message | None]:
        if forwards(services.cluster, context.session) is not None:
            assert services.cluster is not None
            return forward(services.cluster, context, request)
        if context.session.is_forwarded:
            return execute_here(services, context, request)
        epoch = services.controller.epoch
        executed = execute_here(services, context, request)
        return executed.chain(partial(_unless_deposed, services, context, request, epoch))

    return execute


def _unless_deposed(
    services: Services,
    context: RequestContext,
    request: Message,
    epoch: int,
    response: Message | None,
) -> Result[Message | None]:
    """Return the response of this broker, or the response of the next controller.

    Args:
        services: The services of the broker.
        context: The context of the request.
        request: The request.
        epoch: The controller's epoch when this broker began to execute the request.
        response: The response of this broker.
    """
    cluster = services.cluster
    assert cluster is not None
    if cluster.membership.is_controller and services.controller.epoch == epoch:
        return Result(response)
    return _forward_if_deposed(cluster, context, request, response)


@in_task
async def _forward_if_deposed(
    cluster: ClusterRequests, context: RequestContext, request: Message, response: Message | None
) -> Result[Any]:
    version, code = context.api_version, ErrorCode.NOT_CONTROLLER
    if response is not None and not await in_slices(finding_error(response, version, code)):
        return Result(response)
    return forward(cluster, context, request)


def refused_by_controller(handle: Handle) -> Handle:
    """Return a handler that has an error in its response if the controller refuses the request.

    For example, a controller that is deposed while it executes the request raises NOT_CONTROLLER.
    """

    def handle_or_refuse(
        services: Services, context: RequestContext, request: Message
    ) -> Result[Message | None]:
        try:
            result = handle(services, context, request)
        except KafkaError as error:
            return _refused(context, request, error)
        return result if result.completed else _or_refused(context, request, result)

    return handle_or_refuse


@in_task
async def _or_refused(
    context: RequestContext, request: Message, result: Result[Message | None]
) -> Result[Message | None]:
    try:
        return Result(await wait(result))
    except KafkaError as error:
        return _refused(context, request, error)


@in_task
async def _refused(context: RequestContext, request: Message, error: KafkaError) -> Result[Any]:
    return Result(await _error_response(request, context.api_version, error.code))


@in_task
async def forward(
    cluster: ClusterRequests, context: RequestContext, request: Message
) -> Result[Any]:
    """Return the controller's response to the request of `context`.

    Args:
        cluster: The cluster.
        context: The context of the client's request.
        request: The request, or the part of it that the controller has to execute.
    """
    version, request_class = context.api_version, type(request)
    frame = await _encoded(request, version, context)
    del request
    if len(frame) > FRAME_BYTES_A_SLICE:
        await end_slice()
    context.release_slot()
    task = asyncio.current_task()
    assert task is not None
    with context.while_connected(task.cancel):
        return Result(await _exchange(cluster, context, request_class, version, frame))


async def create_topics(
    cluster: ClusterRequests, context: RequestContext, topics: Sequence[NewTopic]
) -> list[KafkaError | None]:
    """Create topics for a request of another API. Return the error or None for each."""
    version = CreateTopicsRequest.MAX_VERSION
    served = cluster.channel.versions(CreateTopicsRequest.API_KEY)
    if served is not None:  # the controller may have an earlier release
        version = min(version, served[1])
    request = CreateTopicsRequest(await wait(each(_creatable, topics)), CREATION_TIMEOUT_MS)
    frame = await _encoded(request, version, context)
    response: CreateTopicsResponse = await _exchange(
        cluster, context, CreateTopicsRequest, version, frame
    )
    found: dict[str, CreatableTopicResult] = {}
    await wait(each(lambda result: found.update({result.name: result}), response.topics))
    return await wait(each(lambda topic: _error_of(found.get(topic.name)), topics))


def _error_of(result: CreatableTopicResult | None) -> KafkaError | None:
    if result is None:
        text = "The controller's response does not have the topic."
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    if not result.error_code:
        return None
    return KafkaError(_known(result.error_code), result.error_message or "")


async def _exchange(
    cluster: ClusterRequests,
    context: RequestContext,
    request_class: type[Message],
    version: int,
    frame: bytes,
) -> Any:
    """Send a request in an envelope. Return its response, made here after a failure.

    Args:
        cluster: The cluster.
        context: The context of the client's request.
        request_class: The class of the request in `frame`.
        version: Its version.
        frame: The request with its header.
    """
    limit = cluster.forwarded.request_bytes_max
    if len(frame) > limit:
        reason = f"it has {len(frame)} bytes, and the limit is {limit}. Send smaller requests"
        return await _failed(request_class, version, frame, ErrorCode.INVALID_REQUEST, reason)
    if not cluster.forwarded.acquire(len(frame)):
        reason = f"{cluster.forwarded.used} bytes of requests wait for the controller"
        return await _failed(request_class, version, frame, ErrorCode.REQUEST_TIMED_OUT, reason)
    try:
        envelope = wrap(context.session, frame)
        response = await wait(cluster.channel.send(envelope, EnvelopeResponse))
    except (OSError, TooManyRequests) as error:
        code = ErrorCode.REQUEST_TIMED_OUT
        return await _failed(request_class, version, frame, code, str(error))
    except UnsupportedRequest as error:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        return await _failed(request_class, version, frame, code, str(error))
    finally:
        cluster.forwarded.release(len(frame))
    api_key = request_class.API_KEY
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        name = ApiKey(api_key).name
        raise CloseConnection(f"the controller does not serve {name} version {version}")
    reason = f"error {response.error_code} of the envelope"
    if not response.error_code and response.response_data is not None:
        try:
            return await _decoded(api_key, version, context.correlation_id, response.response_data)
        except MalformedMessage as error:
            reason = f"malformed response: {error}"
    return await _failed(request_class, version, frame, ErrorCode.UNKNOWN_SERVER_ERROR, reason)


async def _encoded(request: Message, version: int, context: RequestContext) -> bytes:
    """Return the request with its header, encoded in time slices."""
    header = request_header(
        request.API_KEY, version, context.correlation_id, context.client_id or ""
    )
    chunks: list[Chunk] = [header]
    await in_slices(encoding(type(request), version, request, chunks.append))
    return b"".join(chunks)  # type: ignore[arg-type]  # these requests have no file regions


async def _decoded(api_key: int, version: int, correlation_id: int, frame: bytes) -> Message:
    """Return the response in `frame`, which has its header, decoded in time slices.

    Raises:
        MalformedMessage: The bytes are not the response to this request.
    """
    flexible = version >= RESPONSE_FLEXIBLE_FROM.get(api_key, ANY_LATER)
    position = 5 if flexible else 4
    if len(frame) < position or int.from_bytes(frame[:4], "big", signed=True) != correlation_id:
        raise MalformedMessage("the header is that of another response")
    decoded = decoding(response_class(api_key), version, memoryview(frame), position)
    response, end = await in_slices(decoded)
    if end != len(frame):
        raise MalformedMessage(f"{len(frame) - end} bytes behind the response")
    return response


async def response_has_error(api_key: int, version: int, frame: bytes, code: ErrorCode) -> bool:
    """Return whether any part of the response in `frame` has the error, in time slices."""
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    response = await _decoded(api_key, version, correlation_id, frame)
    has_error = bool(await in_slices(finding_error(response, version, code)))
    arrays = arrays_of(response)
    del response
    await in_slices(freeing(arrays))
    return has_error


async def _failed(
    request_class: type[Message], version: int, frame: bytes, code: ErrorCode, reason: str
) -> Any:
    """Log why a request was not executed by the controller. Return the response with `code`."""
    logger.warning(
        "%s was not forwarded to the controller: %s. The client gets %s",
        ApiKey(request_class.API_KEY).name,
        reason,
        code.name,
    )
    view = memoryview(frame)
    position = parse_request_header(view)[-1]
    request, _ = await in_slices(decoding(request_class, version, view, position))
    return await _error_response(request, version, code)


async def _error_response(request: Message, version: int, code: ErrorCode) -> Any:
    """Return the error response to the request, made in time slices."""
    response = response_class(request.API_KEY)
    return await in_slices(making_error_response(response, request, version, code))


def _known(code: int) -> ErrorCode:
    """Return the error code. A later release may have codes that this one does not know."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [],
        [CreatableTopicConfig(name, value) for name, value in topic.configs],
    )
