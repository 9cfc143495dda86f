"""`odradek schema` against a registry in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from odradek.cli.app import app
from odradek.registry.client import Credentials, RegistryClient
from tests.helpers.fake_registry import ADDRESS, FakeRegistry, guid_of

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}],
}
ORDER_2 = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}


class SchemaCli:
    """`schema("list")` runs `odradek schema list` against the registry `fake`."""

    def __init__(self, fake: FakeRegistry) -> None:
        self.fake = fake
        self.urls: list[str] = []

    def __call__(self, *arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, ["schema", *arguments], input=input)

    def ok(self, *arguments: str, input: str | bytes | None = None) -> str:
        result = self(*arguments, input=input)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def line(self, *arguments: str) -> str:
        """Return the error line of a command that fails."""
        result = self(*arguments)
        assert result.exit_code == 1
        return str(result.exception)

    def open(
        self,
        urls: Sequence[str],
        credentials: Credentials | None,
        notify: Callable[[str], None],
    ) -> RegistryClient:
        self.urls = list(urls)
        auth = None if credentials is None else (credentials.user, credentials.password)
        http = httpx.Client(transport=httpx.MockTransport(self.fake.handle), auth=auth)
        return RegistryClient(urls, http, notify, sleep=lambda _wait_s: None)


@pytest.fixture
def schema(monkeypatch: pytest.MonkeyPatch) -> SchemaCli:
    for name in ("URL", "USER", "PASSWORD"):
        monkeypatch.delenv(f"SCHEMA_REGISTRY_{name}", raising=False)
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", ADDRESS)
    cli = SchemaCli(FakeRegistry())
    monkeypatch.setattr("odradek.registry.client.open_client", cli.open)
    return cli


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return path


def test_subjects_are_listed_with_their_latest_schema(schema: SchemaCli) -> None:
    schema.fake.add("b", '"int"')
    schema.fake.add("a", '{"type": "object"}', "JSON")
    schema.fake.add("a", '{"type": "array"}', "JSON")
    schema.fake.configs["a"] = {"compatibilityLevel": "FULL"}
    assert schema.json("list") == [
        {
            "subject": "a",
            "versions": 2,
            "latest": 2,
            "id": 3,
            "kind": "JSON",
            "compatibility": "FULL",
        },
        {
            "subject": "b",
            "versions": 1,
            "latest": 1,
            "id": 1,
            "kind": "AVRO",
            "compatibility": "BACKWARD",
        },
    ]
    assert [line.split() for line in schema.ok("list").splitlines() if "FULL" in line] == [
        ["a", "2", "2", "3", "JSON", "FULL"]
    ]


def test_versions_of_a_subject_are_listed(schema: SchemaCli) -> None:
    schema.fake.add("b", '"int"')
    first = schema.fake.add("a", '"long"', references=[{"name": "B", "subject": "b", "version": 1}])
    schema.fake.add("a", '"float"')
    rows = schema.json("list", "a")
    assert rows[0] == {
        "subject": "a",
        "version": 1,
        "id": 2,
        "guid": guid_of(first.body),
        "kind": "AVRO",
        "references": ["b:1"],
        "deleted": False,
    }
    assert [row["version"] for row in rows] == [1, 2]


def test_deleted_subjects_and_versions_are_listed_on_request(schema: SchemaCli) -> None:
    schema.fake.add("a", '"int"').deleted = True
    schema.fake.add("b", '"long"').deleted = True
    schema.fake.add("b", '"float"')
    assert [row["subject"] for row in schema.json("list")] == ["b"]
    assert [(row["subject"], row["deleted"]) for row in schema.json("list", "--deleted")] == [
        ("a", True),
        ("b", False),
    ]
    assert [row["version"] for row in schema.json("list", "b")] == [2]
    assert [row["deleted"] for row in schema.json("list", "b", "--deleted")] == [True, False]


@pytest.mark.parametrize("name", ["1", "a", "a:1", "a:latest"])
def test_schema_is_found_by_id_and_version(schema: SchemaCli, name: str) -> None:
    schema.fake.add("a", ' {"type" : "int"}')
    assert schema.ok("get", name) == ' {"type" : "int"}\n'


def test_schema_is_found_by_guid_and_its_properties_are_json(schema: SchemaCli) -> None:
    guid = guid_of(schema.fake.add("a", '"int"', metadata={"properties": {}}).body)
    assert schema.json("get", guid) == {
        "subject": None,
        "version": None,
        "id": None,
        "guid": guid,
        "schema": '"int"',
        "schemaType": "AVRO",
        "references": [],
        "metadata": {"properties": {}},
        "ruleSet": None,
    }


def test_deleted_version_is_found(schema: SchemaCli) -> None:
    schema.fake.add("a", '"int"').deleted = True
    assert schema.ok("get", "a:1") == '"int"\n'
    assert schema.line("get", "a").startswith("Subject 'a' not found (error 40401).")


def test_format_is_requested(schema: SchemaCli) -> None:
    schema.fake.add("a", '"int"')
    seen: list[str | None] = []
    schema.fake.fault = lambda request: seen.append(request.url.params.get("format"))
    schema.ok("get", "1", "--format", "resolved")
    schema.ok("get", "a:1", "--format", "resolved")
    assert seen == ["resolved", "resolved"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("nope", "Subject 'nope' not found (error 40401). `odradek schema list` shows all"),
        ("a:7", "Version 7 not found (error 40402). `odradek schema list SUBJECT` shows all"),
        ("99", "Schema 99 not found (error 40403)."),
    ],
)
def test_missing_schema_is_one_line(schema: SchemaCli, name: str, line: str) -> None:
    schema.fake.add("a", '"int"')
    assert schema.line("get", name).startswith(line)


def test_file_is_registered_once(schema: SchemaCli, order: Path) -> None:
    line = "registered orders-value version 1 with id 1\n"
    assert schema.ok("register", "orders-value", str(order)) == line
    assert schema.ok("register", "orders-value", str(order)) == line
    registered = schema.json("register", "orders-value", str(order))
    assert registered["guid"] == guid_of(schema.fake.subjects["orders-value"][0].body)
    assert schema.fake.subjects["orders-value"][0].body["schema"] == json.dumps(ORDER)


@pytest.mark.parametrize(
    ("name", "options", "kind"),
    [
        ("a.avsc", [], "AVRO"),
        ("a.json", [], "JSON"),
        ("a.PROTO", [], "PROTOBUF"),
        ("a.json", ["--type", "avro"], "AVRO"),
        ("a.txt", ["--type", "PROTOBUF"], "PROTOBUF"),
    ],
)
def test_kind_is_that_of_the_option_or_suffix(
    schema: SchemaCli, tmp_path: Path, name: str, options: list[str], kind: str
) -> None:
    (tmp_path / name).write_text("{}")
    schema.ok("register", "a", str(tmp_path / name), *options)
    assert schema.fake.subjects["a"][0].body["schemaType"] == kind


def test_references_and_normalize_are_sent(schema: SchemaCli, order: Path) -> None:
    queries: list[str] = []
    schema.fake.fault = lambda request: queries.append(request.url.query.decode())
    references = ["--reference", "geo/a.proto=geo:3", "--reference", "x?a=b=:.c:s:1"]
    schema.ok("register", "a", str(order), "--normalize", *references)
    assert schema.fake.subjects["a"][0].body["references"] == [
        {"name": "geo/a.proto", "subject": "geo", "version": 3},
        {"name": "x?a=b", "subject": ":.c:s", "version": 1},
    ]
    assert all("normalize=true" in query for query in queries)


def test_schema_may_come_from_standard_input(schema: SchemaCli) -> None:
    schema.ok("register", "a", "-", "--type", "AVRO", input='"int"')
    assert schema.fake.subjects["a"][0].body["schema"] == '"int"'


def test_compatible_schema_exits_with_0(schema: SchemaCli, order: Path) -> None:
    schema.fake.add("a", '"int"')
    assert schema.ok("check", "a", str(order)) == f"{order} is compatible with a\n"
    assert schema.json("check", "a", str(order)) == {
        "subject": "a",
        "compatible": True,
        "reasons": [],
    }


def test_incompatible_schema_exits_with_1_and_its_reasons(schema: SchemaCli, order: Path) -> None:
    schema.fake.add("a", '"int"')
    schema.fake.incompatible = ["READER_FIELD_MISSING: note", "oldSchemaVersion: 1"]
    result = schema("check", "a", str(order))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{order} is incompatible with a",
        "  READER_FIELD_MISSING: note",
        "  oldSchemaVersion: 1",
    ]
    as_json = schema("check", "a", str(order), "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["reasons"] == schema.fake.incompatible


def test_check_may_name_a_version(schema: SchemaCli, order: Path) -> None:
    schema.fake.add("a", '"int"')
    schema.ok("check", "a", str(order), "--version", "1")
    schema.ok("check", "a", str(order), "--version", "latest")
    assert [each for each in schema.fake.requests if each.startswith("POST")] == [
        "POST /compatibility/subjects/a/versions/1",
        "POST /compatibility/subjects/a/versions/latest",
    ]
    assert schema.line("check", "a", str(order), "--version", "7").startswith("Version 7 not found")


def test_subject_without_versions_accepts_any_schema_with_a_notice(
    schema: SchemaCli, order: Path
) -> None:
    result = schema("check", "new", str(order))
    assert result.exit_code == 0
    assert result.stderr == (
        "odradek: subject 'new' has no versions: it would accept any valid schema\n"
    )


def test_difference_has_the_texts_and_both_directions(schema: SchemaCli) -> None:
    schema.fake.add("a", json.dumps(ORDER))
    schema.fake.add("a", json.dumps(ORDER_2))
    shown = schema.json("diff", "a")
    assert (shown["old"], shown["new"]) == (1, 2)
    assert shown["diff"][:2] == ["--- a version 1", "+++ a version 2"]
    assert any('"note"' in line for line in shown["diff"] if line.startswith("+"))
    assert shown["forward"] == {"compatible": True, "reasons": []}
    assert not shown["backward"]["compatible"]
    assert any("note" in reason for reason in shown["backward"]["reasons"])
    assert not any("%s" in reason for reason in shown["backward"]["reasons"])


def test_difference_is_printed_for_users(schema: SchemaCli) -> None:
    schema.fake.add("a", json.dumps(ORDER))
    schema.fake.add("a", json.dumps(ORDER_2))
    lines = schema.ok("diff", "a", "2", "1").splitlines()
    assert lines[:2] == ["--- a version 2", "+++ a version 1"]
    assert "version 1 reads data of version 2 (backward)" in lines
    assert "version 2 cannot read data of version 1 (forward)" in lines


def test_equal_texts_have_no_difference(schema: SchemaCli) -> None:
    schema.fake.add("a", '{"type": "int"}')
    schema.fake.add("a", '{"type":  "int"}')
    assert schema.ok("diff", "a", "1", "2").splitlines() == [
        "the texts are equal",
        "",
        "version 2 reads data of version 1 (backward)",
        "version 1 reads data of version 2 (forward)",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["diff", "one"], "Subject 'one' has no version before 1."),
        (["diff", "one", "x"], "A version is a number or latest, not 'x'."),
        (["diff", "xml", "1", "1"], "xml version 1 is of the unknown kind XML."),
        (["diff", "bad", "1", "1"], "bad version 1 is not a valid schema: "),
    ],
)
def test_versions_without_a_difference_are_one_line(
    schema: SchemaCli, arguments: list[str], line: str
) -> None:
    schema.fake.add("one", '"int"')
    schema.fake.add("xml", "<a/>", "XML")
    schema.fake.add("bad", "{")
    assert schema.line(*arguments).startswith(line)


def test_export_is_imported_with_the_same_ids(schema: SchemaCli, tmp_path: Path) -> None:
    source = schema.fake
    source.add("a", '"int"')
    source.add("gap", '"bytes"')
    source.add("b", '"long"', references=[{"name": "A", "subject": "a", "version": 1}])
    del source.subjects["gap"]
    directory = str(tmp_path / "export")
    assert schema.ok("export", directory) == (f"exported 2 versions of 2 subjects to {directory}\n")
    schema.fake = FakeRegistry()
    dry = schema.json("import", directory, "--dry-run")
    assert [step["action"] for step in dry["steps"]] == ["register", "register"]
    assert schema.fake.subjects == {}
    assert schema.ok("import", directory) == ("registered 2 versions, deleted 0; 0 were present\n")
    assert schema.fake.subjects == source.subjects
    again = schema.json("import", directory)
    assert (again["registered"], again["present"]) == (0, 2)


def test_conflicts_refuse_the_import_and_are_all_shown_by_a_dry_run(
    schema: SchemaCli, tmp_path: Path
) -> None:
    schema.fake.add("a", '"int"')
    directory = str(tmp_path / "export")
    schema.ok("export", directory)
    schema.fake = FakeRegistry()
    schema.fake.add("b", '"long"')
    line = "Nothing was imported: id 1 of 'a' version 1 belongs to another schema there."
    assert schema.line("import", directory) == line
    dry = schema("import", directory, "--dry-run")
    assert dry.exit_code == 1
    assert "conflict: id 1 of 'a' version 1 belongs to another schema there" in dry.stdout


def test_password_comes_from_a_file_or_the_environment(
    schema: SchemaCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.fake.auth = "Basic YWxpY2U6c2VjcmV0"  # alice:secret
    file = tmp_path / "password"
    file.write_text("secret\n")
    schema.ok("list", "--user", "alice", "--password-file", str(file))
    monkeypatch.setenv("SCHEMA_REGISTRY_PASSWORD", "secret")
    schema.ok("list", "--user", "alice")
    monkeypatch.setenv("SCHEMA_REGISTRY_USER", "alice")
    schema.ok("list")
    monkeypatch.setenv("SCHEMA_REGISTRY_PASSWORD", "other-secret")
    line = schema.line("list")
    assert line.startswith("Unauthorized (error 401). Set --user, and $SCHEMA_REGISTRY_PASSWORD")
    assert "secret" not in line


def test_addresses_of_the_option_replace_the_environment(schema: SchemaCli) -> None:
    schema.ok("list", "--registry", "http://a:1,http://b:2/")
    assert schema.urls == ["http://a:1", "http://b:2"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["list", "--registry", "localhost:8081"], "--registry: the address 'localhost:8081' is"),
        (["list", "--registry", "http://u:secret@"], "--registry: the address 'http:"),
        (["list", "--user", "alice"], "--user needs $SCHEMA_REGISTRY_PASSWORD or"),
        (["list", "--password-file", "x"], "--password-file needs --user."),
        (["list", "--user", "a", "--password-file", "nope"], "--password-file nope: No such file"),
        (["register", "a", "nope.avsc"], "nope.avsc: No such file"),
        (["register", "a", "nope.txt"], "nope.txt: the suffix names no kind of schema. Add --type"),
        (["register", "a", "x", "--type", "XML"], "--type is one of AVRO, JSON, PROTOBUF, not"),
        (["register", "a", "ORDER", "--reference", "x"], "--reference takes NAME=SUBJECT:VERSION"),
        (["register", "a", "ORDER", "--reference", "x=y:latest"], "--reference takes NAME="),
        (["check", "a", "ORDER", "--version", "x"], "A version is a number or latest, not 'x'."),
        (["export", "ORDER-DIR"], "has files, but no index.json"),
        (["import", "nope"], "nope/index.json does not exist."),
    ],
)
def test_invalid_arguments_are_one_line(
    schema: SchemaCli, order: Path, arguments: list[str], line: str
) -> None:
    named = {"ORDER": str(order), "ORDER-DIR": str(order.parent)}
    shown = schema.line(*(named.get(each, each) for each in arguments))
    assert line in shown
    assert "secret" not in shown


def test_registry_that_does_not_respond_is_named_without_credentials(schema: SchemaCli) -> None:
    def fail(_request: httpx.Request) -> None:
        raise httpx.ConnectError("Connection refused")

    schema.fake.fault = fail
    result = schema("list", "--registry", "http://alice:secret@a:1")
    assert result.exit_code == 1
    assert str(result.exception) == (
        "No registry responds at http://a:1 (Connection refused). Start one with `odradek registry"
        " serve`, or set the address with --registry."
    )
    assert result.stderr == (
        "odradek: No registry responds at http://a:1 (Connection refused). The request is sent"
        " again.\n"
    )


def test_missing_extra_is_one_line(schema: SchemaCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.cli.extras._is_installed", lambda name: name != "httpx")
    assert schema.line("list") == "httpx is missing: pip install 'odradek[registry]'."


def test_address_that_is_no_registry_is_one_line(schema: SchemaCli) -> None:
    schema.fake.fault = lambda _request: httpx.Response(200, text="<html>")
    assert schema.line("list") == f"{ADDRESS}: The response of the registry is not JSON."
    schema.fake.fault = lambda _request: httpx.Response(404, text="<html>not here</html>")
    assert schema.line("list").endswith("(error 404). Is the address a schema registry?")
