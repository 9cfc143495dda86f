"""The section of docs/benchmarks.md on groups, transactions, partitions and other brokers."""

from __future__ import annotations

from typing import Any

from benchmarks.tables import MIB, judged, machine, median, show

PAIR = ("odradek", "kafka")
EQUAL_US = 1000

# Part.row.metric, without the number of connections, producers or seconds, and the bound.
TARGETS: dict[str, tuple[str, float]] = {
    "commits.rate": (">=", 1.0),
    "commits.cpu_ms": ("<", 1.0),
    "transactions.rate": (">=", 1.0),
    "transactions.cpu_ms": ("<", 1.0),
    "group.seconds": ("<=", 1.0),
    "partitions.start_s": ("<=", 1.0),
    "partitions.memory_bytes": ("<=", 0.3),
}
# Of the ratio with idempotent producers to the ratio without, where the first table has a target.
OF_PLAIN: dict[str, tuple[str, float]] = {
    "rate": (">=", 0.9),
    "cpu_s": ("<=", 1.1),
    "p50": ("<=", 1.1),
    "p99": ("<=", 1.1),
}
THROUGHPUT_AND_CPU = ("rate", "cpu_s")
TARGETED: dict[str, tuple[str, ...]] = {
    "batches_of_50": THROUGHPUT_AND_CPU,
    "one_a_request": THROUGHPUT_AND_CPU,
    "large_batches": THROUGHPUT_AND_CPU,
    "latency": ("p50", "p99"),
}
HEAD = """## Groups, transactions and partitions beside Apache Kafka

`python -m benchmarks.coordination` (`--only PART`, `--scale`). As in the first table: alternating
pairs after a warm-up pair, the median of the paired ratios decides, CPU is that of the broker's
whole process tree. `group.initial.rebalance.delay.ms` is the same on both brokers.
"""
INTRODUCTIONS = {
    "commits": "OffsetCommit of one partition each, over bare sockets; the client's own CPU stands "
    "beside it, since it must not be the limit.",
    "transactions": "Transactions of ten records over two partitions, by librdkafka; each producer "
    "commits one after the other.",
    "group": "Fifty members, each on a connection of its own, from the first JoinGroup until all "
    "have the assignment of one generation; they heartbeat each 100 ms.",
    "idempotent": "The produce loads of the first table without and with idempotent producers "
    "(`enable.idempotence=true`, acks=all, and by that at most five requests in flight), in turns "
    "within each pair. The target: no ratio that has one in the first table falls by more than a "
    "tenth; as there, latencies less than 1 ms apart count as equal, Odradek's with and without. "
    "The row of librdkafka's batches of 50 has none there, and falls: without idempotence it has "
    "any number of requests under way, of which Odradek executes many in one turn, and with it at "
    "most five. What a request costs more by that is the same on both, and more beside less.",
}
TITLES = {
    "commits": "OffsetCommit",
    "transactions": "Transactions",
    "group": "Groups",
    "idempotent": "Idempotent producers",
}
PARTITION_ROWS = (
    ("start_s", "start after a clean stop to the first answered request", "s", 1.0),
    ("served_s", "start to the partitions being served", "s", 1.0),
    ("stop_s", "clean stop", "s", 1.0),
    ("memory_bytes", "memory after the start", "MiB", MIB),
    ("open_files", "open files", "", 1.0),
    ("mapped_files", "mapped files", "", 1.0),
)
CAPTIONS = {
    "odradek": "Odradek",
    "kafka": "Apache Kafka",
    "rabbitmq": "RabbitMQ",
    "activemq": "ActiveMQ",
}


def section(result: dict[str, Any]) -> str:
    """The parts that were measured, each with its own table."""
    lines = [HEAD]
    for part, title in TITLES.items():
        if part in result:
            lines += [f"### {title}", "", INTRODUCTIONS[part], "", _taken(result[part])]
            lines += _rows(part, result[part])
    if "partitions" in result:
        lines += _partitions(result["partitions"])
    if "others" in result:
        lines += _others(result["others"])
    return "\n".join(lines) + "\n"


def _taken(part: dict[str, Any]) -> str:
    scaled = "" if part["scale"] == 1.0 else f" Scaled by {part['scale']:g}."
    return f"{part['pairs']} pairs.{scaled} {machine(part)}"


def _rows(part: str, result: dict[str, Any]) -> list[str]:
    lines = [
        "| | metric | Odradek, median | Kafka, median | ratio | target |",
        "|---|---|---|---|---|---|",
    ]
    for key, row in result["rows"].items():
        for metric, unit in row["metrics"].items():
            medians = [middle(row, name, metric) for name in PAIR]
            ratio = result["ratios"][f"{key}.{metric}"]
            target = _target(part, key, metric, result)
            lines.append(
                f"| {row['title']} | {_named(row, metric, unit)} "
                f"| {show(medians[0])} | {show(medians[1])} | {show(ratio)} | {target} |"
            )
    lines += ["", "All values, in the order of the pairs:", ""]
    for row in result["rows"].values():
        for name in PAIR:
            shown = "; ".join(
                f"{unit} " + ", ".join(show(v[metric]) for v in row["values"][name])
                for metric, unit in row["metrics"].items()
            )
            lines.append(f"- {row['title']}, {name}: {shown}")
    return [*lines, ""]


def middle(row: dict[str, Any], name: str, metric: str) -> float:
    """A broker's value of a row: the median of the pairs, and of a percentile that of all their
    records together, where these were kept.
    """
    pooled: dict[str, float] = row.get("pooled", {}).get(name, {})
    if metric in pooled:
        return pooled[metric]
    return median([v[metric] for v in row["values"][name]])


