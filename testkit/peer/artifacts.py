"""Apache Kafka's jars: fetched by Maven from `pom.xml` beside this file, kept under `.cache/`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

KAFKA_VERSION = "4.3.0"
TOOLS_39_VERSION = "3.9.1"
FLINK_VERSION = "1.20.0"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache"
# Without Maven, this variable may name a directory with the same jars.
JARS_VARIABLE = "ODRADEK_KAFKA_JARS"


class PeerUnavailable(RuntimeError):
    """Apache Kafka cannot run on this machine. The message is one sentence with the reason."""


def kafka_class_path() -> str:
    """Return the class path of Apache Kafka with all its tools. Fetch the jars on first use."""
    return f"{_jar_directory()}{os.sep}*"


def tools_39_class_path() -> str:
    """Return the class path of the tools of Kafka 3.9, of which later releases lack some."""
    directory = CACHE / f"kafka-tools-{TOOLS_39_VERSION}"
    if not directory.is_dir():
        fetch(directory, "tools_39.xml")
    return f"{directory}{os.sep}*"


def program_class_path() -> str:
    """Return the class path of programs, which adds Streams and Connect's file connectors."""
    directory = CACHE / f"kafka-programs-{KAFKA_VERSION}"
    if not directory.is_dir():
        fetch(directory, "programs.xml", "-DexcludeTransitive=true")
    return f"{directory}{os.sep}*{os.pathsep}{kafka_class_path()}"


def flink_registry_class_path() -> str:
    """Return the class path of Flink's Avro format, which has Confluent's client of a registry."""
    directory = CACHE / f"flink-registry-{FLINK_VERSION}"
    if not directory.is_dir():
        fetch(directory, "flink_registry.xml")
    return f"{directory}{os.sep}*"


def java_command(
    main_class: str,
    *arguments: str,
    heap: str = "-Xmx512M",
    level: str = "WARN",
    jvm: tuple[str, ...] = (),
    extra_class_path: str = "",
    class_path: str = "",
) -> list[str]:
    """Return the command line that runs one of Kafka's main classes.

    `heap` and `jvm` are JVM options; `level` is the least level that is logged to stderr.
    `class_path` is the one of another release than `KAFKA_VERSION`.
    """
    class_path = class_path or kafka_class_path()
    if extra_class_path:
        class_path = extra_class_path + os.pathsep + class_path
    return [
        _java(),
        *heap.split(),
        *jvm,
        f"-Dpeer.log.level={level}",
        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        "-cp",
        class_path,
        main_class,
        *arguments,
    ]


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise PeerUnavailable("Apache Kafka needs Java 17 or later: no `java` on the PATH.")
    return found


def _jar_directory() -> Path:
    named = os.environ.get(JARS_VARIABLE)
    if named:
        return Path(named)
    directory = CACHE / f"kafka-{KAFKA_VERSION}"
    if not directory.is_dir():
        fetch(directory, "pom.xml")
    return directory


def fetch(directory: Path, project: str, *options: str) -> None:
    """Let Maven fetch the jars of a project beside this file into a directory.

    Maven copies them to a temporary directory, so that an interrupted fetch leaves no files."""
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("Apache Kafka is fetched by Maven: no `mvn` on the PATH.")
    partial = directory.with_name(f"{directory.name}.{os.getpid()}")
    command = [
        maven,
        "-q",
        "-B",
        "-f",
        str(HERE / project),
        "dependency:copy-dependencies",
        *options,
        "-DincludeScope=runtime",
        f"-DoutputDirectory={partial}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0 or not partial.is_dir():
        shutil.rmtree(partial, ignore_errors=True)
        reason = (done.stdout + done.stderr).strip().splitlines()
        raise PeerUnavailable(f"Maven could not fetch Apache Kafka: {reason[:1]}")
    try:
        partial.rename(directory)
    except OSError:  # Another process was first.
        shutil.rmtree(partial, ignore_errors=True)
