"""Entry point of the `odradek` command.

`odradek serve` runs without the command-line library, whose import takes longer than the start of
the broker. All other commands go through `odradek.cli.app`.
"""

from __future__ import annotations

import sys

from odradek.cli.output import CommandError
from odradek.cli.pipe import flush_output, reader_is_gone
from odradek.collector import disable_for_imports

INTERRUPTED = 130
"""Exit code of a command that SIGINT ended, as in shells (128 + signal number)."""


def main() -> None:
    """Run the command line.

    A `CommandError` or an error of the system is printed as one line on standard error. The exit
    code is that of the `CommandError`, or 1.
    """
    refusal: object = None
    try:
        _run()
    except BrokenPipeError:
        if not reader_is_gone():
            raise
        sys.exit(0)
    except (CommandError, OSError) as error:
        refusal = error
    except KeyboardInterrupt:  # the command had not yet installed its own handler
        sys.exit(INTERRUPTED)
    finally:
        unwritten = flush_output()
        refusal = refusal or unwritten
        if refusal is not None:
            print(f"odradek: {refusal}", file=sys.stderr)
            sys.exit(refusal.exit_code if isinstance(refusal, CommandError) else 1)


def _run() -> None:
    if sys.argv[1:2] == ["serve"]:
        disable_for_imports()
        from odradek.cli.serve import serve

        serve(sys.argv[2:])
    else:
        from odradek.cli.app import app

        app()
