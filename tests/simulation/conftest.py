from __future__ import annotations

import gc
import sys


def pytest_sessionfinish() -> None:
    """Collect the suspended coroutines of killed brokers, and ignore what their ends report."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        for _ in range(5):
            gc.collect()
    finally:
        sys.unraisablehook = hook
