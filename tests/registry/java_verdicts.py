"""Verdicts of Java's Avro library, whose jars are in PySpark's wheel."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from testkit.peer import PeerUnavailable, java_command
from tests.registry.avro_pairs import AvroPair

PROGRAM = Path(__file__).parent / "java" / "AvroVerdicts.java"
JARS = (
    "avro-1.*",
    "jackson-core-2.*",
    "jackson-databind-*",
    "jackson-annotations-*",
    "slf4j-api-*",
)
TIMEOUT_S = 280


@dataclass(frozen=True, slots=True)
class JavaVerdict:
    """The verdict on one pair.

    `reader` and `writer` are the texts that Java writes, or None if a schema is invalid. Of two
    valid schemas, `reasons` are (kind, location, message), or `error` is an exception's message.
    """

    reader: str | None
    writer: str | None
    reader_error: str | None
    writer_error: str | None
    reasons: tuple[tuple[str, str, str], ...] | None
    error: str | None


def java_verdicts(pairs: Sequence[AvroPair]) -> list[JavaVerdict]:
    """Return Java's verdict on each pair. Skip the test without Java or PySpark."""
    lines = [json.dumps({"reader": each.reader, "writer": each.writer}) for each in pairs]
    done = subprocess.run(
        _command(), input="\n".join(lines), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr[-2000:]
    verdicts = [_verdict(line) for line in done.stdout.splitlines()]
    assert len(verdicts) == len(pairs), done.stderr[-2000:]
    return verdicts


def _command() -> list[str]:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        pytest.skip("Java's Avro library is in PySpark's wheel, which is not installed.")
    folder = Path(found.origin).parent / "jars"
    jars = [str(jar) for pattern in JARS for jar in sorted(folder.glob(f"{pattern}.jar"))]
    path = os.pathsep.join(jars)
    try:
        return java_command(str(PROGRAM), class_path=path)
    except PeerUnavailable:
        pytest.skip("Java's Avro library needs Java 17: no `java` on the PATH.")


def _verdict(line: str) -> JavaVerdict:
    read = json.loads(line)
    reasons = read.get("reasons")
    return JavaVerdict(
        reader=read.get("reader"),
        writer=read.get("writer"),
        reader_error=read.get("readerError"),
        writer_error=read.get("writerError"),
        reasons=None if reasons is None else tuple((each[0], each[1], each[2]) for each in reasons),
        error=read.get("error"),
    )
