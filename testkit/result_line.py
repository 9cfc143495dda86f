"""The result of a program as one line of JSON, for the program that started it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def print_result(run: Callable[[], dict[str, Any]]) -> int:
    """Print what `run` returns and return the exit code 0.

    An AssertionError or TimeoutError is what the program looks for: print it as
    ``{"failure": TEXT}`` and return 1. Any other exception means that nothing was shown.
    """
    try:
        result = run()
    except (AssertionError, TimeoutError) as error:
        result = {"failure": f"{type(error).__name__}: {error}".strip()}
    print(json.dumps(result), flush=True)
    return 1 if "failure" in result else 0
