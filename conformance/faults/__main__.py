"""Play the faults of a seed on three brokers and a ZooKeeper, and check the history.

    python -m conformance.faults --seed 7
    python -m conformance.faults --seed 7 --faults 5 --network proxies --keep DIR
    python -m conformance.faults --play kill-all,rolling-restart
    python -m conformance.faults --mutant acks-early --play kill-cut-leader

The seed is printed. It determines the faults, their durations and the operations of the clients,
but not the interleaving of the processes. The exit code is 1 if there is an anomaly that Kafka does
not allow, a session that expired without a cause, or a state that the cluster did not reach. With
`--json` the last line has the figures, and the exit code is 0 if the run was completed. A mutant is
a broker with one rule broken, which a run must find.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from random import Random

from conformance.faults.cluster import ODRADEK
from conformance.faults.mutants import MUTANTS, program
from conformance.faults.namespaces import enter_own, is_inside, unshare
from conformance.faults.run import run
from conformance.faults.schedule import DECK, listed, steps
from conformance.histories.analysis import render

FAULTS = 25


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    if options.network != "proxies" and not is_inside():
        command = unshare()
        if command is not None:
            given = [*arguments, "--seed", str(options.seed)]
            enter_own(command, ["-m", "conformance.faults", *given])
        if options.network == "namespaces":
            print("this machine does not allow network namespaces")
            return 2
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as work:
        history = options.history or Path(work) / "history.jsonl"
        directory = Path(work) / "run"
        directory.mkdir()
        outcome = run(
            options.seed,
            options.play or steps(options.seed, options.faults),
            directory,
            history,
            keep=options.keep,
            program=program(options.mutant) if options.mutant else ODRADEK,
        )
    print(render(outcome.report))
    failure = outcome.failure
    if failure:
        print(f"failed: {failure}")
    if options.json:
        print(json.dumps({**outcome.values, "broken": failure}))
        return 0
    for name in ("network", "disk", "sessions", "sigkills", "processes_killed", "prepared_kills"):
        print(f"{name}: {outcome.values[name]}")
    return 1 if failure or outcome.report.forbidden else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m conformance.faults",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument("--seed", type=int, default=Random().randrange(1 << 31))
    parser.add_argument("--faults", type=int, default=FAULTS, help=f"default {FAULTS}, a deck")
    parser.add_argument(
        "--play",
        type=listed,
        metavar="FAULT[,FAULT]",
        help=f"play these faults instead of those of the seed: {', '.join(DECK)}",
    )
    parser.add_argument("--mutant", choices=MUTANTS, help="start brokers with this rule broken")
    parser.add_argument(
        "--network",
        choices=["namespaces", "proxies"],
        help="default: network namespaces if the machine allows them, else TCP proxies",
    )
    parser.add_argument("--json", action="store_true", help="the figures as one line of JSON")
    parser.add_argument("--history", type=Path, help="keep the history here")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep history and logs here after a failure"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
