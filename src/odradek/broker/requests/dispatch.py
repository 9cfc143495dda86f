"""Frames to handlers, and responses to chunks: the broker's side of the wire.

A request costs one dictionary lookup here: `Dispatcher` keeps, for each (API key, version) it has
seen, the compiled decoder, the handler and the compiled encoder in one entry, and imports them on
first use. A Produce request that is like an earlier one of its connection goes without all of that
(`odradek.broker.requests.repeated_produce`).

What cannot be answered closes the connection, as in Kafka: an unknown API, a version that is not
served (ApiVersions alone has an answer for that), a body that does not decode, a handler's bug.

A request of more than `ELEMENTS_UNSLICED_MAX` elements is decoded and its response encoded in time
slices (`odradek.slicing`), so that other connections do not wait for them. So is the response of
any handler that took time slices. No more than `LONG_REQUESTS_MAX` such requests are executed at
a time: decoded, one takes many times its frame's memory.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from odradek.broker.requests.apis import API_BY_KEY
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.repeated_produce import RepeatedProduce
from odradek.broker.requests.shape_budget import ShapeBudget
from odradek.broker.requests.throttling import throttled_produce
from odradek.collector import postponed_full_collections
from odradek.net.connection import Chunks, CloseConnection
from odradek.net.sender import BYTES, Chunk, close_regions
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import (
    Message,
    SlicedDecoder,
    SlicedEncoder,
    encoder,
    request_decoder,
    sliced_decoder,
    sliced_encoder,
)
from odradek.protocol.errors import MalformedMessage, TooManyElements
from odradek.protocol.headers import parse_request_header, response_header_packer
from odradek.protocol.registry import request_class, response_class
from odradek.result_tasks import run, wait_executed
from odradek.results import Abandoned, PendingResult, Result
from odradek.slicing import ELEMENTS_UNSLICED_MAX, in_slices, sliced

if TYPE_CHECKING:
    from odradek.broker.requests.context import Services
    from odradek.net.connection import Connection

logger = logging.getLogger(__name__)

LONG_REQUESTS_MAX = 4
"""Requests executed in time slices at the same time. Each takes some hundred bytes an element when
it is decoded and answered. The others wait as frames, for which the network layer has its bounds.
"""

PRODUCE = int(ApiKey.PRODUCE)
WITH_REGIONS = frozenset({ApiKey.FETCH})
"""Whose answers hold records, which may be regions of files."""

Encode = Callable[[Message, Callable[[Chunk], object]], None]
"""An encoder of the codec, whose regions are those that a connection can send."""


class HandlerModule(Protocol):
    """A module of `odradek.broker.handlers`. Its handler takes and returns messages of its API."""

    def handle(
        self, services: Services, context: RequestContext, request: Message, /
    ) -> Result[Message | None]: ...


# ApiVersions with a version that we do not know: error 35 and the versions of ApiVersions itself,
# in the format of version 0, which every client can read (KIP-511;
# `ApiVersionsRequest.getErrorResponse`).
_UNSUPPORTED_API_VERSIONS = bytes.fromhex("002300000001001200000004")


@dataclass(slots=True)
class _Entry:
    """All that serving one version of one API takes."""

    decode: Callable[[memoryview, int, int], tuple[Message, int]]
    handle: Callable[[Services, RequestContext, Message], Result[Message | None]]
    request_class: type[Message]
    response_class: type[Message]
    response_header: Callable[[int], bytes]
    encode: Encode
    has_regions: bool


class Dispatcher:
    """Called by a connection with each frame; see `odradek.net.connection` for what it may
    return.
    """

    __slots__ = ("_entries", "_long_requests", "_produce_quota", "_repeated", "_services")

    def __init__(self, services: Services, shape_budget: ShapeBudget | None = None) -> None:
        self._services = services
        self._produce_quota = services.quotas.produce
        self._repeated = RepeatedProduce(services, shape_budget or ShapeBudget())
        self._entries: dict[int, _Entry] = {}
        self._long_requests = asyncio.Semaphore(LONG_REQUESTS_MAX)

    def dispatch(  # noqa: C901 - calls are what this path costs
        self, connection: Connection, frame: memoryview
    ) -> Chunks | Result[Chunks]:
        """Execute the request in `frame`. Raise CloseConnection when there is no response to it."""
        if connection.remembered is not None:
            answer = self._repeated.answer(connection, frame)
            if answer is not None:
                return answer  # type: ignore[return-value]
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
            request = entry.decode(frame, pos, ELEMENTS_UNSLICED_MAX)[0]
        except TooManyElements:
            assert entry is not None
            context = RequestContext(api_key, version, correlation_id, client_id, connection)
            return run(self._execute_long(entry, context, frame, pos))
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request: {error}") from error
        context = RequestContext(api_key, version, correlation_id, client_id, connection)
        try:
            result = entry.handle(self._services, context, request)
            if self._produce_quota.enabled and api_key == PRODUCE:
                result = throttled_produce(self._services, context, len(frame), result)
            if not result.completed:
                encode = _encoded_sliced if not result.executed else _encoded
                return _when_done(result, entry, context, encode)
            if result.value is None:
                return []
            chunks: Chunks = [entry.response_header(correlation_id)]
            entry.encode(result.value, chunks.append)
            if not entry.has_regions:
                chunks = [b"".join(chunks)]  # type: ignore[arg-type]
            if api_key == PRODUCE:
                self._repeated.learn(connection, context, frame, request, chunks)
        except CloseConnection:
            raise
        except Exception as error:
            raise _bug(context, error) from error
        return chunks

    async def _execute_long(
        self, entry: _Entry, context: RequestContext, frame: memoryview, pos: int
    ) -> Result[Chunks]:
        """As `dispatch`, in time slices. The request is executed when its response is encoded."""
        async with self._long_requests:
            try:
                with postponed_full_collections():
                    return await self._execute_sliced(entry, context, frame, pos)
            except CloseConnection as error:
                reason = error.reason
        # A new one: through its traceback the first one holds all that was made for the request,
        # until a full collection finds it.
        raise CloseConnection(reason)

    async def _execute_sliced(
        self, entry: _Entry, context: RequestContext, frame: memoryview, pos: int
    ) -> Result[Chunks]:
        decode: SlicedDecoder[Message] = sliced_decoder(entry.request_class, context.api_version)
        try:
            request = (await in_slices(decode(frame, pos)))[0]
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request: {error}") from error
        try:
            result = entry.handle(self._services, context, request)
            if self._produce_quota.enabled and context.api_key == PRODUCE:
                result = throttled_produce(self._services, context, len(frame), result)
        except CloseConnection:
            raise
        except Exception as error:
            raise _bug(context, error) from error
        encoded = _when_done(result, entry, context, _encoded_sliced)
        await wait_executed(encoded)
        return encoded

    def _load(self, api_key: int, version: int) -> _Entry:
        """Imports and compiles what serves (`api_key`, `version`), once."""
        api = API_BY_KEY.get(api_key)
        if api is None:
            raise CloseConnection(f"unknown or unsupported API key {api_key}")
        if not api.min_version <= version <= api.max_version:
            raise CloseConnection(f"unsupported version {version} of {api.key.name}")
        module = importlib.import_module(f"odradek.broker.handlers.{api.handler}")
        handler = cast(HandlerModule, module)
        entry = _Entry(
            decode=request_decoder(request_class(api_key), version),
            handle=handler.handle,
            request_class=request_class(api_key),
            response_class=response_class(api_key),
            response_header=response_header_packer(api_key, version),
            has_regions=api_key in WITH_REGIONS,
            encode=cast(Encode, encoder(response_class(api_key), version)),
        )
        self._entries[api_key << 16 | version] = entry
        return entry


def _when_done(
    result: Result[Message | None],
    entry: _Entry,
    context: RequestContext,
    encode: Callable[[_Entry, RequestContext, Message | None], Result[Chunks]],
) -> Result[Chunks]:
    """Return the encoded response. Any error closes the connection.

    A response that is known when the request is executed is encoded as a part of the execution, so
    that a client that pipelines requests does not have many of them encoded at the same time.
    """
    encoded: PendingResult[Chunks] = PendingResult(executed=False, on_cancel=result.cancel)

    def executed() -> None:
        if not result.done:
            encoded.mark_executed()

    def done(result: Result[Message | None]) -> None:
        error = result.error
        try:
            if error is None:
                encoded.follow(encode(entry, context, result.value))
            elif isinstance(error, CloseConnection | Abandoned):
                encoded.fail(error)
            else:
                encoded.fail(_bug(context, error))
        except CloseConnection as refusal:
            encoded.fail(refusal)
        except Exception as bug:  # noqa: BLE001 - it closes this connection only
            encoded.fail(_bug(context, bug))

    result.on_executed(executed)
    result.on_done(done)
    return encoded


def _encoded(entry: _Entry, context: RequestContext, response: Message | None) -> Result[Chunks]:
    """The chunks of the response; one, where none of them can be a region."""
    if response is None:
        return Result([])
    chunks: Chunks = [entry.response_header(context.correlation_id)]
    entry.encode(response, chunks.append)
    return Result(chunks if entry.has_regions else [b"".join(chunks)])  # type: ignore[arg-type]


def _encoded_sliced(
    entry: _Entry, context: RequestContext, response: Message | None
) -> Result[Chunks]:
    """As `_encoded`, in time slices, each of which joins what was encoded in it."""
    return sliced(_encoding(entry, context, response))


def _encoding(
    entry: _Entry, context: RequestContext, response: Message | None
) -> Generator[None, None, Result[Chunks]]:
    if response is None:
        return Result([])
    chunks: Chunks = [entry.response_header(context.correlation_id)]
    encode: SlicedEncoder[Message] = sliced_encoder(entry.response_class, context.api_version)
    try:
        yield from _joining(encode(response, chunks.append), chunks)  # type: ignore[arg-type]
    except GeneratorExit:
        close_regions(chunks)
        raise
    except Exception as error:
        raise _bug(context, error) from error
    return Result(chunks)


def _joining(encoding: Generator[None, None, None], chunks: Chunks) -> Generator[None, None, None]:
    """Join the chunks of each time slice, unless there are regions among them."""
    first = 0
    for _ in encoding:
        if all(chunk.__class__ in BYTES for chunk in chunks[first:]):
            chunks[first:] = [b"".join(chunks[first:])]  # type: ignore[arg-type]
        first = len(chunks)
        yield


def _bug(context: RequestContext, error: Exception) -> CloseConnection:
    """Logs an unexpected exception with its traceback; the connection that met it is closed."""
    api = API_BY_KEY[context.api_key].key.name
    logger.error(
        "bug in %s v%d (client %s)", api, context.api_version, context.client_id, exc_info=error
    )
    return CloseConnection(f"{api} failed inside the broker: {type(error).__name__}")
