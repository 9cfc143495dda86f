"""The released tests of two clients, unmodified, against Odradek's registry.

- confluent-kafka-go: `TestClient` of its package `schemaregistry`, compiled from the module. It
  reads the registry's URL from `../kafka/testconf.json`, and schemas from `./test`. Without that
  file it tests a mock.
- @confluentinc/schemaregistry: the end-to-end tests in its package, with Jest. Their addresses are
  constants, which a module with the same exports replaces. KafkaJS replaces the native Kafka client
  (`programs/registry_node/kafka-javascript.js`).

The released tests of the other clients start servers of their own, or are not in the packages.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from conformance import stacks
from conformance.go_programs import PROGRAMS
from conformance.harness import Case, Context, Outcome, Skip
from conformance.schema_registry.cases import OUTPUT_CHARACTERS, Calls, check
from conformance.schema_registry.programs import CLIENTS, Client, node_home
from conformance.schema_registry.recorder import Recorder
from odradek.testing import Registry
from testkit.peer.artifacts import CACHE

MODULE = "github.com/confluentinc/confluent-kafka-go/v2"
BUILD_S = 600.0
SUITE_TIMEOUT_S = 600.0
RESULT = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+) \(([\d.]+)s\)", re.M)
VERDICTS = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


def released_cases(calls: Calls) -> tuple[Case, ...]:
    """Return a case for each client with released tests. It has a result for each test."""
    return (
        Case("confluent-kafka-go's tests", _go(calls), timeout_s=SUITE_TIMEOUT_S + BUILD_S),
        Case("@confluentinc/schemaregistry's tests", _node(calls), timeout_s=SUITE_TIMEOUT_S * 2),
    )


def _client(short: str) -> Client:
    return next(each for each in CLIENTS if each.short == short)


def _go(calls: Calls) -> Callable[[Context], list[Outcome]]:
    def run(context: Context) -> list[Outcome]:
        program = _compiled()
        home = context.work / "go-tests"
        directory = home / "schemaregistry"
        directory.mkdir(parents=True)
        (home / "kafka").mkdir()
        (directory / "test").symlink_to(_source() / "schemaregistry" / "test")
        with (
            Registry(context.bootstrap, topic=context.topic("schemas")) as registry,
            Recorder(registry.url) as recorder,
        ):
            settings = json.dumps({"SchemaRegistryURL": recorder.url})
            (home / "kafka" / "testconf.json").write_text(settings, encoding="utf-8")
            command = [program, "-test.v", "-test.run", "^TestClient$"]
            done = stacks.run(command, cwd=directory, timeout_s=SUITE_TIMEOUT_S)
        check(_client("go"), "its tests", recorder, calls)
        assert recorder.exchanges, "the tests used a mock"
        return [
            Outcome(
                f"confluent-kafka-go's {name}",
                VERDICTS[verdict],
                float(seconds),
                done.stdout[-OUTPUT_CHARACTERS:] if verdict == "FAIL" else "",
            )
            for verdict, name, seconds in RESULT.findall(done.stdout)
        ]

    return run


def _compiled() -> str:
    """Compile the tests of the package. Return the path of the program."""
    built = CACHE / "programs-go" / "schemaregistry.test"
    command = ["go", "test", "-c", "-buildvcs=false", "-o", str(built), f"{MODULE}/schemaregistry"]
    _run_go(command)
    return str(built)


def _source() -> Path:
    """Return the directory of the module's source."""
    return Path(_run_go(["go", "list", "-m", "-f", "{{.Dir}}", MODULE]).strip())


def _run_go(command: list[str]) -> str:
    if shutil.which("go") is None:
        raise Skip("the tests are built by Go: there is no `go` on the PATH")
    done = stacks.run(command, cwd=PROGRAMS / "registry_go", timeout_s=BUILD_S)
    if done.returncode != 0:
        raise Skip(f"Go could not build the tests: {done.stderr[-300:]}")
    return done.stdout


def _node(calls: Calls) -> Callable[[Context], list[Outcome]]:
    def run(context: Context) -> list[Outcome]:
        home = node_home()
        results = context.work / "jest.json"
        with (
            Registry(context.bootstrap, topic=context.topic("schemas")) as registry,
            Recorder(registry.url) as recorder,
        ):
            environment = {
                "ODRADEK_CONFORMANCE_BROKERS": context.bootstrap,
                "ODRADEK_CONFORMANCE_REGISTRY": recorder.url,
            }
            options = ["--runInBand", "--forceExit", "--json", f"--outputFile={results}"]
            command = ["node", "node_modules/jest/bin/jest.js", *options]
            done = stacks.run(command, cwd=home, environment=environment, timeout_s=SUITE_TIMEOUT_S)
        check(_client("js"), "its tests", recorder, calls)
        assert results.exists(), done.stderr[-OUTPUT_CHARACTERS:]
        return list(_outcomes(json.loads(results.read_text(encoding="utf-8"))))

    return run


def _outcomes(found: dict[str, object]) -> list[Outcome]:
    """Return an outcome for each test of Jest's results, with the first message of a failure."""
    files = found["testResults"]
    assert isinstance(files, list)
    return [
        Outcome(
            f"@confluentinc/schemaregistry's {Path(file['name']).name.split('.')[0]}: "
            f"{test['title']}",
            test["status"],
            (test["duration"] or 0) / 1000,
            (test["failureMessages"] or [""])[0],
        )
        for file in files
        for test in file["assertionResults"]
    ]
