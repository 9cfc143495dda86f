"""Request dispatch: decode a frame, call the handler of its API, and encode the response.

Dispatch costs one dictionary lookup for each request. `Dispatcher` keeps one entry for each
(API key, version) that it has seen. The entry has the compiled decoder, the handler and the
compiled encoder, which are imported on first use. A Produce request that repeats an earlier one of
its connection needs none of them (`odradek.broker.requests.repeated_produce`).

As in Kafka, the broker closes the connection when it cannot respond to a request. The causes are
an unknown API, an unsupported version, a body that does not decode, and a bug in a handler. An
unsupported version of ApiVersions is the exception: the broker responds with error 35.

A request of more than `ELEMENTS_UNSLICED_MAX` elements is decoded in time slices
(`odradek.slicing`), and its response is encoded in time slices, so that other connections are
served in between. The same holds for the response of any handler that uses time slices. At most
`LONG_REQUESTS_MAX` such requests are executed at the same time, because a decoded request takes
many times the memory of its frame. Such a request releases its slot before it waits for the
controller. Requests of the APIs `SENT_BY_BROKERS` on the inter-broker listener have slots of their
own. If this is the only listener, clients share these slots, but their requests of these APIs wait
for nothing while they have one.

In a cluster, some APIs are served on the inter-broker listener only, and some requests are sent to
the active controller (`odradek.broker.requests.apis`).
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from odradek.broker.requests.apis import (
    API_BY_KEY,
    INTER_BROKER_API_BY_KEY,
    INTER_BROKER_APIS,
    Api,
    Forwarding,
)
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.repeated_fetch import RepeatedFetch
from odradek.broker.requests.repeated_produce import RepeatedProduce
from odradek.broker.requests.shape_budget import ShapeBudget
from odradek.broker.requests.throttling import throttled_produce
from odradek.collector import postponed_full_collections
from odradek.net.connection import Chunks, CloseConnection, Reply, without_size
from odradek.net.sender import BYTES, Chunk, close_regions
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import (
    Message,
    decoding,
    encoder,
    encoding,
    request_decoder,
)
from odradek.protocol.errors import MalformedMessage, TooManyElements
from odradek.protocol.freeing import arrays_of, freeing
from odradek.protocol.headers import parse_request_header, response_header_packer
from odradek.protocol.registry import request_class, response_class
from odradek.protocol.wire import Append
from odradek.result_tasks import run, wait_executed
from odradek.results import Abandoned, PendingResult, Result
from odradek.slicing import ELEMENTS_UNSLICED_MAX, begin, in_slices, sliced

if TYPE_CHECKING:
    from odradek.broker.requests.context import Services
    from odradek.broker.requests.first_use import FirstUse
    from odradek.net.connection import Connection

logger = logging.getLogger(__name__)

LONG_REQUESTS_MAX = 4
"""Maximum number of requests that are executed in time slices at the same time. Each takes some
hundred bytes an element for the decoded request and its response. Further requests wait as frames,
whose memory the network layer limits.
"""

SENT_BY_BROKERS = frozenset(
    {ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH}
    | {each.key for each in INTER_BROKER_APIS}
)
"""APIs of requests that the brokers of a cluster send to each other, and that may be long.

