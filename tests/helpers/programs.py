"""Run a program in a process of its own, for tests of what belongs to a whole process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_program(
    program: str, *arguments: str, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the indented source text `program` to its end. It can import `odradek` and `tests`.

    Args:
        program: Source text.
        arguments: Arguments of the program.
        options: Options of the interpreter.
    """
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
