"""Compare the performance of two commits: `python -m benchmarks.commits_compared BASE [HEAD]`.

Needs neither Apache Kafka nor Java. The source of both commits comes from temporary worktrees of
git; the load programs are those of the tree in which this program runs. The rows are those of
`make bench`, driven by librdkafka. Each pair starts both brokers afresh and drives them in turn.
It is recorded in docs/evidence/commits-BASE-HEAD.json as soon as it is measured, and the table
beside it is rendered again. The same command continues where the last one stopped: it ends after
`--minutes` with exit code 2 when pairs are missing.

The exit code is 1 when a row is worse, see `benchmarks.commits_verdict`.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.commits_verdict import HISTOGRAM, SIDES, WORSE, page, verdicts
from benchmarks.evidence.record import FOLDER
from benchmarks.loads import GIB, MILLION, drop_topic, fresh_topic, rdkafka
from benchmarks.machine import description
from benchmarks.memory import steady_memory
from benchmarks.processes import peak_memory_bytes
from benchmarks.tables import MIB
from testkit.peer.artifacts import ROOT
from testkit.peer.server import BrokerProcess, python_path, start_odradek

PAIRS = 9
MINUTES = 55.0
QUICK_PAIRS, QUICK_SCALE = 1, 0.01
STARTS = 3
FETCHES = 3
JAVA_IN_FLIGHT = 5
"""Requests that Kafka's own producer keeps in flight on a connection."""
RATE, LATENCY_S = 5000, 10.0
INCOMPLETE = 2
Values = dict[str, Any]


def batches_of_50(broker: BrokerProcess, scale: float, seed: int) -> Values:
    records = max(1000, int(3 * MILLION * scale))
    return _produce(broker, "batches_of_50", records, size=200, batch=50, seed=seed)


def one_a_request(broker: BrokerProcess, scale: float, seed: int) -> Values:
    records = max(1000, int(200_000 * scale))
    options = {"size": 200, "batch": 1, "in-flight": JAVA_IN_FLIGHT, "seed": seed}
    return _produce(broker, "one_a_request", records, **options)


def _produce(broker: BrokerProcess, key: str, records: int, **options: float) -> Values:
    with _topic(broker) as topic:
        result, cpu = rdkafka(broker, "produce", topic, records=records, **options)
    seconds = float(str(result["seconds"]))
    return {f"{key}.rate": records / seconds, f"{key}.cpu": cpu * MILLION / records}


def large_batches_and_fetch(broker: BrokerProcess, scale: float, seed: int) -> Values:
    """One topic for both: it is filled, read once to warm the page cache, and then measured."""
    records = max(1000, int(MILLION * scale))
    with _topic(broker) as topic:
        options = {"size": 1024, "batch": 127, "in-flight": JAVA_IN_FLIGHT, "seed": seed}
        result, cpu = rdkafka(broker, "produce", topic, records=records, **options)
        seconds = float(str(result["seconds"]))
        rdkafka(broker, "fetch", topic, records=records)
        fetches = [rdkafka(broker, "fetch", topic, records=records) for _ in range(FETCHES)]
    size = records * 1024
    fetch_s = sum(float(str(fetched["seconds"])) for fetched, _ in fetches)
    fetch_cpu = sum(used for _, used in fetches)
    return {
        "large_batches.rate": size / MILLION / seconds,
        "large_batches.cpu": cpu * GIB / size,
        "fetch.rate": FETCHES * size / MILLION / fetch_s,
        "fetch.cpu": fetch_cpu * GIB / (FETCHES * size),
    }


def latency(broker: BrokerProcess, scale: float, seed: int) -> Values:
    seconds = max(1.0, LATENCY_S * scale)
    options = {"rate": RATE, "seconds": seconds, "size": 200, "seed": seed}
    with _topic(broker) as topic:
        result, cpu = rdkafka(broker, "latency", topic, **options)
    taken = result["microseconds"]
    assert isinstance(taken, list)
    counts = Counter(map(int, taken))
    return {
        "latency.cpu": cpu * MILLION / len(taken),
        HISTOGRAM: {str(value): counts[value] for value in sorted(counts)},
    }


