"""`python -m conformance.histories.check FILE...`: print the report on recorded histories."""

from __future__ import annotations

import sys
from pathlib import Path

from conformance.histories.analysis import analyse, render
from conformance.histories.history import parse


def main(paths: list[str]) -> int:
    """Print the reports. Return 1 if a history has an anomaly that Kafka does not allow."""
    bad = False
    for path in paths:
        with Path(path).open(encoding="utf-8") as lines:
            report = analyse(parse(lines))
        print(render(report))
        bad |= bool(report.forbidden)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
