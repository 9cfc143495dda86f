"""Programs in Go: a directory of `programs/` with a go.mod is a module with pinned versions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from conformance.harness import Skip
from testkit.peer.artifacts import CACHE

PROGRAMS = Path(__file__).parent / "programs"


def go_program(module: str, package: str = ".") -> list[str]:
    """The command of one; it is built on first use, and again when it has changed."""
    go = shutil.which("go")
    if go is None:
        raise Skip("the program is built by Go: there is no `go` on the PATH")
    built = CACHE / "programs-go" / (module if package == "." else package)
    command = [go, "build", "-buildvcs=false", "-o", str(built), f"./{package}"]
    done = subprocess.run(
        command, cwd=PROGRAMS / module, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        raise Skip(f"Go could not build it: {done.stderr[-300:]}")
    return [str(built)]
