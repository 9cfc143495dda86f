"""The factory of all connections to ZooKeeper, on `kazoo`.

kazoo runs one thread for each client, which reads and writes its socket and sends pings. It would
run callbacks of watches and of results on two further threads, which loses their order. The handler
here has no such threads: results and watches are passed on in the order in which the socket
delivered them. A callback must not block, because it runs on the thread that sends the pings.

Importing this module imports kazoo. Only a broker that uses ZooKeeper does so.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.serialization import Connect
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from odradek.metadata.store.interface import CHROOT_BYTES_MAX

_kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
_kazoo_logger.setLevel(logging.ERROR)  # it warns at each attempt to connect

RETRY_DELAY_S = 0.05
RETRY_DELAY_MAX_S = 1.0
"""Delays between attempts to connect. They double from the first to the second."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The identity of a client, for example ``Credentials("digest", "odradek:secret")``."""

    scheme: str
    secret: str

    def __repr__(self) -> str:
        return f"Credentials({self.scheme!r}, ...)"


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """The servers of a ZooKeeper ensemble, and the path below which the cluster's nodes are."""

    hosts: str
    """``HOST:PORT``, with commas between several servers."""
    chroot: str = ""
    """The path of the root of the store, such as ``/odradek``. `create_root` creates it."""

    def __post_init__(self) -> None:
        if len(self.chroot.encode()) > CHROOT_BYTES_MAX:
            raise ValueError(f"the path {self.chroot} has more than {CHROOT_BYTES_MAX} bytes")

    def __str__(self) -> str:
        return self.hosts + self.chroot


class ClientEvents(Protocol):
    """Receives the results of a client. All methods are called on kazoo's thread."""

    def completed(self, result: Any) -> None:
        """A result of the client is ready."""

    def negotiated(self, session_timeout_ms: int) -> None:
        """A server has granted that session timeout. CONNECTED follows.

        A server bounds the requested timeout, by default to 2 and 20 of its ticks.
        """

    def state_changed(self, state: str) -> None:
        """The client's state is CONNECTED, SUSPENDED or LOST (`KazooState`)."""


def create_client(
    address: ZooKeeperAddress,
    session_timeout_ms: int,
    credentials: Credentials | None,
    events: ClientEvents,
) -> KazooClient:
    """Return a client that is not started. With credentials, only they can access new nodes."""
    handler = _OrderedHandler(events.completed)
    retry = KazooRetry(
        max_tries=-1,
        delay=RETRY_DELAY_S,
        max_delay=RETRY_DELAY_MAX_S,
        sleep_func=handler.sleep_func,
    )
    client = KazooClient(
        hosts=str(address),
        timeout=session_timeout_ms / 1000,
        handler=handler,
        auth_data=None if credentials is None else [(credentials.scheme, credentials.secret)],
        default_acl=OPEN_ACL_UNSAFE if credentials is None else CREATOR_ALL_ACL,
        connection_retry=retry,
        logger=_kazoo_logger,
    )

    def state_changed(state: str) -> None:
        if state == "LOST":
            # kazoo would begin another session, in which it executes requests of the lost one.
            handler.refuse_connections()
        events.state_changed(state)

    client.add_listener(state_changed)
    _report_negotiated_timeouts(client, events)
    return client


@contextlib.contextmanager
def blocking_client(address: ZooKeeperAddress, timeout_s: float) -> Iterator[KazooClient]:
    """Yield a client whose calls wait for their results, for tools and tests.

    Args:
        address: The ensemble.
        timeout_s: Time limit of the first connection, and the session timeout.

    Raises:
        Exception: No server accepts the session in time. kazoo's errors have no common base.
    """
    client = create_client(address, int(timeout_s * 1000), None, _NoEvents())
    try:
        client.start(timeout=timeout_s)
        yield client
    finally:
        client.stop()
        client.close()


class _NoEvents:
    """Events of a client without a reaction, because each call waits for its result."""

    def completed(self, result: Any) -> None:
        pass

    def negotiated(self, session_timeout_ms: int) -> None:
        pass

    def state_changed(self, state: str) -> None:
        pass


def _report_negotiated_timeouts(client: KazooClient, events: ClientEvents) -> None:
    """Read the timeouts of sessions in the responses, because kazoo does not keep them."""
    connection = client._connection
    invoke = connection._invoke

    def invoke_and_report(timeout: float, request: Any, xid: int | None = None) -> Any:
        result = invoke(timeout, request, xid)
        if isinstance(request, Connect):
            response, _ = result
            events.negotiated(response.time_out)
        return result

    connection._invoke = invoke_and_report


class _InlineQueue:
    """Calls everything at once, on the thread that puts it."""

    def put(self, call: Callable[[], object]) -> None:
        call()


class _OrderedResult(AsyncResult):  # type: ignore[misc]
    """A result that is passed on when it is set, before kazoo reads the next message."""

    def set(self, value: Any = None) -> None:
        super().set(value)
        self._handler.completed(self)

    def set_exception(self, exception: BaseException) -> None:
        super().set_exception(exception)
        self._handler.completed(self)


class _OrderedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without threads for callbacks: see the module's docstring."""

    def __init__(self, completed: Callable[[Any], None]) -> None:
        super().__init__()
        self.completed = completed
        self.completion_queue = self.callback_queue = _InlineQueue()
        self._is_started = False
        self._refuses = False

    @property
    def running(self) -> bool:
        return self._is_started

    def start(self) -> None:
        self._is_started = True

    def stop(self) -> None:
        self._is_started = False

    def refuse_connections(self) -> None:
        self._refuses = True

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self._refuses:
            raise ConnectionRefusedError("the session has ended")
        return super().create_connection(*args, **kwargs)

    def async_result(self) -> _OrderedResult:
        return _OrderedResult(self)