The requests of the transaction coordinator and those to it are never long (`PeerQueue`).
"""

PRODUCE = int(ApiKey.PRODUCE)
FETCH = int(ApiKey.FETCH)
WITH_REGIONS = frozenset({ApiKey.FETCH})
"""APIs whose responses hold records. The records may be regions of files."""

Encode = Callable[[Message, Callable[[Chunk], object]], None]
"""An encoder of the codec that passes each chunk to a function. A connection can send its regions
of files.
"""


class HandlerModule(Protocol):
    """A module of `odradek.broker.handlers`. Its handler takes and returns messages of its API."""

    def handle(
        self, services: Services, context: RequestContext, request: Message, /
    ) -> Result[Message | None]: ...


# The response to an unsupported version of ApiVersions: error 35 and the supported versions of
# ApiVersions itself. It has the format of version 0, which every client can read (KIP-511,
# `ApiVersionsRequest.getErrorResponse`).
_UNSUPPORTED_API_VERSIONS = bytes.fromhex("002300000001001200000004")


@dataclass(slots=True)
class _Entry:
    """The decoder, handler and encoder of one version of one API."""

    decode: Callable[[memoryview, int, int], tuple[Message, int]]
    handle: Callable[[Services, RequestContext, Message], Result[Message | None]]
    request_class: type[Message]
    response_class: type[Message]
    response_header: Callable[[int], bytes]
    encode: Encode
    has_regions: bool


class _Slot:
    """A slot for a long request. Full collections are postponed while the request has it."""

    __slots__ = ("_held", "_limit")

    def __init__(self, limit: asyncio.Semaphore) -> None:
        self._limit = limit
        self._held = ExitStack()

    async def acquire(self) -> None:
        await self._limit.acquire()
        self._held.callback(self._limit.release)
        self._held.enter_context(postponed_full_collections())

    def release(self) -> None:
        """Release the slot if the request still has it."""
        self._held.close()


class _LongRequestContext(RequestContext):
    """The context of a long request."""

    __slots__ = ("arrays", "slot")

    is_long = True
    slot: _Slot
    arrays: list[list[Any]]
    """The arrays of the decoded request, until `freeing` takes them."""

    def release_slot(self) -> None:
        self.slot.release()
        begin(self.freeing(), "freeing of a request")

    def freeing(self) -> Generator[None, None, None]:
        """Free the arrays in time slices. Further calls find none."""
        arrays, self.arrays = self.arrays, []
        return freeing(arrays)


class Dispatcher:
    """The executor of the requests of all connections. Used on the event loop only.

    A connection calls `dispatch` with each frame. `odradek.net.connection` describes the values
    that it may return.
    """

    __slots__ = (
        "_entries",
        "_first_use",
        "_inter_broker_entries",
        "_long_inter_broker_requests",
        "_long_requests",
        "_produce_quota",
        "_repeated",
        "_repeated_fetch",
        "_services",
    )

    def __init__(
        self,
        services: Services,
        shape_budget: ShapeBudget | None = None,
        first_use: FirstUse | None = None,
    ) -> None:
        self._services = services
        self._first_use = first_use
        self._produce_quota = services.quotas.produce
        self._repeated = RepeatedProduce(services, shape_budget or ShapeBudget())
        self._repeated_fetch = RepeatedFetch(services)
        self._entries: dict[int, _Entry] = {}
        self._inter_broker_entries: dict[int, _Entry] = {}
        self._long_requests = asyncio.Semaphore(LONG_REQUESTS_MAX)
        self._long_inter_broker_requests = asyncio.Semaphore(LONG_REQUESTS_MAX)
        if services.cluster is not None:
            services.cluster.embedded.serve_with(self.dispatch)

    def dispatch(  # noqa: C901 - calls are what this path costs
        self, connection: Connection, frame: memoryview
    ) -> Reply:
        """Execute the request in `frame`. Raise CloseConnection if it cannot have a response."""
        if connection.remembered is not None:
            response = self._repeated.respond(connection, frame)
            if response is not None:
                return response
        if connection.fetch_shape is not None:
            chunks = self._repeated_fetch.respond(connection, frame)
            if chunks is not None:
                return chunks
        try:
            api_key, version, correlation_id, client_id, pos = parse_request_header(frame)
            entry = self._entries.get(api_key << 16 | version)
            if entry is None:
                if api_key == ApiKey.API_VERSIONS and not 0 <= version <= 4:
                    return [
                        correlation_id.to_bytes(4, "big", signed=True),
                        _UNSUPPORTED_API_VERSIONS,
                    ]
                first_use = self._first_use
                if first_use is not None and not first_use.is_prepared(api_key, version):
                    return run(self._dispatch_prepared(connection, frame, first_use))
                entry = self._load(connection, api_key, version)
            request = entry.decode(frame, pos, ELEMENTS_UNSLICED_MAX)[0]
        except TooManyElements:
            assert entry is not None
            long = _LongRequestContext(api_key, version, correlation_id, client_id, connection)
            return run(self._execute_long(entry, long, frame, pos))
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request: {error}") from error
        context = RequestContext(api_key, version, correlation_id, client_id, connection)
        try:
            result = entry.handle(self._services, context, request)
            if self._produce_quota.enabled and api_key == PRODUCE:
                result = throttled_produce(self._services, context, len(frame), result)
            if not result.completed:
                if api_key == PRODUCE and result.executed:
                    self._repeated.learn(connection, context, frame, None, ())
                encode = _encoded_sliced if not result.executed else _encoded
                return _when_done(result, entry, context, encode)
            if result.value is None:
                return []
            chunks = [entry.response_header(correlation_id)]
            entry.encode(result.value, chunks.append)
            if not entry.has_regions:
                chunks = [b"".join(chunks)]  # type: ignore[arg-type]
            if api_key == PRODUCE:
                self._repeated.learn(connection, context, frame, request, chunks)
            elif api_key == FETCH:
                self._repeated_fetch.learn(
                    connection, context, frame, request, result.value, chunks
                )
        except CloseConnection:
            raise
        except Exception as error:
            raise _bug(context, error) from error
        return chunks

    async def _dispatch_prepared(
        self, connection: Connection, frame: memoryview, first_use: FirstUse
    ) -> Result[Chunks]:
        """Execute the first request of a kind after its modules have been imported on a thread."""
        api_key, version, *_ = parse_request_header(frame)
        await first_use.prepare(api_key, version)
        reply = without_size(self.dispatch(connection, frame))
        return reply if isinstance(reply, Result) else Result(reply)

    async def _execute_long(
        self, entry: _Entry, context: _LongRequestContext, frame: memoryview, pos: int
    ) -> Result[Chunks]:
        """Execute the request in time slices. It is executed when its response is encoded."""
        context.slot = slot = _Slot(self._long_request_limit(context))
        await slot.acquire()
        try:
            return await self._execute_sliced(entry, context, frame, pos)
        except CloseConnection as error:
            reason = error.reason
        finally:
            slot.release()
        # Raise a new exception. The traceback of the first one would keep the decoded request and
        # its response in memory until a full collection.
        raise CloseConnection(reason)

    def _long_request_limit(self, context: RequestContext) -> asyncio.Semaphore:
        """Return the limit of the request. Brokers do not wait for requests of administrators."""
        cluster = self._services.cluster
        if (
            cluster is not None
            and context.session.listener_name == cluster.listener
            and context.api_key in SENT_BY_BROKERS
        ):
            return self._long_inter_broker_requests
        return self._long_requests

    async def _execute_sliced(
        self, entry: _Entry, context: _LongRequestContext, frame: memoryview, pos: int
    ) -> Result[Chunks]:
        decoded = decoding(entry.request_class, context.api_version, frame, pos)
        try:
            request = (await in_slices(decoded))[0]
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request: {error}") from error
        context.arrays = arrays_of(request)
        try:
            result = entry.handle(self._services, context, request)
            if self._produce_quota.enabled and context.api_key == PRODUCE:
                result = throttled_produce(self._services, context, len(frame), result)
        except CloseConnection:
            raise
        except Exception as error:
            raise _bug(context, error) from error
        del request  # it takes much memory while the result waits for the controller
        encoded = _when_done(result, entry, context, _encoded_sliced)
        del result
        await wait_executed(encoded)
        try:
            await in_slices(context.freeing())
        except asyncio.CancelledError:
            encoded.cancel()
            raise
        return encoded

    def _load(self, connection: Connection, api_key: int, version: int) -> _Entry:
        """Return the entry of (`api_key`, `version`). The next request of the API finds it."""
        api = API_BY_KEY.get(api_key)
        if api is None or api.max_version < version <= api.highest:
            return self._load_inter_broker(connection, api_key, version)
        entry = _new_entry(api, version)
        if api.forwarding is not Forwarding.LOCAL and self._services.cluster is not None:
            from odradek.broker.requests.forwarding import (
                executed_by_controller,
                refused_by_controller,
            )

            is_whole = api.forwarding is Forwarding.DISPATCHER
            execute = executed_by_controller if is_whole else refused_by_controller
            entry.handle = execute(entry.handle)
        self._entries[api_key << 16 | version] = entry
        return entry

    def _load_inter_broker(self, connection: Connection, api_key: int, version: int) -> _Entry:
        """Return the entry of an API or version that the inter-broker listener alone serves.

        These entries are separate, so that requests of clients need no check of the listener.
        """
        api, cluster = INTER_BROKER_API_BY_KEY.get(api_key), self._services.cluster
        if api is None or cluster is None:
            raise CloseConnection(f"unknown or unsupported API key {api_key}")
        if connection.session.listener_name != cluster.listener:
            reason = f"{api.key.name} {version} is served on listener {cluster.listener} only"
            raise CloseConnection(reason)
        entry = self._inter_broker_entries.get(api_key << 16 | version)
        if entry is None:
            entry = _new_entry(api, version)
            self._inter_broker_entries[api_key << 16 | version] = entry
        return entry


def _new_entry(api: Api, version: int) -> _Entry:
    """Import the handler and compile the codec."""
    if not api.min_version <= version <= api.max_version:
        raise CloseConnection(f"unsupported version {version} of {api.key.name}")
    module = importlib.import_module(f"odradek.broker.handlers.{api.handler}")
    handler = cast(HandlerModule, module)
    return _Entry(
        decode=request_decoder(request_class(api.key), version),
        handle=handler.handle,
        request_class=request_class(api.key),
        response_class=response_class(api.key),
        response_header=response_header_packer(api.key, version),
        has_regions=api.key in WITH_REGIONS,
        encode=cast(Encode, encoder(response_class(api.key), version)),
    )


def _when_done(
    result: Result[Message | None],
    entry: _Entry,
    context: RequestContext,
    encode: Callable[[_Entry, RequestContext, Message | None], Result[Chunks]],
) -> Result[Chunks]:
    """Return the encoded response. Any error closes the connection.

    If the response is known when the request is executed, it is encoded as part of the execution.
    The next request of the connection waits for that, so a client that pipelines requests does not
    have many responses encoded at the same time.
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
    """Return the chunks of the response. They are joined if none of them can be a region."""
    if response is None:
        return Result([])
    chunks: Chunks = [entry.response_header(context.correlation_id)]
    entry.encode(response, chunks.append)
    return Result(chunks if entry.has_regions else [b"".join(chunks)])  # type: ignore[arg-type]


