"""Spark's own Kafka connector: batch and streaming, as source and as sink.

Needs PySpark and Java. Spark downloads the connector through `spark.jars.packages`, in the
versions listed in `odradek.pipeline.packages`.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
import time
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions

from conformance.adapters.base import Rec
from conformance.adapters.confluent import ConfluentClient
from conformance.harness import Case, Context, Skip, main
from testkit.topics import create_topic

BASE_MS = 1_700_000_000_000
DEADLINE_S = 400.0
# The pipeline's settings for the connector.
CONNECTOR_SETTINGS = ("spark.jars.packages", "spark.jars.excludes")


@functools.cache
def _session() -> Any:
    """Return the Spark session of all cases: local mode, without the web interface."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Skip("PySpark is not installed: pip install 'odradek[spark]'") from None
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise Skip("Spark needs Java 17: there is no `java` on the PATH")
    from odradek.pipeline.packages import spark_conf

    warehouse = tempfile.mkdtemp(prefix="spark-warehouse-")
    builder = SparkSession.builder.master("local[2]").appName("conformance")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": warehouse,
        **{key: value for key, value in spark_conf().items() if key in CONNECTOR_SETTINGS},
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _fill(context: Context, topic: str, first: int, count: int, partitions: int = 3) -> list[Rec]:
    """Send records n, n + 1, ... spread over the partitions, with their number as timestamp."""
    sent = [
        Rec(
            f"v{n}".encode(),
            f"k{n}".encode(),
            (("h", b"%d" % n), ("null", None)),
            BASE_MS + n,
            n % partitions,
        )
        for n in range(first, first + count)
    ]
    ConfluentClient().produce(context.bootstrap, topic, sent, compression="lz4")
    return sent


def _filled_topic(context: Context, count: int) -> tuple[str, list[Rec]]:
    topic = context.topic("spark")
    create_topic(context.bootstrap, topic, partitions=3, retention_ms="-1")
    return topic, _fill(context, topic, 0, count)


def _source(reader: Any, context: Context, topic: str, **options: str) -> Any:
    source = reader.format("kafka").option("kafka.bootstrap.servers", context.bootstrap)
    return source.options(subscribe=topic, startingOffsets="earliest", **options).load()


def _values(frame: Any) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def _sent_values(records: list[Rec]) -> list[bytes]:
    return sorted(r.value or b"" for r in records)


def _batch_source(context: Context) -> None:
    topic, sent = _filled_topic(context, 3000)
    frame = _source(_session().read, context, topic, includeHeaders="true")
    rows = frame.collect()
    assert len(rows) == 3000, len(rows)
    for row in rows:
        n = row.offset * 3 + row.partition
        expected = sent[n]
        assert (bytes(row.key), bytes(row.value)) == (expected.key, expected.value), row
        headers = [(h.key, None if h.value is None else bytes(h.value)) for h in row.headers]
        assert headers == list(expected.headers), row
        assert round(row.timestamp.timestamp() * 1000) == BASE_MS + n, row
        assert row.topic == topic and row.timestampType == 0, row


def _batch_ranges(context: Context) -> None:
    topic, _ = _filled_topic(context, 300)
    spark = _session()
    by_offset = _source(
        spark.read, context, topic, endingOffsets=json.dumps({topic: {"0": 10, "1": 0, "2": -1}})
    )
    assert by_offset.count() == 10 + 0 + 100, by_offset.count()
    stamp = json.dumps({topic: {str(p): BASE_MS + 150 for p in range(3)}})
    by_time = _source(spark.read, context, topic, startingOffsetsByTimestamp=stamp)
    assert _values(by_time) == sorted(f"v{n}".encode() for n in range(150, 300))
    empty = _source(spark.read, context, topic, endingTimestamp=str(BASE_MS - 5))
    assert empty.count() == 0


def _batch_sink(context: Context) -> None:
    topic = context.topic("spark-sink")
    create_topic(context.bootstrap, topic)
    spark = _session()
    rows = spark.range(0, 1000).selectExpr(
        "CAST(id AS STRING) AS key",
        "IF(id % 10 = 0, NULL, CONCAT('value ', id)) AS value",
        "array(struct('h' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
    )
    rows.write.format("kafka").options(
        **{"kafka.bootstrap.servers": context.bootstrap, "includeHeaders": "true"}
    ).option("topic", topic).save()
    got = ConfluentClient().consume(context.bootstrap, topic, 1000)
    by_key = {int(rec.key or b"-1"): rec for rec in got}
    assert sorted(by_key) == list(range(1000))
    for n, rec in by_key.items():
        assert rec.value == (None if n % 10 == 0 else f"value {n}".encode()), rec
        assert rec.headers == (("h", b"%d" % n),), rec


