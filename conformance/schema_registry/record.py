"""`python -m conformance.schema_registry.record`: record the calls of all clients.

All cases run on a broker that the command starts. If each passes or is a known failure, it writes
docs/registry-clients.json and docs/registry-clients.md. With `--render` it only writes the page
again from the recorded calls.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from conformance import stacks, targets
from conformance.harness import Context, run_case
from conformance.known import KNOWN
from conformance.report import DOCS, state_of_source
from conformance.schema_registry.cases import Calls, cases
from conformance.schema_registry.page import PAGE, Record, page, record_of
from conformance.schema_registry.released import released_cases
from conformance.schema_registry.versions import versions

RECORD = DOCS / "registry-clients.json"
SUITE = "schema_registry"


def load() -> Record:
    """Return the recorded calls."""
    return Record(**json.loads(RECORD.read_text(encoding="utf-8")))


def save(record: Record) -> None:
    """Write the record and the page."""
    text = json.dumps(asdict(record), indent=1, ensure_ascii=False)
    RECORD.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(record), encoding="utf-8")


def _run() -> int:
    stacks.prepare_environment()
    began = state_of_source()
    calls = Calls()
    wrong = []
    with tempfile.TemporaryDirectory(prefix="conformance-") as work:
        broker = targets.start(targets.BROKER, "odradek", Path(work) / "broker", {})
        with broker:
            context = Context(broker.bootstrap, Path(work))
            for case in (*cases(calls), *released_cases(calls)):
                for result in run_case(SUITE, case, context):
                    print(f"{result.outcome:8} {result.name}", flush=True)
                    is_known = (SUITE, result.name) in KNOWN
                    if (result.outcome == "failed") != is_known or result.outcome == "skipped":
                        wrong.append(f"{result.name}: {result.outcome} {result.reason}")
    if wrong:
        print("not recorded:", *wrong, sep="\n", file=sys.stderr)
        return 1
    run = began.until(state_of_source())
    if run.modified:
        print("not recorded: src/ has changes without a commit", file=sys.stderr)
        return 1
    save(record_of(calls, versions(), run.commit, run.date))
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m conformance.schema_registry.record")
    parser.add_argument("--render", action="store_true", help="write the page without a run")
    if parser.parse_args().render:
        save(load())
        return
    code = _run()
    sys.stdout.flush()
    os._exit(code)  # a case that hangs must not keep the process


if __name__ == "__main__":
    main()
