"""`odradek pipeline` as a process."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from odradek.cli.output import CommandError
from odradek.cli.spark import need_spark
from tests.pipeline import ledger

COMMAND = [sys.executable, "-m", "odradek", "pipeline"]
RUN_TIMEOUT_S = 600


def refused(*arguments: str) -> str:
    result = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=RUN_TIMEOUT_S
    )
    assert result.returncode != 0
    return result.stderr


def test_ingest_owns_its_directory_until_sigterm_and_sql_queries_its_tables(
    bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(70), 1)
    where = ["--table-dir", str(tmp_path / "lake"), "--format", "parquet"]
    command = [*COMMAND, "ingest", "--topics", topic, *where, "--parser", "json"]
    command += ["--schema", ledger.SCHEMA, "--bootstrap-server", bootstrap_servers]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "lag 0" in line:
                second = refused(*command[len(COMMAND) :])
                process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_TIMEOUT_S) == 0, lines
    assert f"belongs to process {process.pid} on" in second.splitlines()[-1]
    assert "60 rows to the table and 10 to the quarantine in 1 batches" in lines[-1]
    query = "SELECT count(*) AS n, (SELECT count(*) FROM quarantine) AS q FROM t"
    result = subprocess.run(
        [*COMMAND, "sql", *where, "--json", query],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert json.loads(result.stdout) == [{"n": 60, "q": 10}]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=RUN_TIMEOUT_S
    )


@pytest.mark.timeout(900)
def test_ledger_and_rebuilt_checkpoint_as_commands(
    bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    """The ledger is read, and the checkpoint is lost and built again from it.

    The ledger command finds the format of the table itself.
    """
    lake = str(tmp_path / "lake")
    at = ["--bootstrap-server", bootstrap_servers]
    ingest = ["ingest", "--topics", topic, "--table-dir", lake, "--once", *at]
    ingest += ["--parser", "json", "--schema", ledger.SCHEMA, "--format", "iceberg"]
    ledger.create_topic(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(40), 2)
    assert run(*ingest).returncode == 0
    shutil.rmtree(tmp_path / "lake" / "checkpoint")
    ledger.produce(bootstrap_servers, topic, range(40, 60), 2)
    lost = run(*ingest)
    assert (lost.returncode, "--rebuild-checkpoint" in lost.stderr.splitlines()[-1]) == (1, True)

    shown = run("ledger", lake, *at, "--json")
    assert shown.returncode == 0, shown.stderr
    lines = json.loads(shown.stdout)
    assert [(one["topic"], one["from"], one["to"], one["lag"]) for one in lines] == [
        (topic, 0, 19, 10)
    ] * 2
    assert sum(one["quarantined"] for one in lines) == 6
    assert all(one["topic_id"] and one["cluster_id"] for one in lines)

    assert run(*ingest, "--rebuild-checkpoint").returncode == 0
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    admin.delete_topics([topic])[topic].result(ledger.REQUEST_TIMEOUT_S)
    ledger.create_topic(bootstrap_servers, topic, 2)
    shown = run("ledger", lake, *at)
    assert shown.returncode == 1
    named = [line.partition(" with the id ")[0] for line in shown.stderr.splitlines()]
    assert named == [f"odradek: {topic}-{n}: the topic was created again" for n in (0, 1)]
    assert [line.split() for line in shown.stdout.splitlines() if topic in line] == [
        [topic, "0", "0", "29", "2", "30", "5", "-"],
        [topic, "1", "0", "29", "2", "30", "4", "-"],
    ]


def test_passwords_of_the_client_are_in_no_file_and_no_output(
    bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    secret = "n0t-to-be-seen"
    login = f'org.example.Login required username="u" password="{secret}";'
    passwords = [f"sasl.jaas.config={login}", f"ssl.truststore.password={secret}"]
    options = [part for one in passwords for part in ("--kafka-option", one)]
    at = ["--bootstrap-server", bootstrap_servers, *options]
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    lake = tmp_path / "lake"
    results = [
        run("ingest", "--topics", topic, "--table-dir", str(lake), "--once", *at),
        run("ledger", str(lake), *at),
    ]
    assert [one.returncode for one in results] == [0, 0], results
    assert all(secret not in one.stdout + one.stderr for one in results)
    files = [path for path in lake.rglob("*") if path.is_file()]
    assert {"spark.log", "metadata"} <= {path.name for path in files}
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_missing_topic_is_one_clear_line(
    bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    at = ["--bootstrap-server", bootstrap_servers]
    line = refused("ingest", "--topics", topic, "--table-dir", str(tmp_path), *at)
    assert f"Topic '{topic}' does not exist" in line
    assert "Traceback" not in line


def test_sql_creates_no_directory(tmp_path: Path) -> None:
    assert "is not a directory" in refused("sql", "--table-dir", str(tmp_path / "x"), "SELECT 1")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "csv"], "--format is delta, iceberg or parquet"),
        (["--topics", ","], "--topics names no topic"),
        (["--schema", "@/nowhere.ddl"], "/nowhere.ddl cannot be read: No such file"),
        (["--kafka-option", "nonsense"], "--kafka-option takes key=value"),
        (["--interval", "foo"], "'foo' is not an interval"),
        (["--starting", "foo"], "'foo' is not a start"),
        (["--parser", "nope"], "There is no parser 'nope'"),
        (["--parser", "json"], "The json parser needs --schema"),
        (["--parser", "json", "--schema", ""], "The schema is empty"),
        (["--table-dir", ""], "--table-dir is empty"),
    ],
)
def test_wrong_options_are_one_line_before_any_request_to_the_broker(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    at = ["--bootstrap-server", "127.0.0.1:1"]
    output = refused("ingest", "--topics", "t", "--table-dir", str(tmp_path), *at, *arguments)
    [line] = output.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_directory_that_cannot_be_created_is_one_clear_line(
    bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    ledger.create_topic(bootstrap_servers, topic, 1)
    file = tmp_path / "file"
    file.touch()
    at = ["--bootstrap-server", bootstrap_servers, "--once"]
    output = refused("ingest", "--topics", topic, "--table-dir", str(file / "x"), *at)
    assert output.splitlines()[-1] == f"odradek: {file / 'x'}: Not a directory"
    assert "Traceback" not in output


def test_missing_packages_are_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CommandError, match="pyspark, delta, matplotlib are missing: pip install"):
        need_spark("matplotlib")


def test_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "delta" else name)
    with pytest.raises(CommandError, match="delta is missing: pip install"):
        need_spark("matplotlib")


def write_definition(path: Path, bootstrap_servers: str, **tables: str) -> str:
    """Write a definition with tables of the fields in YAML, and return its path."""
    lines = [
        "name: lake",
        f"directory: {path / 'lake'}",
        f"bootstrap_servers: {bootstrap_servers}",
        "tables:",
        *(f"  {name}: {fields}" for name, fields in tables.items()),
    ]
    file = path / "lake.yaml"
    file.write_text("\n".join(lines))
    return str(file)


def test_run_ingests_all_tables_of_a_definition(
    bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    ledger.create_topic(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(70), 2)
    value = f'{{encoding: json, schema: "{ledger.SCHEMA}"}}'
    definition = write_definition(
        tmp_path,
        bootstrap_servers,
        parsed=f"{{topics: [{topic}], value: {value}, format: parquet}}",
        raw=f"{{topics: [{topic}], start: {{offsets: {{{topic}: {{0: 5}}}}}}}}",
        strict=f"{{topics: [{topic}], value: {value}, format: iceberg, rejects_max: 0.01}}",
    )
    result = run("run", definition, "--once")
    lines = result.stderr.splitlines()
    assert (
        "odradek: parsed: done, 60 rows to the table and 10 to the quarantine in 1 batches" in lines
    )
    assert "odradek: raw: done, 65 rows to the table and 0 to the quarantine in 1 batches" in lines
    assert lines[-1].startswith("odradek: Table strict has failed: Batch 0 has 10 rejected records")
    assert result.returncode == 3


def test_dry_run_prints_the_tables_and_starts_no_jvm(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "h:1", a="{topics: [x, y], start: {at: latest}}")
    result = run("run", definition, "--dry-run")
    assert (result.returncode, result.stderr) == (0, "")
    [line] = [line for line in result.stdout.splitlines() if "latest" in line]
    assert line.split()[:6] == ["a", "x,", "y", "delta", "raw", "latest"]
    assert not (tmp_path / "lake").exists()


def test_wrong_definition_is_refused_with_a_line_for_each_wrong_value(tmp_path: Path) -> None:
    definition = write_definition(tmp_path, "h:1", a="{topic: [x]}", b="{topics: [x], format: x}")
    lines = refused("run", definition).splitlines()
    assert (
        lines[0] == f"odradek: {definition}: tables.a.topic: unknown field, did you mean 'topics'."
    )
    assert "tables.b.format: input should be 'delta', 'iceberg' or 'parquet'." in lines[-1]