LOADS = (batches_of_50, one_a_request, large_batches_and_fetch, latency)


@contextlib.contextmanager
def _topic(broker: BrokerProcess) -> Iterator[str]:
    topic = fresh_topic(broker)
    os.sync()
    try:
        yield topic
    finally:
        drop_topic(broker, topic)


def measure_pair(
    sources: dict[str, Path], order: tuple[str, ...], scale: float, seed: int
) -> Values:
    """Start both brokers, drive each with every load, and stop them."""
    found: dict[str, Values] = {side: {} for side in SIDES}
    brokers: dict[str, BrokerProcess] = {}
    work = Path(tempfile.mkdtemp(prefix="bench-commits-"))
    try:
        starts: dict[str, list[float]] = {}
        for side in order:
            _remove_bytecode(sources[side])
        for attempt in range(-STARTS, STARTS + 1):
            for side in order:
                if side in brokers:
                    brokers.pop(side).stop()
                directory, bytecode = work / f"{side}{attempt}", attempt >= 0
                brokers[side] = start_odradek(directory, source=sources[side], bytecode=bytecode)
                # The first start with bytecode writes it.
                key = side if attempt > 0 else f"{side} compiling" if attempt < 0 else "first"
                starts.setdefault(key, []).append(brokers[side].started_s * 1000)
        for load in LOADS:
            for side in order:
                found[side] |= load(brokers[side], scale, seed)
        for side in SIDES:
            found[side]["start"] = statistics.median(starts[side])
            found[side]["starts_ms"] = starts[side]
            found[side]["start_compiling"] = statistics.median(starts[f"{side} compiling"])
            found[side]["memory"] = peak_memory_bytes(brokers[side].pid) / MIB
    finally:
        for broker in brokers.values():
            broker.stop()
        shutil.rmtree(work, ignore_errors=True)
    return {"order": list(order), "seed": seed, "scale": scale, **found}


def _remove_bytecode(source: Path) -> None:
    for directory in list((source / "src").rglob("__pycache__")):
        shutil.rmtree(directory)


def order_of(pair: int) -> tuple[str, ...]:
    """The order in which the sides of a pair are driven."""
    return SIDES if pair % 2 == 0 else SIDES[::-1]


def compare(
    result: Values,
    measure: Callable[[int], Values],
    save: Callable[[Values], None],
    until_s: float,
    now_s: Callable[[], float] = time.monotonic,
) -> bool:
    """Measure the missing pairs after a warm-up pair; whether all of them are recorded.

    A pair begins only when one as long as the longest so far would end before `until_s`.
    """
    if len(result["pairs"]) >= result["pairs_wanted"]:
        return True
    longest = 0.0
    for pair in range(len(result["pairs"]) - 1, result["pairs_wanted"]):
        warm_up = pair < len(result["pairs"])
        began = now_s()
        if began + longest > until_s:
            return False
        measured = measure(pair)
        longest = max(longest, now_s() - began)
        if not warm_up:
            result["pairs"].append(measured)
            save(result)
    return True


def recorded(out: Path, requested: Values) -> Values:
    """The result so far: an earlier run's pairs count when commits, scale and machine agree."""
    if not out.exists():
        return {**requested, "pairs": []}
    found: Values = json.loads(out.read_text(encoding="utf-8"))
    if differing := [key for key in ("base", "head", "scale") if found[key] != requested[key]]:
        raise SystemExit(f"{out} has another {', '.join(differing)}. Remove it to begin again.")
    # The date of a run is its own; each pair has one.
    same = {key: value for key, value in found["machine"].items() if key != "date"}
    if same != {key: value for key, value in requested["machine"].items() if key != "date"}:
        raise SystemExit(f"{out} was measured on another machine. Remove it to begin again.")
    return {**found, "pairs_wanted": requested["pairs_wanted"]}


