"""The `odradek` command. A broker is started without the command-line library, which costs more
to import than the broker takes to start; all else goes through `odradek.cli.app`.
"""

from __future__ import annotations

import sys

from odradek.cli.output import CommandError
from odradek.cli.pipe import flush_output, reader_is_gone

INTERRUPTED = 130
"""The exit code of what SIGINT ended, as shells give it."""


def main() -> None:
    """Runs the command line; what it refuses, or the system does, is one line on stderr, and 1."""
    refusal: object = None
    try:
        _run()
    except BrokenPipeError:
        if not reader_is_gone():
            raise
        sys.exit(0)
    except (CommandError, OSError) as error:
        refusal = error
    except KeyboardInterrupt:  # before the command had a way of its own to end
        sys.exit(INTERRUPTED)
    finally:
        unwritten = flush_output()
        refusal = refusal or unwritten
        if refusal is not None:
            print(f"odradek: {refusal}", file=sys.stderr)
            sys.exit(1)


def _run() -> None:
    if sys.argv[1:2] == ["serve"]:
        from odradek.cli.serve import serve

        serve(sys.argv[2:])
    else:
        from odradek.cli.app import app

        app()
