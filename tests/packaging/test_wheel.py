"""The built wheel is installed without a compiler and serves a client, on Python 3.11 and 3.13.

Each interpreter gets a fresh environment. The packages of constraints/base.txt are installed with
`--only-binary :all:`, then the wheel without an index, so that constraints/base.txt has to contain
all its dependencies. The PATH of both steps contains no compiler.

A test is skipped if the machine does not have the interpreter. `uv python install 3.13` installs
it. With ODRADEK_WHEEL_PYTHONS=required a missing interpreter fails the test.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSIONS = ("3.11", "3.13")
REQUIRED_VARIABLE = "ODRADEK_WHEEL_PYTHONS"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "cl", "rustc", "cargo")
INSTALL_TIMEOUT_S = 240
START_TIMEOUT_S = 60

ROUND_TRIP = """
import sys
from confluent_kafka import Consumer, Producer
import odradek

address = sys.argv[1]
producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
for number in range(100):
    producer.produce("pages", b"%d" % number)
assert producer.flush(30) == 0
consumer = Consumer(
    {"bootstrap.servers": address, "group.id": "readers", "auto.offset.reset": "earliest"}
)
consumer.subscribe(["pages"])
values = []
while len(values) < 100:
    (message,) = consumer.consume(1, 30) or [None]
    assert message is not None and message.error() is None, message
    values.append(int(message.value()))
consumer.close()
assert values == list(range(100)), values
print(odradek.__file__)
"""


def _find_interpreter(version: str) -> str | None:
    """Return the path of a working interpreter of the version, or None.

    Candidates are this interpreter, the PATH, the interpreters of uv and those of pyenv.
    """
    uv = [sys.executable, "-m", "uv", "python", "find", "--no-python-downloads", version]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [
        str(Path(sys.base_prefix) / "bin" / "python3"),
        shutil.which(f"python{version}"),
        subprocess.run(uv, capture_output=True, text=True, check=False).stdout.strip(),
        *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"))),
    ]
    return next((each for each in candidates if each and _is_version(each, version)), None)


def _is_version(interpreter: str, version: str) -> bool:
    program = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    command = [interpreter, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.returncode == 0 and found.stdout.strip() == version


@pytest.fixture(params=VERSIONS)
def interpreter(request: pytest.FixtureRequest) -> str:
    """The path of an interpreter of each version. Skip the test if it does not exist."""
    found = _find_interpreter(request.param)
    if found is None:
        message = (
            f"The wheel is NOT tested on Python {request.param}: no such interpreter exists. "
            f"Install it with `uv python install {request.param}`."
        )
        assert os.environ.get(REQUIRED_VARIABLE) != "required", message
        warnings.filterwarnings("default", message="The wheel is NOT tested")
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the files of this repository."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
    (built,) = directory.glob("*.whl")
    return built


class Installation:
    """A fresh virtual environment without access to a compiler or to the sources."""

    def __init__(self, interpreter: str, directory: Path) -> None:
        self.directory = directory
        self._bin = directory / "bin"
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {"CC", "CXX", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"}
        }
        self._environment["PATH"] = str(self._bin)
        subprocess.run(
            [interpreter, "-m", "venv", str(directory)],
            env=self._environment,
            check=True,
            timeout=INSTALL_TIMEOUT_S,
        )
        found = [name for name in COMPILERS if shutil.which(name, path=str(self._bin))]
        assert not found

    def command(self, *arguments: str) -> list[str]:
        return [str(self._bin / arguments[0]), *arguments[1:]]

    def run(self, *arguments: str) -> str:
        """Run a command of the environment. Return its standard output."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def broker(self) -> Iterator[str]:
        """Run `odradek serve`. Yield its address."""
        arguments = ["odradek", "serve", "--listen", "127.0.0.1:0", "--data", "data"]
        process = subprocess.Popen(
            self.command(*arguments),
            cwd=self.directory,
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        log = ""
        try:
            for line in process.stderr:
                log += line
                if listens := re.search(r"listens on PLAINTEXT://([^ ;,]+)", line):
                    break
            else:
                raise AssertionError(f"the broker did not start: {log}")
            yield listens[1]
        finally:
            process.terminate()
            try:
                assert process.wait(START_TIMEOUT_S) == 0
            finally:
                process.kill()
                process.stderr.close()


@pytest.mark.timeout(900)
def test_wheel_is_installed_without_a_compiler_and_serves_a_client(
    wheel: Path, interpreter: str, tmp_path: Path
) -> None:
    installation = Installation(interpreter, tmp_path / "environment")
    binary = ("-m", "pip", "install", "--quiet", "--only-binary", ":all:")
    constraints = str(ROOT / "constraints" / "base.txt")
    installation.run("python", *binary, "--require-hashes", "-r", constraints)
    installation.run("python", *binary, "--no-index", str(wheel))

    assert installation.run("odradek", "--version").split() == ["odradek", PROJECT["version"]]
    with installation.broker() as address:
        imported = installation.run("python", "-c", ROUND_TRIP, address)
        topics = installation.run("odradek", "topic", "list", "--bootstrap-server", address)
    assert Path(imported.strip()).is_relative_to(installation.directory)
    assert "pages" in topics


DISTRIBUTIONS = {
    "confluent_kafka": "confluent-kafka",
    "google.protobuf": "protobuf",
    "google.type": "googleapis-common-protos",
    "grpc_tools": "grpcio-tools",
    "httpx": "httpx",
    "jsonschema": "jsonschema",
    "jsonschema_specifications": "jsonschema-specifications",
    "re2": "google-re2",
    "referencing": "referencing",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
}
"""The package of each module that the registry imports, or looks for by `find_spec`."""


def test_the_extra_registry_has_the_packages_that_the_registry_imports() -> None:
    imported = {_distribution(module) for module in _foreign_modules("src/odradek/registry")}
    extra = _names(PROJECT["optional-dependencies"]["registry"])
    assert imported <= extra | _names(PROJECT["dependencies"])
    assert extra <= imported


def test_the_base_installation_has_no_package_of_the_extras() -> None:
    base = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints/base.txt").read_text("utf-8"), re.M))
    own = _names(PROJECT["dependencies"]) | {"pydantic"}  # typer requires pydantic
    for extra in ("registry", "spark", "dev"):
        assert not base & (_names(PROJECT["optional-dependencies"][extra]) - own)


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


def _distribution(module: str) -> str:
    return next(
        package
        for name, package in DISTRIBUTIONS.items()
        if module == name or module.startswith(f"{name}.")
    )


def _foreign_modules(folder: str) -> set[str]:
    """Return the modules outside of the standard library that the files of a folder name."""
    modules: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(node.module or "")
            elif isinstance(node, ast.Constant) and node.value in DISTRIBUTIONS:
                modules.add(str(node.value))
    own = sys.stdlib_module_names | {"odradek"}
    return {module for module in modules if module.split(".")[0] not in own}


def test_versions_agree() -> None:
    """pyproject.toml, `odradek.__version__` and the newest entry of CHANGELOG.md."""
    import odradek

    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", changelog, re.M)
    assert [odradek.__version__, released[0]] == [PROJECT["version"]] * 2
