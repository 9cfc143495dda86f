"""Compiles the text of a .proto file with protoc, in a child process.

The protoc of `grpcio-tools` reads and writes files only, holds the interpreter lock while it
compiles, writes its errors to file descriptor 2 of the process, and crashes the process on some
input. So each compilation runs `protoc_child` in a temporary directory of its own, with a limit on
time, memory and output. protoc refuses absolute imports and imports with `..`, so it reads no file
outside of this directory, except the types of Google that the directory has links to.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from odradek.registry.schemas import protoc_child
from odradek.registry.schemas.parsed import InvalidSchema
from odradek.registry.schemas.proto_known import CONFLUENT_FILES

ROOT_NAME = "default"
"""The name of the schema's own file, as in Confluent's registry."""

COMPILE_SECONDS_MAX = 10.0
"""Maximum duration of one compilation. Ordinary schemas need less than 0.1 s."""

ERROR_CHARACTERS_MAX = 2_000
"""A longer error message of protoc is truncated."""

ERROR_BYTES_MAX = 65_536
"""The part of protoc's output in which error messages are looked for."""

NAME_BYTES_MAX = 255
"""Maximum length of one component of an imported file's name, as of a file system."""

_WARNING = ": warning: "
_SCHEMA = "schema"
_IMPORTS = "imports"
_KNOWN = "known"


@dataclass(frozen=True, slots=True)
class CompiledFile:
    """The descriptors of a schema.

    `file` has source info. Its dependencies are transitive and in the order of dependency.
    """

    file: FileDescriptorProto
    dependencies: tuple[FileDescriptorProto, ...]


def compile_text(text: str, files: Mapping[str, str]) -> CompiledFile:
    """Return the descriptors of a schema.

    Args:
        text: The text of the schema's own file.
        files: The texts of the files that the schema may import, by name. Google's well-known
            types and `CONFLUENT_FILES` may be imported without an entry.

    Raises:
        InvalidSchema: protoc refuses the text or an imported file, a file's name is not a relative
            path, or a limit is reached.
    """
    imports = {**CONFLUENT_FILES, **files}
    _check_names(imports)
    name = root_name(files)
    with tempfile.TemporaryDirectory(prefix="odradek-protoc-") as directory:
        root = Path(directory)
        _write(root / _SCHEMA, {name: text})
        _write(root / _IMPORTS, imports)
        _run(root, name, [name, *imports])
        written = FileDescriptorSet.FromString((root / "descriptors").read_bytes())
    compiled = {each.name: each for each in written.file}
    own = compiled.pop(name)
    return CompiledFile(own, tuple(compiled.values()))


def root_name(files: Mapping[str, str]) -> str:
    """Return the name of the schema's own file, which no imported file may have."""
    name = ROOT_NAME
    while name in files:
        name += "_"
    return name


def _check_names(files: Mapping[str, str]) -> None:
    """Raise InvalidSchema if a name is not a path below a directory of its own."""
    for name in files:
        parts = name.split("/")
        if any(not _is_file_name(part) for part in parts):
            raise InvalidSchema(f"The name of the reference '{name}' is not a relative path.")
    for name in files:
        for parent in PurePosixPath(name).parents:
            if str(parent) in files:
                raise InvalidSchema(
                    f"The reference '{parent}' is also a directory of the reference '{name}'."
                )


def _is_file_name(part: str) -> bool:
    if part in ("", ".", "..") or "\\" in part or not part.isprintable():
        return False
    return len(part.encode()) <= NAME_BYTES_MAX


def _write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def _run(directory: Path, name: str, files: Iterable[str]) -> None:
    tools = _package_directory("grpc_tools")
    if tools is None:
        raise RuntimeError(
            "The package grpcio-tools is not installed. Install it with "
            "`pip install 'odradek[registry]'`."
        )
    _link(directory / _KNOWN, tools)
    command = [
        *(sys.executable, "-I", "-S", protoc_child.__file__, str(tools.parent)),
        *(f"-I{_SCHEMA}", f"-I{_IMPORTS}", f"-I{_KNOWN}"),
        "--include_imports",
        "--include_source_info",
        "--retain_options",
        "--descriptor_set_out=descriptors",
        f"{_SCHEMA}/{name}",
    ]
    errors = directory / "errors"
    with errors.open("wb") as stream:
        try:
            completed = subprocess.run(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                timeout=COMPILE_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchema(
                f"protoc did not compile the schema in {COMPILE_SECONDS_MAX:g} s."
            ) from None
    if completed.returncode == protoc_child.IMPORT_FAILED:
        raise RuntimeError(f"grpcio-tools cannot be imported: {_text(errors)}")
    if completed.returncode < 0:
        raise InvalidSchema(
            f"protoc was stopped by signal {-completed.returncode}: the schema is too large or "
            "nested too deep."
        )
    if completed.returncode != 0:
        raise InvalidSchema(_message(errors, files))


def _message(errors: Path, files: Iterable[str]) -> str:
    """Return protoc's error messages without warnings, such as ``default:1:9: Expected ";".``

    Each message begins with the name of a file.
    """
    text = _text(errors)
    starts = tuple(f"{name}:" for name in files)
    found = (_without_directory(line, starts) for line in text.splitlines())
    lines = [line for line in found if line.startswith(starts) and _WARNING not in line]
    message = "\n".join(lines) or text
    if len(message) > ERROR_CHARACTERS_MAX:
        message = f"{message[:ERROR_CHARACTERS_MAX]}..."
    return message


def _without_directory(line: str, starts: tuple[str, ...]) -> str:
    """Remove the temporary directory that some versions of protoc name before a file."""
    if line.startswith(starts):
        return line
    return line.removeprefix(f"{_SCHEMA}/").removeprefix(f"{_IMPORTS}/")


def _text(errors: Path) -> str:
    with errors.open("rb") as stream:
        return stream.read(ERROR_BYTES_MAX).decode(errors="replace").strip()


def _link(known: Path, tools: Path) -> None:
    """Link the directories of Google's types, which a schema may import without a reference.

    ``google/type`` comes with the package `googleapis-common-protos`, if that is installed.
    """
    folders = {"protobuf": tools / "_proto" / "google" / "protobuf"}
    common = _package_directory("google.type")
    if common is not None:
        folders["type"] = common
    google = known / "google"
    google.mkdir(parents=True)
    for name, folder in folders.items():
        (google / name).symlink_to(folder, target_is_directory=True)


def _package_directory(package: str) -> Path | None:
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0])
