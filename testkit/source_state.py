"""The state of `src/` in git, which records and reports name beside their figures."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from testkit.peer.artifacts import ROOT

SOURCE_FOLDER = "src"


@dataclass(frozen=True, slots=True)
class Source:
    """The state of src/ in git. `commit` is the last commit that changed it."""

    commit: str
    tree: str
    modified: bool


def git(*arguments: str, root: Path = ROOT) -> str:
    """Return the output of git. Raise LookupError where git or the repository is missing."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LookupError("git is not installed") from None
    if done.returncode:
        raise LookupError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def source(root: Path = ROOT) -> Source:
    """Return the state of src/. Raise LookupError outside of a git repository."""
    return Source(
        commit=git("log", "-1", "--format=%H", "--", SOURCE_FOLDER, root=root),
        tree=git("rev-parse", f"HEAD:{SOURCE_FOLDER}", root=root),
        modified=bool(git("status", "--porcelain", "--", SOURCE_FOLDER, root=root)),
    )
