"""Spark queries of the demo on the finished table: counts, traffic over time, top pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from odradek.pipeline.tables import TableDir

BUCKETS_MAX = 100
TOP_PAGES = 10
_BUCKET_CHOICES_S = (10, 60, 300, 600, 900, 1800, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400)
_ASSETS = r"(?i)\.(css|js|png|jpe?g|gif|ico|svg|txt|xml|woff2?)$"


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of rows of table and quarantine, and of different offsets in them."""

    table: int
    quarantine: int
    distinct_offsets: int

    @property
    def rows(self) -> int:
        return self.table + self.quarantine


@dataclass(frozen=True, slots=True)
class Traffic:
    """Rows by kind and time bucket, and the most viewed pages with their views."""

    bucket_s: int
    times: list[datetime]
    by_kind: dict[str, list[int]]
    top_pages: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class View:
    """Columns of one type of data: its kinds in the order of the plot, and its pages."""

    title: str
    kinds: tuple[str, ...]
    kind: Column
    page: Column
    is_page_view: Column


def usage_view() -> View:
    return View(
        title="Usage events",
        kinds=("page_view", "impression", "click"),
        kind=F.col("value.type"),
        page=F.col("value.page"),
        is_page_view=F.col("value.type") == "page_view",
    )


def access_log_view() -> View:
    path = F.regexp_replace(F.col("value.path"), r"\?.*$", "")
    is_ok = F.col("value.status").isin(200, 304) & (F.col("value.method") == "GET")
    return View(
        title="Requests",
        kinds=("2xx", "3xx", "4xx", "5xx"),
        kind=F.concat(F.floor(F.col("value.status") / 100).cast("string"), F.lit("xx")),
        page=path,
        is_page_view=is_ok & ~path.rlike(_ASSETS),
    )


def count_rows(spark: SparkSession, tables: TableDir) -> Counts:
    table = tables.table(spark).read()
    quarantine = tables.quarantine(spark).read()
    location = ("topic", "partition", "offset")
    distinct = table.select(*location).union(quarantine.select(*location)).distinct()
    return Counts(table.count(), quarantine.count(), distinct.count())


def quarantine_reasons(spark: SparkSession, tables: TableDir) -> list[tuple[str, int]]:
    rows = tables.quarantine(spark).read().groupBy("reason").count().orderBy(F.desc("count"))
    return [(row["reason"], row["count"]) for row in rows.collect()]


def traffic(spark: SparkSession, tables: TableDir, view: View) -> Traffic:
    rows = tables.table(spark).read()
    at_s = F.unix_timestamp("value.time")
    first, last = rows.agg(F.min(at_s), F.max(at_s)).collect()[0]
    if first is None:
        return Traffic(_BUCKET_CHOICES_S[0], [], {}, [])
    bucket_s = _bucket_s(last - first)
    starts = range(first - first % bucket_s, last + 1, bucket_s)
    return Traffic(
        bucket_s,
        [datetime.fromtimestamp(start, UTC) for start in starts],
        _by_kind(rows, view, bucket_s, starts),
        _top_pages(rows, view),
    )


def _bucket_s(span_s: int) -> int:
    fitting = (one for one in _BUCKET_CHOICES_S if span_s / one <= BUCKETS_MAX)
    return next(fitting, _BUCKET_CHOICES_S[-1])


def _by_kind(rows: DataFrame, view: View, bucket_s: int, starts: range) -> dict[str, list[int]]:
    bucket = F.floor(F.unix_timestamp("value.time") / bucket_s) * bucket_s
    counted = rows.groupBy(view.kind.alias("kind"), bucket.alias("start")).count()
    found = {(row["kind"], row["start"]): row["count"] for row in counted.collect()}
    existing = {kind for kind, _ in found}
    kinds = [kind for kind in view.kinds if kind in existing]
    return {kind: [found.get((kind, start), 0) for start in starts] for kind in kinds}


def _top_pages(rows: DataFrame, view: View) -> list[tuple[str, int]]:
    pages = rows.where(view.is_page_view).groupBy(view.page.alias("page")).count()
    top = pages.orderBy(F.desc("count"), "page").limit(TOP_PAGES).collect()
    return [(row["page"], row["count"]) for row in top]
