"""The HTTP requests and responses of one connection, parsed from copies of its bytes. Pure."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import h11


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its response.

    Attributes:
        method: The HTTP method.
        target: The path and the query string, as the client sent them.
        status: The HTTP status of the response.
        error_code: The field `error_code` of an error in Confluent's form. None: the response has
            none.
    """

    method: str
    target: str
    status: int
    error_code: int | None = None


class Conversation:
    """The exchanges of one connection with HTTP/1.1.

    Args:
        record: Called with each exchange when its response is complete.
    """

    def __init__(self, record: Callable[[Exchange], None]) -> None:
        self._record = record
        self._requests = _Messages(lambda: h11.Connection(h11.SERVER))
        self._responses = _Messages(self._reader_of_response)
        self._open: deque[h11.Request] = deque()
        self._response: h11.Response | None = None
        self._body = b""

    def from_client(self, data: bytes) -> None:
        """Parse bytes that the client sent.

        Raises:
            h11.RemoteProtocolError: They are not HTTP/1.1.
        """
        for event in self._requests.parse(data):
            if isinstance(event, h11.Request):
                self._open.append(event)

    def from_server(self, data: bytes) -> None:
        """Parse bytes that the server sent.

        Raises:
            h11.RemoteProtocolError: They are not HTTP/1.1.
        """
        for event in self._responses.parse(data):
            if isinstance(event, h11.Response):
                self._response, self._body = event, b""
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._complete(self._open.popleft())

    def _reader_of_response(self) -> h11.Connection:
        """Return a reader that knows the method, because a response to HEAD has no body."""
        connection = h11.Connection(h11.CLIENT)
        method = self._open[0].method
        connection.send(h11.Request(method=method, target="/", headers=[("Host", "registry")]))
        connection.send(h11.EndOfMessage())
        return connection

    def _complete(self, request: h11.Request) -> None:
        assert self._response is not None, "a response has a status line"
        status = self._response.status_code
        self._record(
            Exchange(
                request.method.decode(),
                request.target.decode(),
                status,
                _error_code(self._body) if status >= 400 else None,
            )
        )


class _Messages:
    """The messages of one direction. h11 reads one message with each connection object."""

    def __init__(self, reader: Callable[[], h11.Connection]) -> None:
        self._new_reader = reader
        self._reader: h11.Connection | None = None

    def parse(self, data: bytes) -> Iterator[h11.Event]:
        while data:
            if self._reader is None:
                self._reader = self._new_reader()
            self._reader.receive_data(data)
            data = b""
            while (event := self._reader.next_event()) is not h11.NEED_DATA:
                assert not isinstance(event, type), "h11 pauses only after the end of a message"
                yield event
                if isinstance(event, h11.EndOfMessage):
                    data, _ = self._reader.trailing_data
                    self._reader = None
                    break


def _error_code(body: bytes) -> int | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    code = found.get("error_code") if isinstance(found, dict) else None
    return code if isinstance(code, int) else None
