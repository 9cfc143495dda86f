"""`/metrics` and `/health` over HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.operation.monitoring import Monitoring
from odradek.pipeline.operation.status import TableStatus
from odradek.pipeline.progress import Progress


@pytest.fixture
def statuses() -> dict[str, TableStatus]:
    orders, clicks = TableStatus(), TableStatus()
    for table in (orders, orders, clicks):
        table.start()
    for batch in (Progress(0, 10, 0, 900, None), Progress(1, 8, 2, 1500, 40)):
        orders.finish_batch(batch)
    return {"orders": orders, "clicks": clicks}


@pytest.fixture
def server(statuses: dict[str, TableStatus]) -> Iterator[Monitoring]:
    running = Monitoring(statuses, "127.0.0.1", 0)
    running.start()
    yield running
    running.close()


def get(server: Monitoring, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def values(server: Monitoring, name: str) -> dict[tuple[str, ...], float]:
    status, text = get(server, "/metrics")
    assert status == 200
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_metrics_have_the_counts_of_each_table(server: Monitoring) -> None:
    assert values(server, "odradek_pipeline_batches_total") == {("orders",): 2, ("clicks",): 0}
    assert values(server, "odradek_pipeline_rows_total") == {
        ("orders", "table"): 18,
        ("orders", "quarantine"): 2,
        ("clicks", "table"): 0,
        ("clicks", "quarantine"): 0,
    }
    assert values(server, "odradek_pipeline_starts_total") == {("orders",): 2, ("clicks",): 1}
    assert values(server, "odradek_pipeline_lag_records") == {("orders",): 40}
    assert values(server, "odradek_pipeline_batch_seconds") == {("orders",): 1.5}


def test_metrics_change_with_the_status(
    server: Monitoring, statuses: dict[str, TableStatus]
) -> None:
    assert values(server, "odradek_pipeline_running") == {("orders",): 1, ("clicks",): 1}
    statuses["orders"].fail("no broker", None)
    statuses["clicks"].end()
    assert values(server, "odradek_pipeline_running") == {("orders",): 0, ("clicks",): 0}


def test_health_is_503_with_the_reason_while_a_table_does_not_run(
    server: Monitoring, statuses: dict[str, TableStatus]
) -> None:
    status, body = get(server, "/health")
    assert (status, json.loads(body)) == (
        200,
        {"healthy": True, "tables": {"orders": None, "clicks": None}},
    )
    statuses["clicks"].fail("The cluster did not respond.", None)
    status, body = get(server, "/health")
    assert (status, json.loads(body)) == (
        503,
        {
            "healthy": False,
            "tables": {"orders": None, "clicks": "The cluster did not respond."},
        },
    )


def test_other_paths_are_not_found(server: Monitoring) -> None:
    assert get(server, "/")[0] == 404


def test_address_in_use_is_named(server: Monitoring) -> None:
    with pytest.raises(PipelineError, match=f"127.0.0.1:{server.port}: Address already in use"):
        Monitoring({}, "127.0.0.1", server.port)
