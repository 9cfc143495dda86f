"""`python -m conformance`: run the suites of other authors against Odradek and Apache Kafka.

Run everything, part by part, on one broker, on a cluster, and while brokers are killed. Record the
results and write docs/conformance.md. This takes hours. List the parts, and run one of them.

    python -m conformance all
    python -m conformance parts
    python -m conformance run --part cluster-tools-odradek

Run all cases on one broker of both kinds, without a record of the results.

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

Write docs/conformance.md again from the recorded results, without a run.

    python -m conformance render

A case that Odradek skips and Kafka does not skip is a failure. The exit code is 1 when Odradek
failed a case that is not in `conformance.known`.
"""

from __future__ import annotations

import argparse
import sys

from conformance.parts import PARTS
from conformance.report import NAMES
from conformance.run import (
    SUITES,
    Plan,
    list_cases,
    list_parts,
    render,
    run_all,
    run_part,
    run_parts,
    suites_of,
)
from conformance.targets import BROKER, TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument("verb", choices=["run", "all", "parts", "list", "render"])
    parser.add_argument("--only", action="append", default=[], metavar="SUITE", choices=SUITES)
    parser.add_argument("--part", choices=PARTS, help="instead of --only, --broker and --target")
    parser.add_argument("--subset", choices=["ci"])
    parser.add_argument(
        "--broker", action="append", choices=NAMES, help="one of the two; given twice: both"
    )
    parser.add_argument("--target", choices=TARGETS, default=BROKER)
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    options = parser.parse_args()
    if options.verb == "parts":
        list_parts()
        return
    if options.verb == "all":
        sys.exit(run_parts(options.seed))
    if options.verb == "run" and options.part:
        sys.exit(run_part(PARTS[options.part], options.seed))
    suites = tuple(options.only) or suites_of(options.target)
    if left_out := [each for each in suites if each not in suites_of(options.target)]:
        parser.error(f"{', '.join(left_out)} cannot run on this target: use --target {BROKER}")
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
