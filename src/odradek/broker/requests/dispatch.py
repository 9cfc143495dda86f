"""Frames to handlers, and responses to chunks: the broker's side of the wire.

A request costs one dictionary lookup here: `Dispatcher` keeps, for each (API key, version) it has
seen, the compiled decoder, the handler and the compiled encoder in one entry, and imports them on
first use. A Produce request that is like an earlier one of its connection goes without all of that
(`odradek.broker.requests.repeated_produce`).

What cannot be answered closes the connection, as in Kafka: an unknown API, a version that is not
served (ApiVersions alone has an answer for that), a body that does not decode, a handler's bug.

A request of more than `ELEMENTS_AT_ONCE` elements, and the answer of a handler that took turns, are
decoded and encoded in time slices (`odradek.slicing`), so that other connections do not wait for
them. For such a request ``handle_long`` of the handler is called, where it has one. No more of them
than `LONG_REQUESTS_MAX` are executed at a time: decoded, one takes many times its frame's memory.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.broker.requests.apis import API_BY_KEY
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.repeated_produce import RepeatedProduce
from odradek.broker.requests.throttling import throttled_produce
from odradek.net.connection import CloseConnection
from odradek.net.sender import BYTES, close_regions
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import (
    TurnDecoder,
    TurnEncoder,
    decoder,
    encoder,
    turn_decoder,
    turn_encoder,
)
from odradek.protocol.errors import MalformedMessage, TooManyElements
from odradek.protocol.headers import parse_request_header, response_header_packer
from odradek.protocol.registry import request_class, response_class
from odradek.slicing import ELEMENTS_AT_ONCE, in_turns, long_work

if TYPE_CHECKING:
    from odradek.broker.requests.context import Services
    from odradek.net.connection import Connection

logger = logging.getLogger(__name__)

LONG_REQUESTS_MAX = 4
"""Requests worked on in turns at a time, each of some hundred bytes an element when it is decoded
and answered. The others wait as frames, for which the network layer has its bounds.
"""

PRODUCE = int(ApiKey.PRODUCE)
WITH_REGIONS = frozenset({ApiKey.FETCH})
"""Whose answers hold records, which may be regions of files."""

Chunks = list[Any]
Answer = Chunks | None
Reply = Answer | asyncio.Future[Answer] | Coroutine[Any, Any, Any]

# ApiVersions with a version that we do not know: error 35 and the versions of ApiVersions itself,
# in the format of version 0, which every client can read (KIP-511;
# `ApiVersionsRequest.getErrorResponse`).
_UNSUPPORTED_API_VERSIONS = bytes.fromhex("002300000001001200000004")


@dataclass(slots=True)
class _Entry:
    """All that serving one version of one API takes."""

    decode: Callable[..., tuple[Any, int]]
    handle: Callable[[Services, RequestContext, Any], Any]
    handle_long: Callable[[Services, RequestContext, Any], Any]
    request_class: type
    response_class: type
    response_header: Callable[[int], bytes]
    encode: Callable[[Any, Callable[[Any], None]], None]
    has_regions: bool


class Dispatcher:
    """Called by a connection with each frame; see `odradek.net.connection` for what it may
    return.
    """

    __slots__ = ("_entries", "_long_requests", "_produce_quota", "_repeated", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._produce_quota = services.quotas.produce
        self._repeated = RepeatedProduce(services)
        self._entries: dict[int, _Entry] = {}
        self._long_requests = asyncio.Semaphore(LONG_REQUESTS_MAX)

    def dispatch(  # noqa: C901 - calls are what this path costs
        self, connection: Connection, frame: memoryview
    ) -> Reply:
        """Executes the request in `frame`. Raises CloseConnection when there is no answer to it."""
        if connection.memory is not None:
            answer = self._repeated.answer(connection, frame)
            if answer is not None:
                return answer
        try:
            api_key, version, correlation_id, client_id, pos = parse_request_header(frame)
            entry = self._entries.get(api_key << 16 | version)
            if entry is None:
                if api_key == ApiKey.API_VERSIONS and not 0 <= version <= 4:
                    return [
                        correlation_id.to_bytes(4, "big", signed=True),
                        _UNSUPPORTED_API_VERSIONS,
                    ]
                entry = self._load(api_key, version)
            request = entry.decode(frame, pos, ELEMENTS_AT_ONCE)[0]
        except TooManyElements:
            assert entry is not None
            context = RequestContext(api_key, version, correlation_id, client_id, connection)
            return self._execute_long(entry, context, frame, pos)
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request: {error}") from error
        context = RequestContext(api_key, version, correlation_id, client_id, connection)
        try:
            response = entry.handle(self._services, context, request)
            if self._produce_quota.enabled and api_key == PRODUCE:
                response = throttled_produce(self._services, context, len(frame), response)
            if response.__class__ is entry.response_class:
                reply = _encoded(entry, context, response)
                if api_key == PRODUCE and reply is not None:
                    self._repeated.learn(context, frame, request, reply)
                return reply
            if response is None:
                return None
            return _later(entry, context, response)
        except CloseConnection:
            raise
        except Exception as error:
            raise _bug(context, error) from error

    async def _execute_long(
        self, entry: _Entry, context: RequestContext, frame: memoryview, pos: int
    ) -> Answer | asyncio.Future[Answer]:
        """As `dispatch`, in turns; the connection's next request waits for the end."""
        async with self._long_requests:
            try:
                with long_work():
                    return await self._execute_in_turns(entry, context, frame, pos)
            except CloseConnection as error:
                reason = error.reason
        # A new one: through its traceback the first one holds all that was made for the request,
        # until a full collection finds it.
        raise CloseConnection(reason)

    async def _execute_in_turns(
        self, entry: _Entry, context: RequestContext, frame: memoryview, pos: int
    ) -> Answer | asyncio.Future[Answer]:
        decode: TurnDecoder[Any] = turn_decoder(entry.request_class, context.api_version)
        try:
            request = (await in_turns(decode(frame, pos)))[0]
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request: {error}") from error
        try:
            response = entry.handle_long(self._services, context, request)
            if self._produce_quota.enabled and context.api_key == ApiKey.PRODUCE:
                response = throttled_produce(self._services, context, len(frame), response)
        except CloseConnection:
            raise
        except Exception as error:
            raise _bug(context, error) from error
        if asyncio.isfuture(response):
            return _encoded_long_future(entry, context, response)
        if asyncio.iscoroutine(response):
            return await _encoded_coroutine(entry, context, response)
        return await _encoded_in_turns(entry, context, response)

    def _load(self, api_key: int, version: int) -> _Entry:
        """Imports and compiles what serves (`api_key`, `version`), once."""
        api = API_BY_KEY.get(api_key)
        if api is None:
            raise CloseConnection(f"unknown or unsupported API key {api_key}")
        if not api.min_version <= version <= api.max_version:
            raise CloseConnection(f"unsupported version {version} of {api.key.name}")
        handler = importlib.import_module(f"odradek.broker.handlers.{api.handler}")
        entry = _Entry(
            decode=decoder(request_class(api_key), version),
            handle=handler.handle,
            handle_long=getattr(handler, "handle_long", handler.handle),
            request_class=request_class(api_key),
            response_class=response_class(api_key),
            response_header=response_header_packer(api_key, version),
            has_regions=api_key in WITH_REGIONS,
            encode=encoder(response_class(api_key), version),
        )
        self._entries[api_key << 16 | version] = entry
        return entry


