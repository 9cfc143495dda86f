"""The programs of a ZooKeeper: Java, and the jars in PySpark's wheel."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

JARS = (
    "zookeeper-*",
    "slf4j-api-*",
    "log4j-api-*",
    "log4j-core-*",
    "log4j-slf4j2-impl-*",
    "commons-io-*",
    "snappy-java-*",
    "metrics-core-*",
)
JAVA_ADVICE = "install Java 17 (Debian, Ubuntu: apt install openjdk-17-jre-headless)"
JARS_ADVICE = "install PySpark, which has them (pip install 'odradek[spark]')"


class ZooKeeperUnavailable(RuntimeError):
    """ZooKeeper cannot run here. The message says what is missing and how to install it."""


@dataclass(frozen=True, slots=True)
class ZooKeeperPrograms:
    """The path of `java`, and the class path."""

    java: str
    jars: tuple[Path, ...]


def find_programs(
    environment: Mapping[str, str] | None = None, pyspark: Path | None = None
) -> ZooKeeperPrograms:
    """Find Java and the jars.

    Args:
        environment: The variables JAVA_HOME and PATH. Default: those of this process.
        pyspark: The directory of the package `pyspark`. Default: the installed one.

    Raises:
        ZooKeeperUnavailable: One of them, or both, is missing.
    """
    java = _java(os.environ if environment is None else environment)
    jars = _jars(_pyspark() if pyspark is None else pyspark)
    if java is not None and jars:
        return ZooKeeperPrograms(java, jars)
    missing, advice = [], []
    if java is None:
        missing.append("Java")
        advice.append(JAVA_ADVICE)
    if not jars:
        missing.append("its jars")
        advice.append(JARS_ADVICE)
    are = "is" if jars else "are"
    steps = " and ".join(advice)
    raise ZooKeeperUnavailable(
        f"ZooKeeper cannot start: {' and '.join(missing)} {are} missing."
        f" {steps[0].upper()}{steps[1:]}, or name a ZooKeeper that runs."
    )


def _java(environment: Mapping[str, str]) -> str | None:
    home = environment.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    return found or shutil.which("java", path=environment.get("PATH", os.defpath))


def _pyspark() -> Path | None:
    found = importlib.util.find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


def _jars(pyspark: Path | None) -> tuple[Path, ...]:
    """Return the jars, or nothing if ZooKeeper's own is missing."""
    if pyspark is None:
        return ()
    directory = pyspark / "jars"
    jars = [jar for pattern in JARS for jar in sorted(directory.glob(f"{pattern}.jar"))]
    return tuple(jars) if any(jar.name.startswith("zookeeper-") for jar in jars) else ()
