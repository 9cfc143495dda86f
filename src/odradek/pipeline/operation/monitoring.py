"""`/metrics` and `/health` of a running pipeline, over HTTP.

`/metrics` has Prometheus' text format. `/health` is JSON: it has the status 200 if all tables run,
otherwise 503 and the reason for each table that does not::

    {"healthy": false, "tables": {"orders": null, "clicks": "The cluster did not respond."}}
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from odradek.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from odradek.pipeline.operation.status import TableStatus

REQUEST_TIMEOUT_S = 10
"""Time in which a client has to send its request."""

Respond = Callable[[str, list[tuple[str, str]]], object]


class TableMetrics(Collector):
    """The metrics of the tables, read from their statuses when they are requested."""

    def __init__(self, statuses: Mapping[str, TableStatus]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterator[Metric]:
        batches = CounterMetricFamily(
            "odradek_pipeline_batches", "Finished batches.", labels=["table"]
        )
        rows = CounterMetricFamily(
            "odradek_pipeline_rows",
            "Rows of finished batches, in the table or in its quarantine.",
            labels=["table", "to"],
        )
        starts = CounterMetricFamily(
            "odradek_pipeline_starts", "Starts of the query.", labels=["table"]
        )
        running = GaugeMetricFamily(
            "odradek_pipeline_running", "Whether the query runs: 0 or 1.", labels=["table"]
        )
        lag = GaugeMetricFamily(
            "odradek_pipeline_lag_records",
            "Offsets in the topics after the newest batch.",
            labels=["table"],
        )
        seconds = GaugeMetricFamily(
            "odradek_pipeline_batch_seconds", "Duration of the newest batch.", labels=["table"]
        )
        for table, status in self._statuses.items():
            batches.add_metric([table], status.batches)
            rows.add_metric([table, "table"], status.accepted)
            rows.add_metric([table, "quarantine"], status.rejected)
            starts.add_metric([table], status.starts)
            running.add_metric([table], status.is_running)
            newest = status.newest
            if newest is not None:
                seconds.add_metric([table], newest.duration_ms / 1000)
                if newest.lag is not None:
                    lag.add_metric([table], newest.lag)
        yield from (batches, rows, starts, running, lag, seconds)


class Monitoring:
    """The HTTP server of one pipeline, from `start` to `close`.

    Args:
        statuses: What the tables do.
        host: The address to listen on.
        port: The port, or 0 for a free one.
    """

    def __init__(self, statuses: Mapping[str, TableStatus], host: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(TableMetrics(statuses))
        self._metrics = make_wsgi_app(registry)
        self._statuses = statuses
        try:
            self._server = make_server(
                host, port, self._respond, server_class=_Server, handler_class=_Handler
            )
        except OSError as error:
            raise PipelineError(
                f"The metrics cannot be served at {host}:{port}: {error.strerror}. Choose another"
                " address in the field listen."
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the server. Requests in progress end on their own."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _respond(self, environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics(environ, respond)
            return found
        if path == "/health":
            return self._health(respond)
        respond("404 Not Found", [("Content-Type", "text/plain")])
        return [b"/metrics and /health are served here.\n"]

    def _health(self, respond: Respond) -> Iterable[bytes]:
        problems = {table: status.problem for table, status in self._statuses.items()}
        healthy = not any(problems.values())
        body = json.dumps({"healthy": healthy, "tables": problems})
        respond(
            "200 OK" if healthy else "503 Service Unavailable",
            [("Content-Type", "application/json")],
        )
        return [body.encode() + b"\n"]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for each request."""
