"""The `kafka` fixture in a project of a user, with only the installed package, under xdist."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

USERS_TESTS = textwrap.dedent(
    """
    import pytest
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

    @pytest.mark.parametrize("number", range(12))
    def test_topic_of_one_test_is_not_seen_by_another(kafka, number, record_property):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        assert admin.list_topics(timeout=120).topics == {}
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("pages", b"%d" % number)
        assert producer.flush(120) == 0
        assert list(admin.list_topics(timeout=120).topics) == ["pages"]
        print("broker", kafka.bootstrap_servers)
    """
)


def _run(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:randomly", "-rP", *arguments, str(directory)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_test_sees_a_broker_of_its_own_with_a_broker_per_worker(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TESTS)
    output = _run(tmp_path, "-n", "3")
    brokers = {line for line in output.splitlines() if line.startswith("broker ")}
    assert "12 passed" in output
    assert len(brokers) == 3


def test_without_xdist_one_broker_serves_all_tests(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TESTS)
    output = _run(tmp_path)
    assert len({line for line in output.splitlines() if line.startswith("broker ")}) == 1


@pytest.mark.parametrize("name", ["odradek.broker.broker", "odradek.cli.app"])
def test_modules_of_odradek_are_imported_without_assertion_rewriting(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__spec__ is not None
    assert type(module.__spec__.loader) is SourceFileLoader
