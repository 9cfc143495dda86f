"""`odradek log dump`: the content of a log's files, while the broker runs or is stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.output import CommandError

if TYPE_CHECKING:
    from odradek.cli import segment_files

app = typer.Typer(no_args_is_help=True)
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@app.callback()
def root() -> None:
    """Show and check the files of topics."""


@app.command("dump")
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Segment files, or a partition's directory."),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show the records of .log files too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on each line.")
    ] = False,
) -> None:
    """Show segment files and check them.

    The checks cover CRCs, the order of entries, and whether indexes agree with the log file in the
    same directory. The exit code is 1 if an error is found.
    """
    from odradek.cli import segment_files

    errors = 0
    for path in _expanded(files):
        if not as_json:
            print(path)
        try:
            for entry in segment_files.dump(path, records=records):
                errors += "error" in entry
                _print(path, entry, as_json)
        except BrokenPipeError:
            raise  # from standard output, not from the file
        except (ValueError, OSError) as error:
            raise CommandError(str(error)) from None
    if errors:
        raise CommandError(f"{errors} errors were found, each marked ERROR above.")


def _expanded(paths: list[Path]) -> list[Path]:
    """Replace each directory by the segment files in it."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
            if not inside:
                raise CommandError(
                    f"There are no segment files in {path}. Name the directory of a partition,"
                    " such as DATA/pages-0."
                )
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise CommandError(f"{path} does not exist. Check the path.")
    return found


def _print(path: Path, entry: segment_files.Entry, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"file": str(path), **entry}, ensure_ascii=False))
        return
    records = entry.pop("records", [])
    error = entry.pop("error", None)
    texts = [f"{name} {value}" for name, value in entry.items()]
    print("  " + "  ".join([*texts, *([f"ERROR: {error}"] if error else [])]))
    for record in records:
        print("    " + "  ".join(f"{name} {value}" for name, value in record.items()))
