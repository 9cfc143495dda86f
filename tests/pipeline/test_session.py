"""Search for Java, and the versions of the JVM packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline import packages
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.session import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(packages.__file__).parents[1]


def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "23-ea"])
def test_java_that_spark_runs_on_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    fake_java(tmp_path, monkeypatch, f'openjdk version "{version}" 2025-04-15')
    assert find_java() == str(tmp_path / "bin" / "java")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ('openjdk version "1.8.0_442"', "is Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ('openjdk version "25" 2025-09-16', "is Java 25"),
        ("no java at all", "printed no version"),
    ],
)
def test_other_java_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str
) -> None:
    fake_java(tmp_path, monkeypatch, output)
    with pytest.raises(PipelineError, match=message) as refused:
        find_java()
    assert "\n" not in str(refused.value)


def test_missing_java_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PipelineError, match=r"there is no java on the PATH\. Install"):
        find_java()


@pytest.mark.parametrize("coordinate", packages.PACKAGES)
def test_coordinates_are_defined_in_one_module(coordinate: str) -> None:
    artifact = coordinate.split(":")[1].rpartition("_2.13")[0] or "kafka-clients"
    naming = [path for path in SOURCE.rglob("*.py") if f"{artifact}_" in path.read_text()]
    assert len(naming) <= 1


def test_jvm_loads_the_newer_version_of_kafka_clients(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    version = jvm.org.apache.kafka.common.utils.AppInfoParser.getVersion()
    assert version == packages.KAFKA_CLIENTS_VERSION


def test_jvm_listens_on_the_loopback_only(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
