"""Java and the jars of ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.launcher.programs import ZooKeeperUnavailable, find_programs


def _java(directory: Path) -> Path:
    directory.mkdir(parents=True)
    java = directory / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    return java


def _pyspark(directory: Path) -> Path:
    (directory / "jars").mkdir(parents=True)
    for name in ("zookeeper-3.9.3.jar", "log4j-core-2.jar", "spark-core.jar"):
        (directory / "jars" / name).touch()
    return directory


def test_java_home_is_preferred_to_the_path(tmp_path: Path) -> None:
    on_path = _java(tmp_path / "path")
    at_home = _java(tmp_path / "home" / "bin")
    pyspark = _pyspark(tmp_path / "pyspark")
    environment = {"PATH": str(on_path.parent)}
    assert find_programs(environment, pyspark).java == str(on_path)
    environment["JAVA_HOME"] = str(tmp_path / "home")
    assert find_programs(environment, pyspark).java == str(at_home)
    environment["JAVA_HOME"] = str(tmp_path / "empty")
    assert find_programs(environment, pyspark).java == str(on_path)


def test_only_the_jars_of_zookeeper_are_taken(tmp_path: Path) -> None:
    java = _java(tmp_path / "path")
    found = find_programs({"PATH": str(java.parent)}, _pyspark(tmp_path / "pyspark"))
    assert [each.name for each in found.jars] == ["zookeeper-3.9.3.jar", "log4j-core-2.jar"]


@pytest.mark.parametrize(
    ("has_java", "has_jars", "missing"),
    [
        (False, True, "Java is missing. Install Java 17 (Debian, Ubuntu: apt install "),
        (True, False, "its jars are missing. Install PySpark, which has them (pip install "),
        (False, False, "Java and its jars are missing. Install Java 17 "),
    ],
)
def test_the_error_names_the_missing_programs_and_their_installation(
    tmp_path: Path, has_java: bool, has_jars: bool, missing: str
) -> None:
    path = _java(tmp_path / "path").parent if has_java else tmp_path
    pyspark = _pyspark(tmp_path / "pyspark") if has_jars else tmp_path
    with pytest.raises(ZooKeeperUnavailable) as found:
        find_programs({"PATH": str(path)}, pyspark)
    assert f"ZooKeeper cannot start: {missing}" in str(found.value)
    assert "\n" not in str(found.value)
