"""The README's ten lines of Python, and its commands for a broker, run and print what it shows."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from odradek.testing import Broker

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_ten_lines_of_python_print_what_was_produced(tmp_path: Path) -> None:
    program = blocks("python")[0]
    statements = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.stmt)]
    assert len(statements) == 10
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "b'viewed'\n"


def test_the_commands_for_a_broker_run() -> None:
    (block,) = (each for each in blocks("sh") if "odradek serve " in each)
    asked = [line for line in block.splitlines() if not re.match("pip |odradek serve ", line)]
    assert len(asked) == 5
    with Broker() as broker:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["/bin/sh", "-ec", "\n".join(asked)],
            env=os.environ | {"ODRADEK_BOOTSTRAP_SERVER": broker.bootstrap_servers, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert '"value": "hello"' in done.stdout
    assert "group readers" in done.stdout
