"""`python -m conformance run`: run all suites against Odradek, then against Apache Kafka.

Run all cases on both brokers and write the pages of the documentation.

    python -m conformance run

Run only the cases of the CI subset, on Odradek alone.

    python -m conformance run --subset ci

Run some suites on one broker.

    python -m conformance run --only kcat --only cross --broker kafka

Run on three brokers, and on three brokers that are killed one after the other.

    python -m conformance run --only kcat --target cluster
    python -m conformance run --only kcat --target kills --seed 7

List the names of the cases.

    python -m conformance list [--subset ci]

Write the pages again, such as docs/conformance.md from docs/conformance.json, without a run.

    python -m conformance render

A case that Odradek skips and Kafka does not skip is a failure. The exit code is 1 when Odradek
failed a case that is not in `conformance.known`.
"""

from __future__ import annotations

import argparse
import sys

from conformance.run import NAMES, SUITES, Plan, list_cases, render, run_all, suites_of
from conformance.targets import BROKER, TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument("verb", choices=["run", "list", "render"])
    parser.add_argument("--only", action="append", default=[], metavar="SUITE", choices=SUITES)
    parser.add_argument("--subset", choices=["ci"])
    parser.add_argument(
        "--broker", action="append", choices=NAMES, help="one of the two; given twice: both"
    )
    parser.add_argument("--target", choices=TARGETS, default=BROKER)
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    options = parser.parse_args()
    suites = tuple(options.only) or suites_of(options.target)
    if left_out := [each for each in suites if each not in suites_of(options.target)]:
        parser.error(f"{', '.join(left_out)} start brokers of their own: use --target {BROKER}")
    if options.verb == "list":
        list_cases(suites, options.subset)
        return
    if options.verb == "render":
        render()
        return
    names = tuple(options.broker or (("odradek",) if options.subset else NAMES))
    plan = Plan(options.target, options.seed)
    sys.exit(run_all(names, suites, options.subset, plan))


if __name__ == "__main__":
    main()