def _encoded_sliced(
    entry: _Entry, context: RequestContext, response: Message | None
) -> Result[Chunks]:
    """Encode the response in time slices. Each slice joins the chunks that it encoded."""
    return sliced(_encoding(entry, context, response))


def _encoding(
    entry: _Entry, context: RequestContext, response: Message | None
) -> Generator[None, None, Result[Chunks]]:
    if response is None:
        return Result([])
    chunks: Chunks = [entry.response_header(context.correlation_id)]
    append = cast(Append, chunks.append)
    try:
        encoded = encoding(entry.response_class, context.api_version, response, append)
        yield from _joining(encoded, chunks)
        arrays = arrays_of(response)
        del response, encoded
        yield from freeing(arrays)
    except GeneratorExit:
        close_regions(chunks)
        raise
    except Exception as error:
        raise _bug(context, error) from error
    return Result(chunks)


def _joining(encoded: Generator[None, None, None], chunks: Chunks) -> Generator[None, None, None]:
    """Join the chunks of each time slice, unless one of them is a region."""
    first = 0
    for _ in encoded:
        if chunks[first:] and all(chunk.__class__ in BYTES for chunk in chunks[first:]):
            chunks[first:] = [b"".join(chunks[first:])]  # type: ignore[arg-type]
        first = len(chunks)
        yield


def _bug(context: RequestContext, error: Exception) -> CloseConnection:
    """Log an unexpected exception with its traceback. Return an error to close the connection."""
    api = ApiKey(context.api_key).name
    logger.error(
        "bug in %s v%d (client %s). Its connection is closed. Report the traceback",
        api,
        context.api_version,
        context.client_id,
        exc_info=error,
    )
    return CloseConnection(f"{api} failed inside the broker: {type(error).__name__}")