# --- the commits ---


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def commit(name: str) -> dict[str, str]:
    return {
        "commit": git("rev-parse", "--verify", f"{name}^{{commit}}"),
        "subject": git("log", "-1", "--format=%s", name),
    }


@contextlib.contextmanager
def worktrees(commits: dict[str, str]) -> Iterator[dict[str, Path]]:
    """A directory with the source of each commit, for as long as the context lasts."""
    parent = Path(tempfile.mkdtemp(prefix="bench-source-"))
    paths = {side: parent / side for side in commits}
    try:
        for side, name in commits.items():
            git("worktree", "add", "--quiet", "--detach", str(paths[side]), name)
            _check_source(paths[side])
        yield paths
    finally:
        for path in paths.values():
            if path.exists():
                git("worktree", "remove", "--force", str(path))
        shutil.rmtree(parent, ignore_errors=True)


def _check_source(source: Path) -> None:
    """An installed Odradek must not be measured instead of the worktree's."""
    program = "import odradek; print(odradek.__file__)"
    environment = {**os.environ, "PYTHONPATH": python_path(source)}
    found = subprocess.check_output(
        [sys.executable, "-c", program], text=True, env=environment, cwd=source.parent
    )
    if source not in Path(found.strip()).parents:
        raise SystemExit(f"{source} is not what Python imports, but {found.strip()}")


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits_compared")
    parser.add_argument("base", metavar="BASE", help="commit to compare with")
    parser.add_argument("head", metavar="HEAD", nargs="?", default="HEAD", help="commit to judge")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--scale", type=float, help="of the number of records")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of this run, at most")
    parser.add_argument("--seed", type=int, help="of the contents of the records")
    parser.add_argument("--quick", action="store_true", help="one small pair without warm-up")
    parser.add_argument("--out", type=Path, help="directory instead of docs/evidence")
    return parser.parse_args()


def main() -> None:
    options = _options()
    began = time.monotonic()
    sides = {"base": commit(options.base), "head": commit(options.head)}
    names = {side: found["commit"] for side, found in sides.items()}
    published = FOLDER if not options.quick else Path(tempfile.mkdtemp(prefix="bench-"))
    folder = options.out or published
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"commits-{names['base'][:7]}-{names['head'][:7]}.json"
    quiet = contextlib.nullcontext(False) if options.quick else steady_memory(_report)
    with worktrees(names) as sources, quiet as steady:
        requested = {
            **sides,
            "machine": description(steady_memory=steady, peers=False),
            "pairs_wanted": options.pairs or (QUICK_PAIRS if options.quick else PAIRS),
            "scale": options.scale or (QUICK_SCALE if options.quick else 1.0),
            "seed": Random().randrange(1 << 32) if options.seed is None else options.seed,
        }
        result = recorded(out, requested)

        def measure(pair: int) -> Values:
            _report(f"pair {pair + 1} of {result['pairs_wanted']} ...")
            date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            load = os.getloadavg()[0]
            seed = result["seed"] + max(0, pair)
            found = measure_pair(sources, order_of(pair), result["scale"], seed)
            return {"date": date, "load_average_before": load, **found}

        def save(found: Values) -> None:
            text = json.dumps(found, separators=(",", ":"))
            out.write_text(text.replace('{"date"', '\n{"date"') + "\n", encoding="utf-8")
            out.with_suffix(".md").write_text(page(found), encoding="utf-8")

        if options.quick and not result["pairs"]:
            result["pairs"].append(measure(0))
            save(result)
        complete = compare(result, measure, save, began + options.minutes * 60)
    print(page(result))
    _report(f"written to {out}")
    if not complete:
        _report("Pairs are missing. Run the same command again to continue.")
        sys.exit(INCOMPLETE)
    if any(verdict.word == WORSE for verdict in verdicts(result["pairs"]).values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
