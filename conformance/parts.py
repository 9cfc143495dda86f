"""The parts of a complete run: each takes at most an hour, and records its results.

A part is a target, a group of suites, and the brokers. A part of one broker follows the part of
Kafka that it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from conformance.report import NAMES, Report
from conformance.targets import BROKER, TARGETS

GROUPS = {
    "clients": (
        "kcat",
        "confluent",
        "kafka_python",
        "aiokafka",
        "cross",
        "go_and_node",
        "schema_registry",
        "franz_go",
        "kafka_python_suite",
    ),
    # stopped reads the files that the other suites leave.
    "tools": (
        "java_tools",
        "admin_tools",
        "group_tools",
        "transactions",
        "dump_log",
        "compaction",
        "from_kafka",
        "moving_in",
        "cluster_tools",
        "stopped",
    ),
    "programs": ("histories", "kafka_streams", "kafka_connect", "spark"),
}
LIMIT_MINUTES = 60
START_S = 30.0
"""Estimated time of a part beside its cases: the start and the stop of the brokers."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a complete run, for example "kills-tools-kafka"."""

    name: str
    target: str
    group: str
    brokers: tuple[str, ...]

    def suites(self, of_target: tuple[str, ...]) -> tuple[str, ...]:
        """Return the suites of the group that run on the target."""
        return tuple(suite for suite in of_target if suite in GROUPS[self.group])

    def minutes(self, suites: tuple[str, ...], report: Report) -> float | None:
        """Return how long the recorded run of these suites took. None: one is not recorded."""
        times = [report.seconds(name, suite) for name in self.brokers for suite in suites]
        known = [each for each in times if each is not None]
        return None if len(known) < len(times) else (sum(known) + START_S) / 60


def _parts() -> Iterator[Part]:
    for target in TARGETS:
        for group in GROUPS:
            if target == BROKER:
                yield Part(f"{target}-{group}", target, group, NAMES)
            else:
                for name in NAMES:
                    yield Part(f"{target}-{group}-{name}", target, group, (name,))


PARTS: Mapping[str, Part] = {part.name: part for part in _parts()}
