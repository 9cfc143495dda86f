"""Runs `odradek pipeline` commands in one process, so that they share a JVM.

As a program it reads commands as JSON from its input, and prints for each the exit code and the
output as a line of JSON.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from odradek.pipeline.session import SHORT_LIFE
from tests.docs.pages import ROOT


class SparkCommands:
    """Starts the process with the first command. Close it when all pages have run."""

    def __init__(self, directory: Path) -> None:
        self._stderr = directory / "spark-commands.log"
        self._process: subprocess.Popen[str] | None = None

    def run(self, text: str, environment: Mapping[str, str], directory: Path) -> str:
        """Run each command of a block and return their output. The other commands run in turn."""
        output = ""
        for line in text.replace("\\\n", " ").splitlines():
            arguments = shlex.split(line.replace("$PWD", str(directory)), comments=True)
            arguments = [argument.replace("\\`", "`") for argument in arguments]  # as in a shell
            if not arguments:
                continue
            assert arguments[:2] == ["odradek", "pipeline"], f"not a command of Spark: {line}"
            response = self._ask(
                {
                    "arguments": arguments[1:],
                    "address": environment["ODRADEK_BOOTSTRAP_SERVER"],
                    "directory": str(directory),
                }
            )
            assert response["exit_code"] == 0, (line, response, self._stderr.read_text())
            output += str(response["output"])
        return output

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=60)

    def _ask(self, command: dict[str, object]) -> dict[str, object]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.docs.spark_commands"],
                cwd=ROOT,
                env=os.environ
                | {
                    "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
                    "JAVA_TOOL_OPTIONS": SHORT_LIFE,
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr.open("wb"),
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._stderr.read_text()
        response: dict[str, object] = json.loads(line)
        return response


def main() -> None:
    from typer.testing import CliRunner

    from odradek.cli.app import app
    from odradek.pipeline.session import SessionOptions, open_session

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the JVM and commands print to stderr
    open_session(SessionOptions(iceberg=True)).stop()  # a JVM loads packages only at its start
    for line in sys.stdin:
        command = json.loads(line)
        os.chdir(command["directory"])
        os.environ["ODRADEK_BOOTSTRAP_SERVER"] = command["address"]
        result = CliRunner().invoke(app, command["arguments"])
        reply = {
            "exit_code": result.exit_code,
            "output": result.output,
            "error": repr(result.exception),
        }
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
