"""The wire client of `testkit`, under the name that most tests import."""

from testkit.wire import TIMEOUT_S, ConnectionClosed, WireClient, request_bytes

__all__ = ["TIMEOUT_S", "ConnectionClosed", "WireClient", "request_bytes"]
