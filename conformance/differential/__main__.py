"""The command line. The package's docstring describes it."""

from __future__ import annotations

import argparse
import contextlib
import platform
import sys
import tempfile
import traceback
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import conformance.differential.scenarios  # noqa: F401 - fills the table
from conformance.differential.allowed import ALLOWED
from conformance.differential.compare import Difference, compare
from conformance.differential.registry import SCENARIOS, Scenario
from conformance.differential.session import Session
from conformance.report import Run, state_of_source
from testkit.peer.artifacts import KAFKA_VERSION
from testkit.peer.server import STARTERS

# Both brokers have the same node id, so that leaders and replicas can be compared.
PROPERTIES: dict[str, dict[str, str]] = {"kafka": {"node.id": "1"}, "odradek": {"node.id": "1"}}
# Since 4.3 Kafka assigns the partitions of consumer groups after the response, at most once a
# second. These settings restore the behaviour of 4.1, which assigns them with the response.
PROPERTIES["kafka"] |= {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m conformance.differential")
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a running Kafka; else one is started")
    parser.add_argument("--odradek", metavar="HOST:PORT", help="likewise")
    parser.add_argument("--all", action="store_true", help="also show what is allowed")
    parser.add_argument("--report", type=Path, help="write the results to this page")
    parser.add_argument("--list", action="store_true", help="print the scenarios and end")
    options = parser.parse_args()
    only = options.only
    chosen = [s for s in SCENARIOS if not only or any(word in s.name for word in only)]
    if options.list:
        print("\n".join(f"{s.name} {s.versions}" for s in chosen))
        return
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(_broker("kafka", options.kafka))
        odradek = stack.enter_context(_broker("odradek", options.odradek))
        sys.exit(1 if _run_all(chosen, kafka, odradek, options) else 0)


@contextlib.contextmanager
def _broker(name: str, address: str | None) -> Iterator[str]:
    if address:
        yield address
        return
    with (
        tempfile.TemporaryDirectory(prefix=f"differential-{name}-") as work,
        STARTERS[name](Path(work), PROPERTIES[name]) as broker,
    ):
        yield broker.bootstrap


def _run_all(chosen: list[Scenario], kafka: str, odradek: str, options: argparse.Namespace) -> int:
    """Run the scenarios. Print a line for each scenario and version, followed by its differences.

    Returns:
        The number of failures.
    """
    run_id = uuid.uuid4().hex[:6]
    begin = state_of_source()
    counts = dict.fromkeys(("same", "allowed", "different"), 0)
    used: set[str] = set()
    rows: list[tuple[str, str, str]] = []
    for each in chosen:
        shown: dict[str, list[str]] = {}
        for version in each.versions:
            found = run_pair(each, version, kafka, odradek, run_id)
            bad = [difference for difference in found if difference.pattern is None]
            patterns = {difference.pattern or "" for difference in found} - {""}
            used |= patterns
            word = "different" if bad else "allowed" if found else "same"
            counts[word] += 1
            reasons = sorted({ALLOWED[pattern] for pattern in patterns})
            rows.append((f"{each.name} v{version}", word, " ".join(reasons)))
            print(f"{word:10}{each.name} v{version}", flush=True)
            for difference in found if options.all else bad:
                shown.setdefault(_line(difference), []).append(f"v{version}")
        for line, versions in shown.items():
            print(f"          {' '.join(versions)}  {line}", flush=True)
    if options.report:
        run = None if options.odradek else begin.until(state_of_source())
        options.report.write_text(page(rows, counts, run), encoding="utf-8")
    return counts["different"] + _summary(counts, used, whole=not options.only)


def _summary(counts: dict[str, int], used: set[str], *, whole: bool) -> int:
    """Print the counts. Return the number of allowed differences that no scenario showed."""
    unused = [pattern for pattern in ALLOWED if pattern not in used] if whole else []
    for pattern in unused:
        print(f"not seen, though allowed: {pattern}")
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return len(unused)


def page(rows: list[tuple[str, str, str]], counts: dict[str, int], run: Run | None) -> str:
    """Return the results as a page of the docs. `run` is None if the code is not known."""
    totals = ", ".join(f"{count} {word}" for word, count in counts.items())
    lines = [
        "# Responses compared with Apache Kafka",
        "",
        "On this page you see for each scenario and version whether the responses are equal.",
        "",
        "`python -m conformance.differential --report docs/differential.md` sends the same",
        f"requests to Odradek and to Apache Kafka {KAFKA_VERSION} and compares the responses field",
        "by field.",
        "Identifiers, addresses and times of the broker's own have other values in each broker.",
        "They are compared by the fields in which they occur.",
        "",
        f"{totals}. {_taken(run)}",
        "",
        "| scenario and version | responses | reason for the difference |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {word} | {why} |" for name, word, why in rows]
    return "\n".join(lines) + "\n"


def _taken(run: Run | None) -> str:
    if run is None:
        return "Run against an Odradek whose commit is not recorded."
    changes = ", and later changes" if run.modified else ""
    return (
        f"Run on {run.date} at commit `{run.commit[:7]}` (the newest change of `src/`)"
        f"{changes}, with Python {platform.python_version()}."
    )


def _line(difference: Difference) -> str:
    why = ALLOWED.get(difference.pattern or "")
    return difference.text + (f"  [{why}]" if why else "")


def run_pair(
    each: Scenario, version: int, kafka: str, odradek: str, run_id: str
) -> list[Difference]:
    """Run a scenario against both brokers at the same time. Return the differences."""
    prefix = f"{run_id}-{each.name.replace('.', '_')}-v{version}"
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(_run, each, a, version, prefix) for a in (kafka, odradek)]
        theirs, ours = (future.result() for future in futures)
    return compare(f"{each.name}@{version}", theirs, ours)


def _run(each: Scenario, address: str, version: int, prefix: str) -> list[tuple[str, Any]]:
    session = Session(address, version, prefix)
    try:
        each.run(session)
    except Exception as error:  # noqa: BLE001 - that one broker broke it is a difference
        print("".join(traceback.format_exc(limit=-3, chain=False)), file=sys.stderr)
        # The value differs between the brokers, so a scenario that raised never counts as equal.
        session.note("ended early", f"{address}: {type(error).__name__}: {error}")
    finally:
        session.close()
    return session.responses


if __name__ == "__main__":
    main()