def _later(entry: _Entry, context: RequestContext, response: Any) -> Reply:
    """The reply for a handler that returned a future or a coroutine."""
    if asyncio.isfuture(response):
        return _encoded_future(entry, context, response)
    if asyncio.iscoroutine(response):
        return _encoded_coroutine(entry, context, response)
    raise TypeError(f"handler returned {type(response).__name__}")


def _encoded(entry: _Entry, context: RequestContext, response: Any) -> Answer:
    """The chunks of the response; one, where none of them can be a region."""
    if response is None:
        return None
    chunks: Chunks = [entry.response_header(context.correlation_id)]
    entry.encode(response, chunks.append)
    return chunks if entry.has_regions else [b"".join(chunks)]


async def _encoded_in_turns(entry: _Entry, context: RequestContext, response: Any) -> Answer:
    """As `_encoded`; what has been encoded is joined in each turn, and not all of it at the end."""
    if response is None:
        return None
    chunks: Chunks = [entry.response_header(context.correlation_id)]
    encode: TurnEncoder[Any] = turn_encoder(entry.response_class, context.api_version)
    try:
        await in_turns(_joining(encode(response, chunks.append), chunks))
    except asyncio.CancelledError:
        close_regions(chunks)
        raise
    except Exception as error:
        raise _bug(context, error) from error
    return chunks


