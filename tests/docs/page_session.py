"""Runs the blocks of a page in their order, as a reader would: one directory, one broker.

- A `sh` block is one run of the shell. `odradek serve` goes on in the background.
- Python blocks without a title share the names of one interpreter.
- A block with a title is written to that file. A `test_*.py` that no command of the page names is
  run with pytest at the end.
- A page may run on a cluster in this process. The blocks then use the addresses of all its brokers.
- `127.0.0.1:9092` and `localhost:9092` stand for the address of the page's broker.
- A registry on that broker starts with the first `odradek schema`. `SCHEMA_REGISTRY_URL` names it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from odradek.pipeline.session import PACKAGES_LOCK, SHORT_LIFE
from odradek.pipeline.user_lock import user_lock
from odradek.testing import Broker, Cluster
from odradek.testing.registry import Registry
from tests.docs.pages import ROOT, Block
from tests.docs.spark_commands import SparkCommands

COMMAND_TIMEOUT_S = 300
START_TIMEOUT_S = 60
FREE_PORT = "127.0.0.1:0"
SHIMS = {
    "odradek": f'exec {sys.executable} -m odradek "$@"',
    "python": f'exec {sys.executable} "$@"',
    "pytest": f'exec {sys.executable} -m pytest -p no:cacheprovider -p no:randomly "$@"',
}
SMALL_TABLES = "spark.databricks.delta.snapshotPartitions 2\n"
_LISTENING = re.compile(r"listens on \w+://(127\.0\.0\.1:\d+)")
_USES_REGISTRY = re.compile(r"^odradek schema\b", re.MULTILINE)
REGISTRY_VARIABLE = "SCHEMA_REGISTRY_URL"
_ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):9092")


class PageSession:
    """The state between the blocks of a page. Close it to end the broker."""

    def __init__(self, directory: Path, spark: SparkCommands, brokers: int = 1) -> None:
        self._directory = directory
        self._brokers = brokers
        self._spark = spark
        self._stack = contextlib.ExitStack()
        self._address = ""
        self._serving: subprocess.Popen[str] | None = None
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._files: list[str] = []
        self._commands = ""
        self._output = ""
        tools = directory / ".tools"
        tools.mkdir()
        for name, line in SHIMS.items():
            (tools / name).write_text(f"#!/bin/sh\n{line}\n")
            (tools / name).chmod(0o755)
        (directory / "examples").symlink_to(ROOT / "examples")
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != REGISTRY_VARIABLE},
            "COLUMNS": "160",
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT / "src"), str(ROOT)]),
            "XDG_DATA_HOME": str(directory / ".share"),
        }

    def __enter__(self) -> PageSession:
        self._stack.enter_context(contextlib.chdir(self._directory))
        self._stack.callback(self._stop_serving)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, block: Block) -> None:
        """Run a block, write its file, or compare it with the last output."""
        text = block.text
        if block.mark == "output":
            compare(text, self._output)
        elif block.mark == "not run" or block.language not in {"sh", "python"} | _FILES:
            return
        elif block.title:
            self._write(block.title, text)
        elif block.mark == "own process":
            self._output = self._run_spark_program(text)
        elif block.language == "python":
            self._output = self._run_python(self._with_address(text), block.line)
        elif block.language == "sh":
            self._commands += text
            self._output = self._run_shell(text, fails=block.mark == "fails")

    def finish(self) -> None:
        """Run the test files that no command of the page has run."""
        names = [each for each in self._files if each.startswith("test_")]
        if left := [each for each in names if each not in self._commands]:
            self._shell(f"pytest -q {' '.join(left)}", fails=False)

    def _write(self, name: str, text: str) -> None:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Before the page has a broker the file configures that broker, with a free port.
        address = self._address or FREE_PORT
        path.write_text(_ADDRESS.sub(address, text), encoding="utf-8")
        self._files.append(name)

    def _run_python(self, text: str, line: int) -> str:
        sys.path.insert(0, str(self._directory))
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(text, f"<block at line {line}>", "exec"), self._names)
        finally:
            sys.path.remove(str(self._directory))
        return output.getvalue()

    def _run_spark_program(self, text: str) -> str:
        """Run a program that starts a JVM. It resolves packages, which needs the lock."""
        tools = self._directory / ".tools"
        (tools / "program.py").write_text(text, encoding="utf-8")
        (tools / "spark-defaults.conf").write_text(SMALL_TABLES)
        options = f"export SPARK_CONF_DIR={tools} JAVA_TOOL_OPTIONS='{SHORT_LIFE}'"
        with user_lock(PACKAGES_LOCK):
            return self._shell(f"{options}\npython {tools}/program.py", fails=False)

    def _run_shell(self, text: str, *, fails: bool) -> str:
        if re.match(r"odradek serve\b", text):
            self._serve(text)
            return ""
        if re.search(r"^odradek pipeline\b", text, re.MULTILINE):
            return self._spark.run(self._with_address(text), self._environment, self._directory)
        return self._shell(self._with_address(text), fails=fails)

    def _shell(self, text: str, *, fails: bool) -> str:
        done = subprocess.run(
            ["/bin/sh", "-ec", text],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"{text}\n{done.stdout}"
        return done.stdout

    def _with_address(self, text: str) -> str:
        if self._serving is None and not self._address:
            broker: Broker | Cluster = Broker() if self._brokers == 1 else Cluster(self._brokers)
            self._set_address(self._stack.enter_context(broker).bootstrap_servers)
        if REGISTRY_VARIABLE not in self._environment and _USES_REGISTRY.search(text):
            registry = self._stack.enter_context(Registry(self._address))
            self._environment[REGISTRY_VARIABLE] = registry.url
        return _ADDRESS.sub(self._address, text)

    def _set_address(self, address: str) -> None:
        self._address = address
        self._environment["ODRADEK_BOOTSTRAP_SERVER"] = address

    def _serve(self, text: str) -> None:
        """Start the block's broker on a free port, after the one before has ended."""
        self._stop_serving()
        command = " ".join(re.sub(r"\\\n", " ", re.sub(r"#.*", "", text)).split())
        command = re.sub(r"(?:127\.0\.0\.1|0\.0\.0\.0|localhost):9092", FREE_PORT, command)
        if FREE_PORT not in command and "--config" not in command:
            command += f" --listen {FREE_PORT}"
        self._serving = subprocess.Popen(
            ["/bin/sh", "-ec", f"exec {command}"],
            cwd=self._directory,
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._set_address(_wait_for_address(self._serving))

    def _stop_serving(self) -> None:
        if self._serving is not None:
            self._serving.terminate()
            self._serving.communicate(timeout=START_TIMEOUT_S)
            self._serving = None


_FILES = {"ini", "json", "properties", "toml", "yaml"}


def compare(expected: str, output: str) -> None:
    """Each line of the page stands in the output, in this order. `...` stands for any text."""
    lines = iter([" ".join(line.split()) for line in output.splitlines()])
    for line in filter(None, (" ".join(each.split()) for each in expected.splitlines())):
        pattern = ".*".join(map(re.escape, line.split("...")))
        assert any(re.fullmatch(pattern, each) for each in lines), f"{line!r} is not in\n{output}"


def _wait_for_address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    deadline = time.monotonic() + START_TIMEOUT_S
    seen = []
    for line in _lines(process.stderr):
        seen.append(line)
        if found := _LISTENING.search(line):
            return found[1]
        assert time.monotonic() < deadline
    raise AssertionError("".join(seen))


def _lines(stream: Any) -> Iterator[str]:
    yield from iter(stream.readline, "")
