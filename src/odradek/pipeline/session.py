"""Start of Spark for the pipeline: search for Java, packages, and the session.

The JVM is a child process in the same process group, and ends with this process. With a local
master it listens only on 127.0.0.1. `SessionOptions.driver_memory` limits its heap.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from odradek.pipeline import packages
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.user_lock import user_lock

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LOG4J_FILE = Path(__file__).with_name("log4j2.properties")
PACKAGES_LOCK = "packages.lock"
JAVA_VERSION_TIMEOUT_S = 60
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for a short-lived JVM, for which C1 and the serial collector are faster."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Settings of Spark.

    `jvm_log` receives the JVM's standard error. With None it goes to this process's standard error.
    With `iceberg` the session can use Iceberg tables.
    """

    app_name: str = "odradek"
    master: str = "local[2]"
    driver_memory: str = "1g"
    shuffle_partitions: int = 4
    java_options: str = ""
    jvm_log: Path | None = None
    iceberg: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


def find_java() -> str:
    """Return the path of the `java` that Spark will use.

    Raises:
        PipelineError: No Java of a supported version was found.
    """
    lowest, highest = packages.JAVA_VERSION_MIN, packages.JAVA_VERSION_MAX
    needed = f"Spark needs Java {lowest} to {highest}"
    advice = f"Install one (Debian, Ubuntu: apt install openjdk-{lowest}-jre-headless)"
    advice += " or set JAVA_HOME to one"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on the PATH"
        raise PipelineError(f"{needed}, and {where}. {advice}.")
    version = _java_version(java)
    if not lowest <= version <= highest:
        raise PipelineError(f"{needed}, and {java} is Java {version}. {advice}.")
    return java


def _java_version(java: str) -> int:
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineError(f"{java} does not run: {error}.") from error
    found = re.search(r'version "(\d+)(?:\.(\d+))?', result.stderr + result.stdout)
    if found is None:
        raise PipelineError(
            f"{java} -version printed no version, but {result.stderr.strip()!r}. Set JAVA_HOME to a"
            " working Java."
        )
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major  # Java 8 calls itself 1.8


def open_session(options: SessionOptions) -> SparkSession:
    """Return the Spark session of this process, or start a JVM with `options`.

    Raises:
        PipelineError: PySpark or Java is missing, or the JVM did not start.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineError("PySpark is missing: pip install 'odradek[spark]'.") from error
    find_java()
    conf = _spark_conf(options)
    if SparkContext._active_spark_context is None and SparkContext._gateway is None:
        _start_jvm(conf, options.jvm_log)
    # PySpark logs each refused query as JSON on stderr, in addition to its exception.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    if options.is_local:
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def _spark_conf(options: SessionOptions) -> SparkConf:
    from pyspark import SparkConf

    settings = {
        "spark.app.name": options.app_name,
        "spark.master": options.master,
        "spark.driver.memory": options.driver_memory,
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={LOG4J_FILE.as_uri()} {options.java_options}"
        ),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(options.shuffle_partitions),
        # Number of tasks for the state of a Delta table. The default of 50 is for large clusters.
        "spark.databricks.delta.snapshotPartitions": str(options.shuffle_partitions),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **packages.spark_conf(iceberg=options.iceberg),
    }
    if options.is_local:
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.driver.host"] = "127.0.0.1"
    settings.update(options.extra)
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def _start_jvm(conf: SparkConf, jvm_log: Path | None) -> None:
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    with contextlib.ExitStack() as stack:
        popen_kwargs: dict[str, object] = {}
        if jvm_log is not None:
            popen_kwargs["stderr"] = stack.enter_context(_open_log(jvm_log))
        # Ivy's cache allows one writer, so one JVM of this user resolves packages at a time.
        stack.enter_context(user_lock(PACKAGES_LOCK))
        try:
            gateway = launch_gateway(conf, popen_kwargs)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise PipelineError(_why_no_jvm(jvm_log)) from error
        SparkContext._ensure_initialized(gateway=gateway)


def _open_log(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise PipelineError(f"{error.filename or path}: {error.strerror}") from error


def _why_no_jvm(jvm_log: Path | None) -> str:
    why = "Spark's JVM did not start"
    if jvm_log is None:
        return f"{why}. Its output is above."
    text = jvm_log.read_text(errors="replace")
    if "unresolved dependenc" in text or "UNRESOLVED DEPENDENCIES" in text:
        why = "Spark could not download its packages (spark.jars.packages). Check that Maven"
        why += " Central is reachable"
    return f"{why}. Its output is in {jvm_log}."
