"""Failures of Odradek that are known, with their cause. A test that passes must leave the list."""

from __future__ import annotations

_SUITE = "kafka_python_suite"


def _not_served(api: str) -> str:
    return f"{api} is not served yet"


KNOWN: dict[tuple[str, str], str] = {
    (_SUITE, "test_alter_replica_log_dirs"): _not_served("AlterReplicaLogDirs"),
}