def _joining(encoding: Generator[None, None, None], chunks: Chunks) -> Generator[None, None, None]:
    """Makes one of the chunks that came in a turn, unless there are regions among them."""
    first = 0
    for _ in encoding:
        if all(chunk.__class__ in BYTES for chunk in chunks[first:]):
            chunks[first:] = [b"".join(chunks[first:])]
        first = len(chunks)
        yield


def _encoded_future(
    entry: _Entry, context: RequestContext, response: asyncio.Future[Any]
) -> asyncio.Future[Answer]:
    """A future of the encoded answer; failed, it closes the connection.

    When the client is gone it is cancelled, and with it what the handler waits for.
    """
    answer: asyncio.Future[Answer] = response.get_loop().create_future()

    def finish(done: asyncio.Future[Any]) -> None:
        if answer.done():
            return
        if done.cancelled():
            answer.set_exception(CloseConnection("the broker is stopping"))
            return
        try:
            answer.set_result(_encoded(entry, context, done.result()))
        except CloseConnection as error:
            answer.set_exception(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours closes this connection only
            answer.set_exception(_bug(context, error))

    on_close = context.connection.on_close

    def ended(done: asyncio.Future[Answer]) -> None:
        if abandon in on_close:
            on_close.remove(abandon)
        if done.cancelled():
            response.cancel()

    def abandon() -> None:
        answer.cancel()

    response.add_done_callback(finish)
    answer.add_done_callback(ended)
    on_close.append(abandon)
    return answer


def _encoded_long_future(
    entry: _Entry, context: RequestContext, response: asyncio.Future[Any]
) -> asyncio.Future[Answer]:
    """As `_encoded_future`, in turns."""
    on_close = context.connection.on_close

    def ended(done: asyncio.Task[Answer]) -> None:
        if abandon in on_close:
            on_close.remove(abandon)
        if done.cancelled():
            response.cancel()  # cancelled before its first turn it never came to wait for it

    def abandon() -> None:
        answer.cancel()

    answer = response.get_loop().create_task(_encoded_when_done(entry, context, response))
    answer.add_done_callback(ended)
    on_close.append(abandon)
    if context.connection.closed:  # in one of the turns: nobody calls `on_close` any more
        abandon()
    return answer


async def _encoded_when_done(
    entry: _Entry, context: RequestContext, response: asyncio.Future[Any]
) -> Answer:
    try:
        result = await response
    except CloseConnection:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise CloseConnection("the broker is stopping") from None
    except Exception as error:
        raise _bug(context, error) from error
    with long_work():
        return await _encoded_in_turns(entry, context, result)


async def _encoded_coroutine(
    entry: _Entry, context: RequestContext, response: Coroutine[Any, Any, Any]
) -> Answer | asyncio.Future[Answer]:
    try:
        result = await response
        while asyncio.iscoroutine(result):
            result = await result
    except CloseConnection:
        raise
    except Exception as error:
        raise _bug(context, error) from error
    if asyncio.isfuture(result):
        return _encoded_long_future(entry, context, result)
    with long_work():
        return await _encoded_in_turns(entry, context, result)


def _bug(context: RequestContext, error: Exception) -> CloseConnection:
    """Logs an unexpected exception with its traceback; the connection that met it is closed."""
    api = API_BY_KEY[context.api_key].key.name
    logger.error(
        "bug in %s v%d (client %s)", api, context.api_version, context.client_id, exc_info=error
    )
    return CloseConnection(f"{api} failed inside the broker: {type(error).__name__}")
