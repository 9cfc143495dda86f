"""The import of an export: ids, order, repetition, conflicts and modes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from odradek.registry.archive import Archive
from odradek.registry.archive_export import read_registry
from odradek.registry.archive_import import (
    MODE_FILE,
    ImportConflict,
    ImportPlan,
    in_order,
    plan_import,
    restore_mode,
    run_import,
)
from odradek.registry.client import RegistryRefusal, RegistryUnavailable
from tests.helpers.fake_registry import ADDRESS, FakeRegistry


def reference(name: str, subject: str, version: int = 1) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": version}


@pytest.fixture
def source() -> FakeRegistry:
    """Subjects whose names are in another order than their references, and ids with gaps."""
    fake = FakeRegistry()
    fake.add("z", '"long"')
    fake.add("gap", '"null"')
    fake.add("a", '"int"', references=[reference("Z", "z")])
    fake.add("z", '"double"', references=[reference("A", "a")])
    fake.add("a", '"float"', references=[reference("Z", "z", 2)])
    del fake.subjects["gap"]
    return fake


def archive(fake: FakeRegistry) -> Archive:
    return read_registry(fake.client())


def run(target: FakeRegistry, exported: Archive, directory: Path) -> tuple[ImportPlan, list[str]]:
    lines: list[str] = []
    client = target.client()
    restore_mode(client, directory)
    plan = plan_import(client, exported)
    run_import(client, plan, directory, lines.append)
    return plan, lines


def writes(fake: FakeRegistry) -> list[str]:
    return [each for each in fake.requests if each.split()[0] in ("POST", "PUT", "DELETE")]


def test_import_gives_the_same_versions_and_ids(source: FakeRegistry, tmp_path: Path) -> None:
    target = FakeRegistry()
    plan, lines = run(target, archive(source), tmp_path)
    assert archive(target) == archive(source)
    assert (len(plan.missing), plan.present, lines) == (4, 0, [])
    assert target.modes == {}
    assert list(tmp_path.iterdir()) == []


def test_versions_follow_their_references_and_earlier_versions(source: FakeRegistry) -> None:
    exported = archive(source)
    order = [(each.subject, each.version) for each in in_order(tuple(exported.versions))]
    assert order == [("z", 1), ("a", 1), ("z", 2), ("a", 2)]


def test_cyclic_references_do_not_end_the_import(tmp_path: Path) -> None:
    source = FakeRegistry()
    source.add("a", '"int"', references=[reference("B", "b")])
    source.add("b", '"long"', references=[reference("A", "a")])
    target = FakeRegistry()
    run(target, archive(source), tmp_path)
    assert archive(target) == archive(source)


def test_second_import_writes_nothing(source: FakeRegistry, tmp_path: Path) -> None:
    target = FakeRegistry()
    run(target, archive(source), tmp_path)
    target.requests.clear()
    plan, _ = run(target, archive(source), tmp_path)
    assert (len(plan.missing), plan.present, writes(target)) == (0, 4, [])


def test_plan_writes_nothing(source: FakeRegistry) -> None:
    target = FakeRegistry()
    plan = plan_import(target.client(), archive(source))
    assert len(plan.missing) == 4
    assert writes(target) == []


def test_deleted_versions_are_deleted_after_all_registrations(tmp_path: Path) -> None:
    source = FakeRegistry()
    source.add("a", '"int"').deleted = True
    source.add("a", '"long"')
    source.add("b", '"float"').deleted = True
    target = FakeRegistry()
    plan, _ = run(target, archive(source), tmp_path)
    assert archive(target) == archive(source)
    assert [(each.subject, each.version) for each in plan.deletions] == [("b", 1), ("a", 1)]


def test_configs_and_modes_are_set_where_the_registry_has_none(tmp_path: Path) -> None:
    source, target = FakeRegistry(), FakeRegistry()
    for name in ("a", "b"):
        source.add(name, '"int"')
        source.configs[name] = {"compatibilityLevel": "FULL"}
        source.modes[name] = "READONLY"
    target.configs["b"] = {"compatibilityLevel": "NONE"}
    target.modes["b"] = "READWRITE"
    target.config = {"compatibilityLevel": "NONE"}
    plan, _ = run(target, archive(source), tmp_path)
    assert target.configs["a"] == {"compatibilityLevel": "FULL"}
    assert target.modes == {"a": "READONLY", "b": "READWRITE"}
    assert target.configs["b"] == target.config == {"compatibilityLevel": "NONE"}
    assert len(plan.notices) == 3
    again, _ = run(target, archive(source), tmp_path)
    assert again.settings == ()


def test_mode_import_of_the_source_is_not_copied(tmp_path: Path) -> None:
    source, target = FakeRegistry(), FakeRegistry()
    source.add("a", '"int"')
    source.modes["a"] = "IMPORT"
    run(target, archive(source), tmp_path)
    assert target.modes == {}


@pytest.mark.parametrize(
    ("subject", "text", "reason"),
    [
        ("z", '"bytes"', "'z' version 1 is another schema there"),
        ("other", '"bytes"', "id 1 of 'z' version 1 belongs to another schema there"),
    ],
)
def test_other_schema_under_an_id_or_version_refuses_everything(
    source: FakeRegistry, tmp_path: Path, subject: str, text: str, reason: str
) -> None:
    target = FakeRegistry()
    target.add(subject, text)
    with pytest.raises(ImportConflict, match=reason):
        run(target, archive(source), tmp_path)
    assert not [each for each in writes(target) if "/versions" in each or "PUT" in each]
    assert set(target.subjects) == {subject}


def test_version_with_another_id_is_a_conflict(source: FakeRegistry, tmp_path: Path) -> None:
    target = FakeRegistry()
    target.add("first", '"bytes"')
    target.add("z", '"long"')
    with pytest.raises(ImportConflict, match="has the id 2 there and 1 in the export"):
        run(target, archive(source), tmp_path)


def test_spaces_of_json_are_no_difference(tmp_path: Path) -> None:
    source, target = FakeRegistry(), FakeRegistry()
    source.add("a", '{"type": "int"}')
    target.add("a", '{"type":"int"}')
    plan, _ = run(target, archive(source), tmp_path)
    assert plan.present == 1


def test_schema_that_another_subject_has_keeps_its_id(tmp_path: Path) -> None:
    source, target = FakeRegistry(), FakeRegistry()
    source.add("a", '"int"')
    target.add("b", '"int"')
    run(target, archive(source), tmp_path)
    assert target.subjects["a"][0].id == target.subjects["b"][0].id == 1


def fail_registration_of(version: int) -> Any:
    def fault(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/versions") and request.method == "POST":
            body = json.loads(request.content)
            if body.get("version") == version:
                return httpx.Response(422, json={"error_code": 42201, "message": "invalid"})
        return None

    return fault


@pytest.mark.parametrize("own_mode", [None, "READONLY"])
def test_mode_is_restored_after_a_failure_and_the_import_continues(
    source: FakeRegistry, tmp_path: Path, own_mode: str | None
) -> None:
    target = FakeRegistry()
    if own_mode is not None:
        target.modes["z"] = own_mode
    target.fault = fail_registration_of(2)
    with pytest.raises(RegistryRefusal, match="invalid"):
        run(target, archive(source), tmp_path)
    assert target.modes.get("z") == own_mode
    assert sum(map(len, target.subjects.values())) == 2
    target.fault = lambda _request: None
    plan, _ = run(target, archive(source), tmp_path)
    assert (len(plan.missing), plan.present) == (2, 2)
    assert target.modes.get("z") == own_mode
    assert [each.id for each in target.subjects["a"]] == [3, 5]


def test_mode_that_cannot_be_restored_is_restored_by_the_next_run(
    source: FakeRegistry, tmp_path: Path
) -> None:
    target = FakeRegistry()
    target.modes["z"] = "READONLY"

    def lose_connection_after_import_mode(request: httpx.Request) -> None:
        if target.modes["z"] == "IMPORT":
            raise httpx.ConnectError("refused")

    target.fault = lose_connection_after_import_mode
    lines: list[str] = []
    client = target.client()
    plan = plan_import(client, archive(source))
    with pytest.raises(RegistryUnavailable):
        run_import(client, plan, tmp_path, lines.append)
    assert [line for line in lines if "The mode of 'z' was not restored" in line]
    assert target.modes == {"z": "IMPORT"}
    target.fault = lambda _request: None
    run(target, archive(source), tmp_path)
    assert target.modes == {"z": "READONLY"}
    assert not (tmp_path / MODE_FILE).exists()


def test_mode_file_of_another_registry_stops_the_import(
    source: FakeRegistry, tmp_path: Path
) -> None:
    state = {"registry": "http://other:1", "subject": "z", "mode": None}
    (tmp_path / MODE_FILE).write_text(json.dumps(state))
    with pytest.raises(ImportConflict, match="http://other:1 was killed"):
        run(FakeRegistry(), archive(source), tmp_path)
    assert (tmp_path / MODE_FILE).exists()


def test_torn_mode_file_is_removed(source: FakeRegistry, tmp_path: Path) -> None:
    (tmp_path / MODE_FILE).write_text('{"registry": "')
    target = FakeRegistry()
    run(target, archive(source), tmp_path)
    assert archive(target) == archive(source)
    assert not (tmp_path / MODE_FILE).exists()


def test_mode_file_names_the_registry_without_credentials(
    source: FakeRegistry, tmp_path: Path
) -> None:
    target = FakeRegistry()
    seen: list[str] = []

    def look(request: httpx.Request) -> None:
        if request.method == "POST":
            seen.append((tmp_path / MODE_FILE).read_text())

    target.fault = look
    run(target, archive(source), tmp_path)
    assert len(seen) == 4
    assert json.loads(seen[0]) == {"registry": ADDRESS, "subject": "z", "mode": None}


def test_version_that_is_deleted_there_is_reported(tmp_path: Path) -> None:
    source, target = FakeRegistry(), FakeRegistry()
    source.add("a", '"int"')
    target.add("a", '"int"').deleted = True
    plan, _ = run(target, archive(source), tmp_path)
    assert plan.notices == ("'a' version 1 is deleted there",)
