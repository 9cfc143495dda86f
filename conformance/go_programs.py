"""Programs in Go: a directory of `programs/` with a go.mod is a module with pinned versions."""

from __future__ import annotations

from pathlib import Path

from conformance.harness import Skip
from testkit.peer.artifacts import CACHE
from testkit.programs import ProgramUnavailable, build_go

PROGRAMS = Path(__file__).parent / "programs"


def go_program(module: str, package: str = ".") -> list[str]:
    """Return the command of a Go program. Build it on first use and after each change."""
    built = CACHE / "programs-go" / (module if package == "." else package)
    try:
        return build_go(PROGRAMS / module, built, package)
    except ProgramUnavailable as error:
        raise Skip(str(error)) from error