def _run_once(context: Context, topic: str, name: str, **options: str) -> Any:
    """Run the named query over all available records. Return its Parquet table."""
    spark = _session()
    table = context.work / f"{name}-table"
    query = (
        _source(spark.readStream, context, topic, **options)
        .writeStream.format("parquet")
        .option("path", str(table))
        .option("checkpointLocation", str(context.work / f"{name}-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    _end(query)
    return spark.read.parquet(str(table))


def _end(query: Any) -> None:
    assert query.awaitTermination(DEADLINE_S), "the query does not end"
    if query.exception() is not None:
        raise query.exception()


def _streaming_source(context: Context) -> None:
    topic, sent = _filled_topic(context, 900)
    table = _run_once(context, topic, topic, maxOffsetsPerTrigger="200")
    assert _values(table) == _sent_values(sent)
    sent += _fill(context, topic, 900, 600)
    assert _values(_run_once(context, topic, topic)) == _sent_values(sent)
    assert _values(_run_once(context, topic, topic)) == _sent_values(sent), "read twice"


def _streaming_interrupted(context: Context) -> None:
    topic, sent = _filled_topic(context, 3000)
    spark = _session()
    table = context.work / f"{topic}-table"
    query = (
        _source(spark.readStream, context, topic, maxOffsetsPerTrigger="100")
        .writeStream.format("parquet")
        .option("path", str(table))
        .option("checkpointLocation", str(context.work / f"{topic}-checkpoint"))
        .start()
    )
    deadline = time.monotonic() + DEADLINE_S
    while not query.lastProgress or query.lastProgress["batchId"] < 3:
        assert query.exception() is None and time.monotonic() < deadline, query.exception()
        time.sleep(0.05)
    query.stop()
    seen = spark.read.parquet(str(table)).count()
    assert 0 < seen < 3000, f"{seen} rows: the interruption came too late to show anything"
    assert _values(_run_once(context, topic, topic)) == _sent_values(sent)


def _streaming_sink(context: Context) -> None:
    topic, sent = _filled_topic(context, 600)
    target = context.topic("spark-copy")
    create_topic(context.bootstrap, target, partitions=2)
    spark = _session()
    for count in (600, 900):
        query = (
            _source(spark.readStream, context, topic, maxOffsetsPerTrigger="250")
            .select("key", "value")  # A column `partition` would select the target's partition.
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", context.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(context.work / f"{target}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        _end(query)
        copied = _values(_source(spark.read, context, target))
        assert len(copied) == count and copied == _sent_values(sent), len(copied)
        sent += _fill(context, topic, count, 300)


def _growing(context: Context) -> None:
    topic, sent = _filled_topic(context, 300)
    assert _values(_run_once(context, topic, topic)) == _sent_values(sent)
    admin = AdminClient({"bootstrap.servers": context.bootstrap, "log_level": 3})
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_S)
    sent += _fill(context, topic, 300, 500, partitions=5)
    assert _values(_run_once(context, topic, topic)) == _sent_values(sent)


def _pattern(context: Context) -> None:
    prefix = context.topic("spark-pattern")
    sent: list[Rec] = []
    for part in ("a", "b"):
        create_topic(context.bootstrap, f"{prefix}-{part}", partitions=3)
        sent += _fill(context, f"{prefix}-{part}", 0, 90)
    source = _session().read.format("kafka").option("kafka.bootstrap.servers", context.bootstrap)
    frame = source.options(subscribePattern=f"{prefix}-.*", startingOffsets="earliest").load()
    assert _values(frame) == _sent_values(sent)


CASES = (
    Case("batch source: every column, headers included", _batch_source, ci=True, timeout_s=900),
    Case("batch source: ranges by offset and by time", _batch_ranges),
    Case("batch source: topics by pattern", _pattern),
    Case("batch sink: keys, headers, tombstones", _batch_sink, ci=True),
    Case("streaming source, restarted from its checkpoint", _streaming_source, ci=True),
    Case("streaming source, interrupted and restarted", _streaming_interrupted),
    Case("streaming source: partitions are added between runs", _growing),
    Case("streaming sink, restarted from its checkpoint", _streaming_sink, ci=True),
)

if __name__ == "__main__":
    main("spark", CASES)
