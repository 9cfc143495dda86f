"""The directory of an export: the same files for the same schemas, and nothing outside of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from odradek.registry import archive as archive_module
from odradek.registry import archive_export, archive_import
from odradek.registry import client as client_module
from odradek.registry.app import create_app
from odradek.registry.archive import (
    INDEX,
    Archive,
    ArchivedSubject,
    ArchivedVersion,
    InvalidArchive,
    read_archive,
    write_archive,
)
from odradek.registry.archive_export import in_parallel, read_registry
from odradek.registry.archive_import import plan_import, run_import
from odradek.registry.client import RegistryClient, StoredSchema
from odradek.registry.schemas.parsed import Reference
from tests.helpers.fake_registry import FakeRegistry
from tests.registry.routes.memory_registry import MemoryRegistry


def version(subject: str, number: int, text: str = '"int"', kind: str = "AVRO") -> ArchivedVersion:
    schema = StoredSchema(text, kind, subject=subject, version=number, id=number, guid=f"g{number}")
    return ArchivedVersion(subject, number, number, schema, is_deleted=False)


def archive_of(*versions: ArchivedVersion) -> Archive:
    names = sorted({each.subject for each in versions})
    subjects = tuple(
        ArchivedSubject(name, None, None, tuple(v for v in versions if v.subject == name))
        for name in names
    )
    return Archive({"compatibilityLevel": "BACKWARD"}, "READWRITE", subjects)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def registry_with_all_properties() -> FakeRegistry:
    fake = FakeRegistry()
    fake.add("b", '{"type": "object"}', "JSON", metadata={"properties": {"owner": "x"}})
    fake.add(
        "a",
        'syntax = "proto3";\nimport "b";\n',
        "PROTOBUF",
        references=[{"name": "b", "subject": "b", "version": 1}],
        ruleSet={"domainRules": []},
    )
    fake.add("a", '"string"').deleted = True
    fake.configs["a"] = {"compatibilityLevel": "FULL"}
    fake.modes["b"] = "READONLY"
    return fake


def test_archive_is_read_as_it_was_written(tmp_path: Path) -> None:
    archive = read_registry(registry_with_all_properties().client())
    write_archive(tmp_path, archive)
    assert read_archive(tmp_path) == archive
    [a, b] = archive.subjects
    assert [each.is_deleted for each in a.versions] == [False, True]
    assert a.versions[0].schema.references == (Reference("b", "b", 1),)
    assert (a.config, a.mode, b.config, b.mode) == (
        {"compatibilityLevel": "FULL"},
        None,
        None,
        "READONLY",
    )


def test_same_registry_gives_the_same_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_archive(tmp_path / name, read_registry(registry_with_all_properties().client()))
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert list(files(tmp_path / "one")) == ["a/1.proto", "a/2.avsc", "b/1.json", "index.json"]


def test_file_has_exactly_the_text(tmp_path: Path) -> None:
    text = '{\r\n"type": "string", "doc": "é"}\n\n'
    write_archive(tmp_path, archive_of(version("a", 1, text)))
    assert (tmp_path / "a/1.avsc").read_bytes() == text.encode()
    assert read_archive(tmp_path).subjects[0].versions[0].schema.text == text


def test_files_of_an_earlier_export_are_removed(tmp_path: Path) -> None:
    write_archive(tmp_path, archive_of(version("a", 1), version("a", 2), version("b", 1)))
    (tmp_path / "README.md").write_text("kept")
    write_archive(tmp_path, archive_of(version("a", 2)))
    assert list(files(tmp_path)) == ["README.md", "a/2.avsc", "index.json"]


def test_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InvalidArchive, match="has files, but no index"):
        write_archive(tmp_path, archive_of(version("a", 1)))
    assert list(files(tmp_path)) == ["thesis.tex"]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=300))
def test_file_of_any_subject_is_in_a_directory_below(
    tmp_path_factory: pytest.TempPathFactory, subject: str
) -> None:
    directory = tmp_path_factory.mktemp("archive")
    write_archive(directory, archive_of(version(subject, 1)))
    [name] = [each for each in files(directory) if each != INDEX]
    assert name.count("/") == 1
    assert read_archive(directory) == archive_of(version(subject, 1))


@pytest.mark.parametrize("subject", ["..", ".", "", "../../x", "/etc", "index.json", "a" * 300])
def test_file_of_an_awkward_subject_is_below(tmp_path: Path, subject: str) -> None:
    directory = tmp_path / "in"
    write_archive(directory, archive_of(version(subject, 1)))
    assert read_archive(directory) == archive_of(version(subject, 1))
    assert all(name.startswith("in/") for name in files(tmp_path))


def test_long_subjects_have_different_files(tmp_path: Path) -> None:
    both = archive_of(version("a" * 300 + "x", 1), version("a" * 300 + "y", 1))
    write_archive(tmp_path, both)
    assert read_archive(tmp_path) == both


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (None, "does not exist"),
        ("{", "not JSON"),
        ("[]", "not the index"),
        ('{"format": 2}', "of format 1"),
        ('{"format": 1}', "subjects"),
        ('{"format": 1, "subjects": []}', "not a JSON object"),
        ('{"format": 1, "subjects": {"a": {}}}', "versions"),
        ('{"format": 1, "subjects": {"a": {"versions": 5}}}', "not an array"),
        ('{"format": 1, "subjects": {"a": {"versions": [{"version": "x", "id": 1}]}}}', "no numb"),
        ('{"format": 1, "subjects": {"a": {"versions": [{"version": 1, "id": 1}]}}}', "not exist"),
    ],
)
def test_invalid_index_is_refused(tmp_path: Path, index: str | None, reason: str) -> None:
    if index is not None:
        (tmp_path / INDEX).write_text(index)
    with pytest.raises(InvalidArchive, match=reason):
        read_archive(tmp_path)


def test_index_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_archive: Archive) -> dict[str, object]:
        raise OSError("no space")

    monkeypatch.setattr(archive_module, "_index", fail)
    with pytest.raises(OSError, match="no space"):
        write_archive(tmp_path, archive_of(version("a", 1)))
    assert list(files(tmp_path)) == ["a/1.avsc"]


def test_index_has_no_text_of_a_schema(tmp_path: Path) -> None:
    write_archive(tmp_path, archive_of(version("a", 1, '"string"')))
    [entry] = json.loads((tmp_path / INDEX).read_text())["subjects"]["a"]["versions"]
    assert "schema" not in entry
    assert (entry["version"], entry["id"], entry["schemaType"]) == (1, 1, "AVRO")


def test_parallel_results_are_in_order_and_the_first_error_is_raised() -> None:
    assert in_parallel(lambda n: n * n, range(50)) == [n * n for n in range(50)]
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda n: 1 // n, [1, 0, 2])


def aliased(monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryRegistry, RegistryClient]:
    """Return a registry in which requests for `a` return versions of `b`."""
    registry = MemoryRegistry()
    http = TestClient(create_app(registry))
    for subject, text in (("a", '"int"'), ("b", '"string"'), ("c", '"long"')):
        assert http.post(f"/subjects/{subject}/versions", json={"schema": text}).is_success
    for number in range(2):
        added = f'{{"type":"fixed","name":"F","size":{number + 1}}}'
        http.put("/config", json={"compatibility": "NONE"})
        assert http.post("/subjects/b/versions", json={"schema": added}).is_success
    assert http.put("/config/a", json={"alias": "b"}).is_success
    assert http.put("/config/orders-new", json={"alias": "b"}).is_success
    for module in (archive_export, archive_import):
        monkeypatch.setattr(module, "in_parallel", lambda call, items: [call(n) for n in items])
    monkeypatch.setattr(client_module, "SCHEMAS_PER_PAGE", 2)
    return registry, client_of(registry)


def client_of(registry: MemoryRegistry) -> RegistryClient:
    http = TestClient(create_app(registry), raise_server_exceptions=False)
    return RegistryClient(["http://testserver"], http, lambda _: None, lambda _: None)  # type: ignore[arg-type]


def test_subject_with_an_alias_is_exported_with_its_own_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, client = aliased(monkeypatch)
    archive = read_registry(client)
    versions = {
        each.name: [(version.id, version.schema.text) for version in each.versions]
        for each in archive.subjects
    }
    assert versions["a"] == [(1, '"int"')]
    assert [id_ for id_, _ in versions["b"]] == [2, 4, 5]
    assert versions["orders-new"] == []
    write_archive(tmp_path, archive)
    assert read_archive(tmp_path) == archive


def test_import_restores_a_subject_with_an_alias_and_an_alias_without_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, client = aliased(monkeypatch)
    archive = read_registry(client)
    target = client_of(MemoryRegistry())
    for _ in range(2):
        run_import(target, plan_import(target, archive), tmp_path, lambda _: None)
        assert read_registry(target).subjects == archive.subjects
    assert target.schema_by_id(1).text == '"int"'
    config = target.config("orders-new")
    assert config is not None and config["alias"] == "b"


def test_import_refuses_to_write_under_an_alias(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, client = aliased(monkeypatch)
    archive = read_registry(client)
    target = client_of(MemoryRegistry())
    target.set_config("a", {"alias": "c"})
    plan = plan_import(target, archive)
    assert ["'a' is an alias of 'c' there" in each for each in plan.conflicts] == [True]
