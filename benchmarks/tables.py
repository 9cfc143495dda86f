"""Functions that the sections of docs/benchmarks.md share."""

from __future__ import annotations

import statistics

MIB = 1 << 20
CAPTIONS = {
    "odradek": "Odradek",
    "kafka": "Apache Kafka",
    "rabbitmq": "RabbitMQ",
    "activemq": "ActiveMQ",
}


def median(values: list[float]) -> float:
    return statistics.median(values)


def show(value: float | None) -> str:
    """Format a value with three digits, or with all digits before the decimal point."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def judged(ratio: float, target: tuple[str, float] | None) -> str:
    """Return `>= 1: met` for a row of a table, or nothing where there is no target.

    If the ratio meets or misses the target only because the table rounds it, the verdict repeats it
    with four digits.
    """
    if target is None:
        return ""
    sign, bound = target
    verdict = f"{sign} {bound:g}: {'met' if _holds(ratio, sign, bound) else '**missed**'}"
    shown = float(show(ratio).replace(",", ""))
    if _holds(shown, sign, bound) == _holds(ratio, sign, bound):
        return verdict
    return f"{verdict} ({ratio:.4g})"


def _holds(ratio: float, sign: str, bound: float) -> bool:
    return {">=": ratio >= bound, "<=": ratio <= bound, "<": ratio < bound}[sign]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