def _named(row: dict[str, Any], metric: str, unit: str) -> str:
    together = metric in row.get("pooled", {}).get(PAIR[0], {})
    return f"{unit}, all pairs together" if together else unit


def _target(part: str, key: str, metric: str, result: dict[str, Any]) -> str:
    ratios = result["ratios"]
    if part != "idempotent":
        return judged(ratios[f"{key}.{metric}"], TARGETS.get(f"{part}.{metric}"))
    of_plain = ratios.get(f"{key}.{metric}.of_plain")
    if of_plain is None:
        return ""
    if metric not in TARGETED.get(key.removeprefix("idempotent."), ()):
        return f"{show(of_plain)} of the plain one"
    verdict = judged(of_plain, OF_PLAIN[metric])
    if "missed" in verdict and metric in ("p50", "p99") and _hardly_slower(result, key, metric):
        verdict = "met (Odradek's own are under 1 ms apart)"
    return f"{show(of_plain)} of the plain one; {verdict}"


def _hardly_slower(result: dict[str, Any], key: str, metric: str) -> bool:
    """Whether Odradek's percentile with idempotent producers is less than a millisecond above that
    without: a ratio of ratios also moves when only Kafka's plain one does.
    """
    rows = result["rows"]
    plain = rows[key.replace("idempotent.", "plain.", 1)]
    return middle(rows[key], "odradek", metric) - middle(plain, "odradek", metric) < EQUAL_US


def _partitions(result: dict[str, Any]) -> list[str]:
    count, values, ratios = result["partitions"], result["values"], result["ratios"]
    lines = [
        f"### {count:,} partitions on one node",
        "",
        "Ten topics, one record in each partition. What an idle partition costs is the difference "
        "to the same broker before it had topics.",
        "",
        _taken(result) if "warm_up_pairs" in result else f"No warm-up pair; {_taken(result)}",
        "| | unit | Odradek, median | Kafka, median | ratio | target |",
        "|---|---|---|---|---|---|",
    ]
    for metric, title, unit, per in PARTITION_ROWS:
        shown = [show(median([v[metric] for v in values[name]]) / per) for name in PAIR]
        ratio = ratios[f"partitions.{metric}"]
        verdict = judged(ratio, TARGETS.get(f"partitions.{metric}"))
        lines.append(f"| {title} | {unit} | {shown[0]} | {shown[1]} | {show(ratio)} | {verdict} |")
    for metric, unit in (
        ("memory_bytes", "bytes"),
        ("open_files", "files"),
        ("mapped_files", "maps"),
    ):
        cost = [idle_cost(result, name, metric) for name in PAIR]
        ratio_text = show(cost[0] / cost[1]) if cost[1] else "-"
        shown = [show(value) for value in cost]
        lines.append(f"| an idle partition | {unit} | {shown[0]} | {shown[1]} | {ratio_text} |  |")
    created = [show(result["create_s"][name]) for name in PAIR]
    lines += [f"| creation, once | s | {created[0]} | {created[1]} |  |  |", ""]
    for name in PAIR:
        starts = ", ".join(show(v["start_s"]) for v in values[name])
        stops = ", ".join(show(v["stop_s"]) for v in values[name])
        memory = ", ".join(show(v["memory_bytes"] / MIB) for v in values[name])
        lines.append(f"- {name}: starts in s {starts}; stops in s {stops}; memory in MiB {memory}")
    return [*lines, ""]


def idle_cost(result: dict[str, Any], name: str, metric: str) -> float:
    """What one partition adds to the broker without topics."""
    full = median([v[metric] for v in result["values"][name]])
    empty: float = result["empty"][name][metric]
    return (full - empty) / float(result["partitions"])


def _others(result: dict[str, Any]) -> list[str]:
    values = result["values"]
    lines = [
        "### The table of Kafka's first paper",
        "",
        "Messages of 200 bytes, one producer, one consumer; medians, messages a second and, in "
        "brackets, the broker's CPU-seconds a million messages. A batch is a record batch in "
        "Odradek and Kafka (librdkafka, acks=1), one write with publisher confirms in RabbitMQ, "
        "one transaction in ActiveMQ (a message alone is sent without waiting). Messages are "
        "persistent; nobody waits for the disk. The consumer is timed from its subscription on.",
        "",
        _taken(result),
        "| | " + " | ".join(CAPTIONS[name] for name in values) + " |",
        "|---" * (len(values) + 1) + "|",
    ]
    for metric, title in (
        ("produce_1", "producer, one message a batch"),
        ("produce_50", "producer, batches of 50"),
        ("consume_1", "consumer of the first"),
        ("consume_50", "consumer of the second"),
    ):
        cells = [
            f"{show(median([v[metric] for v in rounds]))} "
            f"({show(median([v[f'{metric}_cpu_s'] for v in rounds]))})"
            for rounds in values.values()
        ]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines += [f"\n{CAPTIONS[name]}: {reason}." for name, reason in result["missing"].items()]
    lines += ["", "All values:", ""]
    for name, rounds in values.items():
        shown = "; ".join(
            f"{metric.replace('_', ' ')} " + ", ".join(show(v[metric]) for v in rounds)
            for metric in ("produce_1", "produce_50", "consume_1", "consume_50")
        )
        lines.append(f"- {name}: {shown}")
    return [*lines, ""]
