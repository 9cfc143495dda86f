"""Run a program in a process of its own, for tests that change the limits of their process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the indented source text `program` to its end. It can import `odradek` and `tests`."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
