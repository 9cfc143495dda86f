"""DataFrames without rows, created in the JVM only."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a DataFrame without rows and with the columns of `schema`, all of them nullable.

    `createDataFrame([], schema)` would start Python workers, which takes seconds.
    """
    columns = (F.lit(None).cast(one.dataType).alias(one.name) for one in schema.fields)
    return spark.range(0).select(*columns)
