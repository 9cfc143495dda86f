"""The `odradek` command. A broker is started without the command-line library, which costs more
to import than the broker takes to start; all else goes through `odradek.cli.app`.
"""

from __future__ import annotations

import sys

from odradek.cli.output import CommandError
from odradek.cli.pipe import flush_output, reader_is_gone


def main() -> None:
    """Runs the command line; a `CommandError` is one line on stderr and exit code 1."""
    try:
        _run()
    except CommandError as error:
        print(f"odradek: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        if not reader_is_gone():
            raise
        sys.exit(0)
    finally:
        flush_output()


def _run() -> None:
    if sys.argv[1:2] == ["serve"]:
        from odradek.cli.serve import serve

        serve(sys.argv[2:])
    else:
        from odradek.cli.app import app

        app()
