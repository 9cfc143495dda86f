"""Faults on a running broker: requests are refused, delayed, disconnected or get no response.

`Faults` is the interceptor of requests in the environment of a `Broker`. While no fault is set, it
executes each request without decoding it. Only the broker's loop changes the faults. Tests read the
counts from their own threads.
"""

from __future__ import annotations

import difflib
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

from odradek.broker.requests.apis import API_BY_KEY, APIS, Api
from odradek.environment.interceptor import Reply
from odradek.errors import ErrorCode
from odradek.net.connection import Chunks, CloseConnection
from odradek.net.sender import close_regions
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encoder
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.headers import parse_request_header, response_header
from odradek.protocol.registry import request_class, response_class
from odradek.results import PendingResult, Result
from odradek.testing.barriers import LOOK_AGAIN_S, WaitTimeoutError

if TYPE_CHECKING:
    from odradek.broker.broker import BrokerServer
    from odradek.environment.interceptor import InterceptedConnection
    from odradek.environment.timers import Timer, Timers

ApiName = str | int | ApiKey


class Request:
    """A request to which faults may apply. Its body is decoded when a fault first reads it."""

    def __init__(
        self, connection: InterceptedConnection, frame: memoryview, server: BrokerServer
    ) -> None:
        self.connection = connection
        self.frame = frame
        self.server = server
        key, self.version, self.correlation_id, self.client_id, self._pos = parse_request_header(
            frame
        )
        self.api = API_BY_KEY.get(key)
        self._body: Any = None

    def served(self) -> bool:
        api = self.api
        return api is not None and api.min_version <= self.version <= api.highest

    @property
    def body(self) -> Any:
        if self._body is None:
            assert self.api is not None
            self._body = decode(request_class(self.api.key), self.version, self.frame, self._pos)
        return self._body

    def topics(self) -> set[str]:
        """Return the names of the topics that the request names or refers to by id."""
        from odradek.broker.requests.error_responses import topics_named

        names, ids = topics_named(self.body, self.version)
        by_id = self.server.services.image().topics_by_id
        known = (by_id.get(each) for each in ids)  # type: ignore[call-overload]
        return names | {each.name for each in known if each is not None}

    def continues_fetch_session(self) -> bool:
        """Return whether the request is an incremental fetch, which may omit its partitions."""
        return self.api is API_BY_KEY[ApiKey.FETCH] and self.body.session_epoch > 0

    def encode_response(self, response: Any) -> Chunks:
        assert self.api is not None
        chunks: list[Any] = [response_header(self.api.key, self.version, self.correlation_id)]
        encoder(type(response), self.version)(response, chunks.append)
        return chunks


Execute = Callable[[], Reply]
# The effect of a fault on a request that matches. It returns a `Reply`, as a dispatcher does.
Strike = Callable[[Request, Execute], Reply]


class Fault:
    """A fault that was set on a `Broker`.

    It ends after `times` requests, with `clear()`, or with its `with` block. `struck` is the number
    of requests that it has affected.
    """

    def __init__(
        self,
        faults: Faults,
        what: str,
        strike: Strike,
        *,
        api: Api | None,
        client_id: str | None,
        topic: str | None,
        times: int | None,
    ) -> None:
        self._faults = faults
        self._what = what
        self._strike = strike
        self._api = api
        self._client_id = client_id
        self._topic = topic
        self._times = times
        self.struck = 0
        # Connections with a request that never gets a response, closed when the fault ends.
        self.held: set[InterceptedConnection] = set()

    @property
    def active(self) -> bool:
        """Whether the fault affects further requests."""
        return self in self._faults.active

    def clear(self) -> None:
        """End the fault. A second call does nothing."""
        self._faults.remove(self)

    def wait(self, times: int = 1, *, timeout_s: float = 30.0) -> None:
        """Wait until the fault has affected `times` requests.

        Raises:
            WaitTimeoutError: It has affected fewer requests after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while self.struck < times:
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(
                    f"waited {timeout_s:g} s for {times} strikes of this fault: {self!r}"
                )
            time.sleep(LOOK_AGAIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def __repr__(self) -> str:
        whose = f" of client {self._client_id!r}" if self._client_id is not None else ""
        topic = f" for topic {self._topic!r}" if self._topic is not None else ""
        api = "every request" if self._api is None else self._api.message_name
        limit = "" if self._times is None else f" of {self._times}"
        return f"<{self._what}: {api}{whose}{topic}, struck {self.struck}{limit}>"

    # The following methods run on the broker's loop.

    def matches(self, request: Request) -> bool:
        return (
            (self._api is None or request.api is self._api)
            and (self._client_id is None or request.client_id == self._client_id)
            and (self._topic is None or self._topic in request.topics())
        )

    def needs_full_fetch(self, request: Request) -> bool:
        """Return whether the fault may apply to this incremental fetch without partitions."""
        return (
            (self._topic is not None or self._what.startswith("error"))
            and (self._api is None or request.api is self._api)
            and (self._client_id is None or request.client_id == self._client_id)
            and request.continues_fetch_session()
        )

    def strike(self, request: Request, execute: Execute) -> Reply:
        self.struck += 1
        if self.struck == self._times:
            self._faults.drop(self)
        return self._strike(request, execute)


class Faults:
    """The faults of one broker, in the order in which they were set.

    The first fault that matches a request affects it. `call` runs a coroutine function on the
    broker's loop.
    """

    def __init__(
        self, call: Callable[[Callable[[BrokerServer], Any]], Any], timers: Timers
    ) -> None:
        self._call = call
        self.timers = timers
        self._server: BrokerServer | None = None
        self.active: list[Fault] = []
        # All faults since the last `clear`, because an ended fault may still hold connections.
        self._set: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        async def add(server: BrokerServer) -> None:
            self._server = server
            self.active.append(fault)
            self._set.append(fault)

        self._call(add)
        return fault

    def remove(self, fault: Fault) -> None:
        async def remove(_server: BrokerServer) -> None:
            self.drop(fault)
            self._close_held(fault)

        if fault.active or fault.held:
            self._call(remove)

    def clear(self) -> None:
        """End all faults. Runs on the broker's loop."""
        for fault in self._set:
            self.drop(fault)
            self._close_held(fault)
        self._set.clear()

    def drop(self, fault: Fault) -> None:
        """Make `fault` inactive. Runs on the broker's loop."""
        if fault in self.active:
            self.active.remove(fault)

    def _close_held(self, fault: Fault) -> None:
        for connection in fault.held:
            connection.abort("a fault that has ended had taken the response of a request")
        fault.held.clear()

    def intercept(
        self, connection: InterceptedConnection, frame: memoryview, execute: Execute
    ) -> Reply:
        """Apply the first fault that matches, or execute the request."""
        if not self.active:
            return execute()
        assert self._server is not None
        try:
            request = Request(connection, frame, self._server)
            if not request.served():
                return execute()
            for fault in self.active:
                if fault.needs_full_fetch(request):
                    # The client sends a full fetch next, which lists its partitions.
                    return request.encode_response(_no_session())
                if fault.matches(request):
                    return fault.strike(request, execute)
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request: {error}") from error
        return execute()


