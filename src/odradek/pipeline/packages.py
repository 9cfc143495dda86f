"""JVM packages of the pipeline and their versions.

Spark contains neither its Kafka connector nor Delta Lake. Both are downloaded from Maven Central
through `spark.jars.packages`. The version of kafka-clients is newer than the version that the
connector requests, which contains CVE-2026-35554. Packages of Spark's own distribution are
excluded: Spark's copies come first on the class path, and a new machine downloads 26 MB instead of
77 MB.
"""

from __future__ import annotations

SCALA_VERSION = "2.13"
CONNECTOR_VERSION = "4.0.0"
DELTA_VERSION = "4.0.0"
ICEBERG_VERSION = "1.10.0"
KAFKA_CLIENTS_VERSION = "3.9.2"
JAVA_VERSION_MIN = 17
JAVA_VERSION_MAX = 23  # Java 24 removed the API with which Spark 4.0's Hadoop reads the user's name

PACKAGES = (
    f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{CONNECTOR_VERSION}",
    f"io.delta:delta-spark_{SCALA_VERSION}:{DELTA_VERSION}",
    f"org.apache.kafka:kafka-clients:{KAFKA_CLIENTS_VERSION}",
)

ICEBERG = f"org.apache.iceberg:iceberg-spark-runtime-4.0_{SCALA_VERSION}:{ICEBERG_VERSION}"
"""Loaded for Iceberg tables only, because it has 50 MB."""

PROVIDED_BY_SPARK = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
    "com.github.luben:zstd-jni",
    "at.yawk.lz4:lz4-java",
    "org.lz4:lz4-java",
    "com.google.code.findbugs:jsr305",
    "org.antlr:antlr4-runtime",
    f"org.scala-lang.modules:scala-parallel-collections_{SCALA_VERSION}",
)


def spark_conf(*, iceberg: bool = False) -> dict[str, str]:
    """Return the Spark settings that load the packages and enable Delta Lake."""
    return {
        "spark.jars.packages": ",".join((*PACKAGES, ICEBERG) if iceberg else PACKAGES),
        "spark.jars.excludes": ",".join(PROVIDED_BY_SPARK),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
