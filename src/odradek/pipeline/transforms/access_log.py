r"""Parser for the combined log format, which Apache httpd and nginx write.

    host ident user [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1234 "referer" "user agent"

Inside the quotes `\"` and `\\` stand for `"` and `\`. Other escapes such as `\x16` are kept. "-" is
null, also for the size. A request that is not "METHOD PATH HTTP/x" (a port scan, a timeout) is kept
in `request`, with null in `method`, `path` and `protocol`. Such a line counts as parsed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.transforms.raw import value_text
from odradek.pipeline.transforms.reasons import Code, first_reason

# All quantifiers are possessive. Java's matcher recurses for a group that may backtrack, so a line
# with ten thousand escaped quotes would overflow the stack of the task.
_QUOTED = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_COMBINED = (
    r"^(\S++) (\S++) (.+?) \[(\d{2}/[A-Z][a-z]{2}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4})\] "
    rf"{_QUOTED} (\d{{3}}) (\d{{1,18}}|-) {_QUOTED} {_QUOTED}\s*+$"
)
_REQUEST = r"^([A-Z]++) (\S++)(?: (HTTP/\d(?:\.\d)?))?$"
_TIME_FORMAT = "dd/MMM/yyyy:HH:mm:ss Z"


def parse_access_log(rows: DataFrame) -> DataFrame:
    """Add the columns `parsed` and `reason` to `rows`.

    The fields of `parsed` are host, ident, user, time, method, path, protocol, request, status,
    size_bytes, referer and user_agent.
    """
    text = value_text(F.col("value"))
    return (
        rows.withColumn("_text", text)
        .withColumn("_time", F.try_to_timestamp(_group(4), F.lit(_TIME_FORMAT)))
        .withColumn("_request", _unescaped(_group(5)))
        .withColumns({"parsed": _line(), "reason": _reason()})
        .drop("_text", "_time", "_request")
    )


def _group(index: int) -> Column:
    return F.regexp_extract(F.col("_text"), _COMBINED, index)


def _line() -> Column:
    return F.struct(
        _group(1).alias("host"),
        _absent(_group(2)).alias("ident"),
        _absent(_group(3)).alias("user"),
        F.col("_time").alias("time"),
        _request_part(1).alias("method"),
        _request_part(2).alias("path"),
        _request_part(3).alias("protocol"),
        _absent(F.col("_request")).alias("request"),
        _group(6).try_cast("int").alias("status"),
        _group(7).try_cast("bigint").alias("size_bytes"),
        _absent(_unescaped(_group(8))).alias("referer"),
        _absent(_unescaped(_group(9))).alias("user_agent"),
    )


def _request_part(index: int) -> Column:
    part = F.regexp_extract(F.col("_request"), _REQUEST, index)
    return F.when(part != "", part)


def _unescaped(text: Column) -> Column:
    return F.regexp_replace(text, r'\\(["\\])', "$1")


def _absent(text: Column) -> Column:
    return F.when(text != "-", text)


def _reason() -> Column:
    return first_reason(
        (F.col("value").isNull(), Code.NO_VALUE, "the record has no value"),
        (F.col("_text").isNull(), Code.NOT_UTF8, "the value is not UTF-8"),
        (_group(1) == "", Code.NOT_AN_ACCESS_LOG, "the line is not in the combined log format"),
        (F.col("_time").isNull(), Code.NO_SUCH_TIME, "the line's time does not exist"),
    )
