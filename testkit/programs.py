"""Client programs in other languages, built on first use from sources in this repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

BUILD_TIMEOUT_S = 300.0


class ProgramUnavailable(RuntimeError):
    """A program cannot be built on this machine. The message is one sentence with the reason."""


def build_go(directory: Path, built: Path, package: str = ".") -> list[str]:
    """Build a Go package of the module in `directory`; return the command that runs it.

    Go builds again only when a source has changed.
    """
    go = shutil.which("go")
    if go is None:
        raise ProgramUnavailable("The program is built by Go, and there is no `go` on the PATH.")
    command = [go, "build", "-buildvcs=false", "-o", str(built), f"./{package}"]
    _build(command, "Go", directory)
    return [str(built)]


def build_c(source: Path, built: Path, *, crc_instruction: bool | None = None) -> list[str]:
    """Build one C file with `gcc -O2`; return the command that runs it.

    Args:
        source: The C file.
        built: The path of the program.
        crc_instruction: Whether the program may use the CRC-32C instruction of SSE4.2. By default
            it may if this machine has it.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise ProgramUnavailable("The program is built by gcc, and there is no `gcc` on the PATH.")
    with_crc = has_crc_instruction() if crc_instruction is None else crc_instruction
    options = ["-msse4.2"] if with_crc else []
    _build([compiler, "-O2", *options, "-o", str(built), str(source)], "gcc", source.parent)
    return [str(built)]


def has_crc_instruction() -> bool:
    """Whether the processor has SSE4.2, whose instructions include CRC-32C."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(line.startswith("flags") and "sse4_2" in line.split() for line in text.splitlines())


def _build(command: list[str], builder: str, directory: Path) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ProgramUnavailable(f"{builder} could not build the program: {done.stderr[-300:]}")