class FaultSetters:
    """The methods of a `Broker` that set faults.

    Each method returns a `Fault` that is already active. As a context manager the fault ends with
    its block. It affects the requests that match all arguments: `api` ("Produce", "join_group",
    `ApiKey.FETCH`), `client_id`, and `topic` (named by the request). It ends after `times` of them.
    If several faults match, the fault that was set first applies.
    """

    _faults: Faults

    @abstractmethod
    def call(self, function: Callable[[BrokerServer], Coroutine[Any, Any, Any]]) -> Any: ...

    def fail(
        self,
        api: ApiName,
        error: ErrorCode | str | int,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        times: int | None = None,
    ) -> Fault:
        """Respond with an error code such as "NOT_LEADER_OR_FOLLOWER", without executing.

        The response has the error for each topic, partition or group of the request. A Metadata
        request is executed, and the error is set in its topics (only in `topic`, if that is set).

        Raises:
            ValueError: The API or the error does not exist.
        """
        code = error_of(error)
        if api is None:
            raise ValueError("fail() needs an API, because no error of Kafka fits all APIs")

        def strike(request: Request, execute: Execute) -> Reply:
            from odradek.broker.requests.error_responses import error_response

            if request.api is API_BY_KEY[ApiKey.METADATA]:
                return _result(execute()).then(
                    lambda chunks: _fail_topics(request, chunks, code, topic)
                )
            if request.api is API_BY_KEY[ApiKey.PRODUCE] and request.body.acks == 0:
                raise CloseConnection(f"a fault: {code.name}, and acks=0 has no response")
            assert request.api is not None
            class_of_response = response_class(request.api.key)
            try:
                response = error_response(class_of_response, request.body, request.version, code)
            except LookupError as reason:
                raise CloseConnection(f"a fault: {code.name}, but {reason}") from reason
            return request.encode_response(response)

        return self._set(f"error {code.name}", strike, api, client_id, topic, times)

    def delay(
        self,
        api: ApiName | None,
        seconds: float,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        times: int | None = None,
    ) -> Fault:
        """Execute the request, and respond `seconds` later on the broker's clock (see `advance`).

        Later requests of the same connection are executed. Their responses follow the delayed one.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"a delay must be finite and not negative: {seconds}")

        def strike(_request: Request, execute: Execute) -> Reply:
            return _late(execute(), seconds, self._faults.timers)

        return self._set(f"delay of {seconds:g} s", strike, api, client_id, topic, times)

    def disconnect(
        self,
        api: ApiName | None,
        *,
        executed: bool = False,
        client_id: str | None = None,
        topic: str | None = None,
        times: int | None = None,
    ) -> Fault:
        """Close the connection of the request.

        With `executed` the request is executed first, so that only its response is lost.
        """

        def cut(chunks: Chunks) -> Chunks:
            close_regions(chunks)
            raise CloseConnection("a fault: disconnected instead of responding")

        def strike(_request: Request, execute: Execute) -> Reply:
            return _result(execute()).then(cut) if executed else cut([])

        return self._set("disconnect", strike, api, client_id, topic, times)

    def blackhole(
        self,
        api: ApiName | None,
        *,
        executed: bool = False,
        client_id: str | None = None,
        topic: str | None = None,
        times: int | None = None,
    ) -> Fault:
        """Never respond to the request, and leave the connection open.

        Later requests of the connection get no response either. With `executed` the request is
        executed. When the fault is cleared, these connections are closed, and clients reconnect.
        """

        def strike(request: Request, execute: Execute) -> Reply:
            fault.held.add(request.connection)
            return _swallowed(execute()) if executed else PendingResult()

        fault = self._set("blackhole", strike, api, client_id, topic, times)
        return fault

    def _set(
        self,
        what: str,
        strike: Strike,
        api: ApiName | None,
        client_id: str | None,
        topic: str | None,
        times: int | None,
    ) -> Fault:
        found = None if api is None else api_of(api)
        if times is not None and times < 1:
            raise ValueError(f"times is 1 or more, or None for no limit: {times}")
        if topic is not None and found is not None and not _can_name_topics(found):
            raise ValueError(f"{found.message_name} requests name no topic: remove topic={topic!r}")
        fault = Fault(
            self._faults, what, strike, api=found, client_id=client_id, topic=topic, times=times
        )
        return self._faults.add(fault)


def api_of(name: ApiName) -> Api:
    """Return the API by its key, or by its name in any spelling.

    Raises:
        ValueError: No such API. The text suggests a similar name, if one exists.
    """
    if isinstance(name, int):
        found = API_BY_KEY.get(name)
        if found is None:
            raise ValueError(f"this broker serves no API with key {name}")
        return found
    by_name = {_plain(api.key.name): api for api in APIS}
    found = by_name.get(_plain(name))
    if found is None:
        near = difflib.get_close_matches(_plain(name), by_name, 1)
        hint = f"; did you mean {by_name[near[0]].message_name!r}?" if near else ""
        raise ValueError(f"this broker serves no API {name!r}{hint}")
    return found


def error_of(error: ErrorCode | str | int) -> ErrorCode:
    """Return the error code by its number or by Kafka's name.

    Raises:
        ValueError: No such error, or NONE. The text suggests a similar name, if one exists.
    """
    if isinstance(error, str):
        names = {each.name: each for each in ErrorCode}
        if error.upper() not in names:
            near = difflib.get_close_matches(error.upper(), names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"Kafka has no error {error!r}{hint}")
        code = names[error.upper()]
    else:
        code = ErrorCode(error)
    if code is ErrorCode.NONE:
        raise ValueError("NONE is not an error: use another error code")
    return code


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _can_name_topics(api: Api) -> bool:
    from odradek.broker.requests.error_responses import names_topics
    from odradek.protocol.spec import load

    return names_topics(load(request_class(api.key).SPEC).body)


def _no_session() -> Any:
    from odradek.protocol.messages.fetch_response import FetchResponse

    return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def _fail_topics(request: Request, chunks: Chunks, code: ErrorCode, topic: str | None) -> Chunks:
    """Return the Metadata response in `chunks` with the error in its topics."""
    from odradek.protocol.messages.metadata_response import MetadataResponse

    header = response_header(ApiKey.METADATA, request.version, request.correlation_id)
    encoded = memoryview(b"".join(chunks))  # type: ignore[arg-type]
    response = decode(MetadataResponse, request.version, encoded, len(header))
    for each in response.topics:
        if topic is None or each.name == topic:
            each.error_code = code
            each.partitions = []
    return request.encode_response(response)


def _result(reply: Reply) -> Result[Chunks]:
    return Result(reply) if isinstance(reply, list) else reply


def _swallowed(reply: Reply) -> Result[Chunks]:
    """Return a result that is executed when `reply` is executed, and never has a response."""
    result = _result(reply)
    swallowed: PendingResult[Chunks] = PendingResult(executed=False, on_cancel=result.cancel)

    def done(result: Result[Chunks]) -> None:
        if result.error is not None:
            swallowed.fail(result.error)
        else:
            close_regions(result.value)

    result.on_executed(swallowed.mark_executed)
    result.on_done(done)
    return swallowed


def _late(reply: Reply, seconds: float, timers: Timers) -> Reply:
    """Delay the response of a dispatcher's `reply` until `seconds` after the execution."""
    if not reply:
        return reply  # there is no response to delay
    result = _result(reply)

    timer: Timer | None = None

    def cancel() -> None:
        if timer is not None:
            timer.cancel()
        result.cancel()
        result.on_done(lambda done: close_regions(done.value if done.completed else ()))

    def executed() -> None:
        nonlocal timer
        timer = timers.call_later(seconds, follow)
        late.mark_executed()

    def follow() -> None:
        late.follow(result)

    late: PendingResult[Chunks] = PendingResult(executed=False, on_cancel=cancel)
    result.on_executed(executed)
    return late
