"""protoc in a child process: what it may read, and the limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.registry.schemas import protoc, protoc_child
from odradek.registry.schemas.parsed import InvalidSchema
from odradek.registry.schemas.protoc import compile_text, root_name

EMPTY = 'syntax = "proto3";\n'


def test_a_text_is_compiled_with_its_imports_in_the_order_of_dependency() -> None:
    files = {
        "b.proto": EMPTY + 'import "a/a.proto"; message B { A a = 1; }',
        "a/a.proto": EMPTY + "message A {}",
        "unused.proto": EMPTY + "message Unused {}",
    }
    compiled = compile_text(EMPTY + 'import "b.proto"; message C { B b = 1; }', files)
    assert compiled.file.name == "default"
    assert [each.name for each in compiled.file.message_type] == ["C"]
    assert [each.name for each in compiled.dependencies] == ["a/a.proto", "b.proto"]


@pytest.mark.parametrize(
    "name",
    [
        "google/protobuf/timestamp.proto",
        "google/protobuf/descriptor.proto",
        "google/protobuf/struct.proto",
        "confluent/meta.proto",
        "confluent/type/decimal.proto",
    ],
)
def test_a_known_file_needs_no_reference(name: str) -> None:
    compiled = compile_text(f'{EMPTY}import "{name}";', {})
    assert compiled.dependencies[-1].name == name


def test_a_reference_replaces_a_known_file() -> None:
    name = "confluent/meta.proto"
    compiled = compile_text(f'{EMPTY}import "{name}";', {name: EMPTY + "message Mine {}"})
    assert compiled.dependencies[0].message_type[0].name == "Mine"


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret.proto", "./a.proto", "a//a.proto"])
def test_an_import_outside_of_the_directory_is_refused(name: str) -> None:
    with pytest.raises(InvalidSchema, match="default:2:1"):
        compile_text(f'{EMPTY}import "{name}";', {"a.proto": EMPTY})


def test_a_file_without_a_reference_is_not_found(tmp_path: Path) -> None:
    outside = tmp_path / "outside.proto"
    outside.write_text(EMPTY)
    with pytest.raises(InvalidSchema, match="not found"):
        compile_text(f'{EMPTY}import "outside.proto";', {})


@pytest.mark.parametrize(
    "name",
    ["/a.proto", "../a.proto", "a/../b.proto", "", "a//b", "a\\b", "a\nb", "a\x00", "é" * 200],
)
def test_the_name_of_a_reference_is_a_relative_path(name: str) -> None:
    with pytest.raises(InvalidSchema, match="not a relative path"):
        compile_text(EMPTY, {name: EMPTY})


def test_the_name_of_a_reference_is_not_a_directory_of_another() -> None:
    with pytest.raises(InvalidSchema, match="also a directory"):
        compile_text(EMPTY, {"a": EMPTY, "a/b.proto": EMPTY})


def test_a_reference_may_have_the_name_of_the_schema_itself() -> None:
    files = {"default": EMPTY + "message A {}"}
    assert root_name(files) == "default_"
    compiled = compile_text(EMPTY + 'import "default"; message B { A a = 1; }', files)
    assert compiled.dependencies[0].message_type[0].name == "A"


def test_imports_in_a_circle_are_refused() -> None:
    files = {"a.proto": EMPTY + 'import "b.proto";', "b.proto": EMPTY + 'import "a.proto";'}
    with pytest.raises(InvalidSchema, match="recursively imports itself"):
        compile_text(EMPTY + 'import "a.proto";', files)


def test_an_error_has_a_line_and_a_column_and_no_warnings() -> None:
    with pytest.raises(InvalidSchema) as caught:
        compile_text("message M {\n  optional string a;\n}", {})
    assert str(caught.value) == "default:2:20: Missing field number."


def test_many_errors_are_truncated() -> None:
    with pytest.raises(InvalidSchema) as caught:
        compile_text(EMPTY + "message M { Missing a = 1; }\n" * 2_000, {})
    assert len(str(caught.value)) <= protoc.ERROR_CHARACTERS_MAX + 3


@pytest.mark.parametrize("depth", [40, 100_000])
def test_a_text_that_is_nested_too_deep_is_refused(depth: int) -> None:
    with pytest.raises(InvalidSchema):
        compile_text(EMPTY + "message M { " * depth + "}" * depth, {})


def test_an_option_that_is_nested_too_deep_is_refused() -> None:
    depth = 100_000
    option = f"option (confluent.file_meta) = {{ {'rules { ' * depth}{'} ' * depth} }};"
    with pytest.raises(InvalidSchema):
        compile_text(f'{EMPTY}import "confluent/meta.proto";\n{option}', {})


def test_a_compilation_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "COMPILE_SECONDS_MAX", 0.001)
    with pytest.raises(InvalidSchema, match=r"0\.001 s"):
        compile_text(EMPTY, {})


def test_the_child_limits_its_memory_and_its_files() -> None:
    program = (
        "import resource\n"
        "from odradek.registry.schemas import protoc_child\n"
        "protoc_child.set_limits()\n"
        "print(resource.getrlimit(resource.RLIMIT_AS)[1], "
        "resource.getrlimit(resource.RLIMIT_FSIZE)[1])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    memory, size = (int(each) for each in run.stdout.split())
    assert memory <= protoc_child.MEMORY_BYTES_MAX
    assert size <= protoc_child.FILE_BYTES_MAX


def test_an_installation_without_grpcio_tools_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "_package_directory", lambda _: None)
    with pytest.raises(RuntimeError, match="grpcio-tools is not installed"):
        compile_text(EMPTY, {})


def test_the_child_leaves_no_process_and_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(protoc.tempfile, "tempdir", str(tmp_path))
    compile_text(EMPTY, {"a.proto": EMPTY})
    with pytest.raises(InvalidSchema):
        compile_text("message", {})
    assert list(tmp_path.iterdir()) == []


def test_the_child_starts_without_site_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    run = subprocess.run

    def record(command: list[str], **options: object) -> object:
        commands.append(command)
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", record)
    compile_text(EMPTY, {})
    assert commands[0][1:3] == ["-I", "-S"]
