"""The anomalies of a history in which some keys may lose records."""

from __future__ import annotations

from collections.abc import Set

from conformance.histories.analysis import analyse
from conformance.histories.checks import Anomaly
from conformance.histories.history import History, without_keys


def divide(history: History, exempt: Set[int]) -> tuple[list[Anomaly], list[Anomaly]]:
    """Divide the forbidden anomalies into violations and anomalies of exempt keys.

    An anomaly without a key, such as a cycle of transactions, may be the effect of an exempt key.
    It is a violation if the operations on the other keys alone have it, too.
    """
    violations, excused = [], []
    for anomaly in analyse(history).forbidden:
        key = anomaly.detail.get("key")
        is_excused = bool(exempt) if key is None else key in exempt
        (excused if is_excused else violations).append(anomaly)
    if exempt:
        remaining = analyse(without_keys(history, exempt)).forbidden
        violations += [each for each in remaining if "key" not in each.detail]
    return violations, excused
