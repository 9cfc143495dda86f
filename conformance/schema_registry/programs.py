"""The clients of a schema registry, each in a program of its own.

A program runs one scenario per process. Exit code 0 means that all responses were the expected
ones. The sources are in `conformance/programs/`.

    PROGRAM SCENARIO URL SCHEMAS
    PROGRAM write URL SCHEMAS BOOTSTRAP FORMAT TOPIC NAME
    PROGRAM read URL SCHEMAS BOOTSTRAP FORMAT COUNT TOPIC...

`SCHEMAS` is the directory with the schemas that all programs share. `write` sends three orders,
whose ids begin with NAME: the first one with the first schema, the others with the second one.
`read` prints the first COUNT orders of each topic as lines of JSON.

Each client takes a registry of its own. The expected ids begin with 1.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conformance import stacks
from conformance.go_programs import PROGRAMS, go_program
from conformance.harness import Skip
from testkit.peer import PeerUnavailable, java_command
from testkit.peer.artifacts import CACHE, flink_registry_class_path, kafka_class_path

SCHEMAS = Path(__file__).parent / "schemas"
NODE = PROGRAMS / "registry_node"
JAVA = PROGRAMS / "RegistryScenarios.java"
INSTALL_S = 600.0
COMPILE_S = 180.0

AVRO, JSON, PROTOBUF, AVRO_IN_HEADER = "avro", "json", "protobuf", "avro+header"
FORMATS = {
    AVRO: "Avro",
    JSON: "JSON Schema",
    PROTOBUF: "Protobuf",
    AVRO_IN_HEADER: "Avro with the guid in a header",
}
SCENARIOS = {
    "lookups": "register and look up",
    "compatibility": "compatibility levels",
    "references": "references",
    "errors": "error codes",
    "deletes": "soft and permanent deletes",
    "contexts": "contexts",
    "settings": "configs and modes",
    "contracts": "metadata and rules",
    "generated": "schemas that serializers register, with imports",
    "unsupported": "associations and keys for encryption get 404",
}
REQUESTS = tuple(each for each in SCENARIOS if each not in ("generated", "unsupported"))
"""The scenarios of a client without serializers that register schemas."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client library.

    Attributes:
        name: Its name, with the version in `versions.py` of the record.
        short: The head of its column in a table.
        command: Return the command of its program. The argument is a scratch directory.
        scenarios: The scenarios for which it has methods.
        writes: The formats in which other clients can read its records.
        reads: The formats that it can read.
        ci: Whether the CI subset runs it.
    """

    name: str
    short: str
    command: Callable[[Path], list[str]]
    scenarios: tuple[str, ...] = REQUESTS
    writes: tuple[str, ...] = tuple(FORMATS)
    reads: tuple[str, ...] = tuple(FORMATS)
    ci: bool = False


def _python(*options: str) -> Callable[[Path], list[str]]:
    program = str(PROGRAMS / "python" / "registry.py")
    return lambda _: [sys.executable, program, *options]


def _go(package: str) -> Callable[[Path], list[str]]:
    return lambda _: go_program("registry_go", package)


def node_home() -> Path:
    """Return the directory with the Node.js programs and their packages, installed on first use.

    Raises:
        Skip: Node.js or its packages are missing.
    """
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Skip("the program runs on Node.js: there is no `node` and `npm` on the PATH")
    lock = NODE / "package-lock.json"
    home = CACHE / f"programs-registry-node-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    home.mkdir(parents=True, exist_ok=True)
    for path in NODE.iterdir():
        shutil.copy(path, home)
    if not (home / "node_modules" / ".package-lock.json").exists():
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = stacks.run(command, cwd=home, timeout_s=INSTALL_S)
        if done.returncode != 0:
            raise Skip(f"npm could not fetch the clients: {done.stderr[-300:]}")
    return home


def _node(program: str) -> Callable[[Path], list[str]]:
    return lambda _: ["node", str(node_home() / program)]


def _java(work: Path) -> list[str]:
    """Compile the program once in a run."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise Skip("the program is compiled by javac: it is not on the PATH")
    try:
        path = os.pathsep.join([flink_registry_class_path(), kafka_class_path()])
    except PeerUnavailable as reason:
        raise Skip(str(reason)) from None
    classes = work / "registry-scenarios"
    if not classes.is_dir():
        command = [compiler, "-encoding", "UTF-8", "-cp", path, "-d", str(classes), str(JAVA)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_S, check=False
        )
        assert done.returncode == 0, done.stderr
    utf8 = ("-Dstdout.encoding=UTF-8",)
    return java_command(
        "RegistryScenarios", jvm=utf8, class_path=f"{classes}{os.pathsep}{path}", level="ERROR"
    )


CLIENTS = (
    Client("confluent-kafka-python", "py", _python(), scenarios=tuple(SCENARIOS), ci=True),
    Client(
        "confluent-kafka-python, asyncio",
        "py asyncio",
        _python("--asyncio"),
        scenarios=tuple(SCENARIOS),
    ),
    Client("confluent-kafka-go", "go", _go("confluent"), scenarios=tuple(SCENARIOS)),
    Client(
        "franz-go sr",
        "franz",
        _go("franz"),
        writes=(AVRO, JSON, PROTOBUF),
        reads=(AVRO, JSON, PROTOBUF),
    ),
    Client(
        "@confluentinc/schemaregistry",
        "js",
        _node("confluent.js"),
        scenarios=tuple(SCENARIOS),
    ),
    Client(
        "@kafkajs/confluent-schema-registry",
        "kafkajs",
        _node("kafkajs.js"),
        scenarios=("lookups", "compatibility", "references", "errors", "contexts"),
        # Its Protobuf encoder leaves out the indexes of the message, which other clients expect.
        writes=(AVRO, JSON),
        reads=(AVRO, JSON, PROTOBUF),
    ),
    Client("Confluent's Java client in Flink", "java", _java, writes=(AVRO,), reads=(AVRO,)),
)
