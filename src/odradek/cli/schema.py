"""`odradek schema`: the schemas of any registry with Confluent's REST interface."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.client import JsonOutput
from odradek.cli.output import print_json, print_rows
from odradek.cli.registry_access import (
    DEFAULT_REGISTRY,
    PasswordFile,
    RegistryUrl,
    RegistryUser,
    registry,
)
from odradek.cli.retry_notices import write_to_stderr
from odradek.cli.schema_diff import diff
from odradek.cli.schema_files import KINDS, parse_version, read_schema
from odradek.cli.schema_transfer import export, import_
from odradek.registry.errors import RegistryErrorCode

if TYPE_CHECKING:
    from odradek.registry.client import RegistryClient, StoredSchema, Verdict

app = typer.Typer(no_args_is_help=True)
app.command("diff")(diff)
app.command("export")(export)
app.command("import")(import_)

SubjectArgument = Annotated[str, typer.Argument(metavar="SUBJECT")]
SchemaFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="File with the schema; - is standard input.")
]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", help=f"{' | '.join(KINDS)} (default: by .avsc, .json or .proto)."),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A version that the schema refers to by NAME; repeatable.",
    ),
]
NormalizeOption = Annotated[
    bool, typer.Option("--normalize", help="Compare and store the normalized text.")
]
DeletedOption = Annotated[
    bool, typer.Option("--deleted", help="Include subjects and versions that are deleted softly.")
]


@app.command("list")
def list_(
    subject: Annotated[
        str | None,
        typer.Argument(metavar="[SUBJECT]", help="Show the versions of this subject."),
    ] = None,
    deleted: DeletedOption = False,
    as_json: JsonOutput = False,
    registry_url: RegistryUrl = DEFAULT_REGISTRY,
    user: RegistryUser = None,
    password_file: PasswordFile = None,
) -> None:
    """List subjects with their latest schema and compatibility, or the versions of one subject."""
    from odradek.registry.archive_export import in_parallel

    with registry(registry_url, user, password_file) as client:
        if subject is None:
            names = client.subjects(deleted=deleted)
            rows = in_parallel(lambda name: _subject_row(client, name, deleted), names)
            columns = ["subject", "versions", "latest", "id", "kind", "compatibility"]
        else:
            live = set(client.existing_versions(subject))
            numbers = client.versions(subject, deleted=deleted)
            rows = in_parallel(
                lambda number: _version_row(client, subject, number, number not in live), numbers
            )
            columns = ["version", "id", "kind", "references", "guid"]
    print_rows(rows, [*columns, "deleted"] if deleted else columns, as_json)


@app.command("get")
def get(
    schema: Annotated[str, typer.Argument(metavar="SCHEMA", help="ID, GUID or SUBJECT[:VERSION].")],
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAME", help="Format of the text, such as resolved or serialized."
        ),
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with all properties of the schema.")
    ] = False,
    registry_url: RegistryUrl = DEFAULT_REGISTRY,
    user: RegistryUser = None,
    password_file: PasswordFile = None,
) -> None:
    """Print the text of a schema. Deleted versions are found, too.

    The default of VERSION is the latest one. A subject of digits only needs a VERSION.
    """
    with registry(registry_url, user, password_file) as client:
        found = _find(client, schema, format_)
    if as_json:
        print_json(schema_fields(found))
    else:
        print(found.text)


@app.command("register")
def register(
    subject: SubjectArgument,
    file: SchemaFile,
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    normalize: NormalizeOption = False,
    as_json: JsonOutput = False,
    registry_url: RegistryUrl = DEFAULT_REGISTRY,
    user: RegistryUser = None,
    password_file: PasswordFile = None,
) -> None:
    """Register the schema of a file under a subject.

    A subject that has the schema already keeps its version and id.
    """
    schema = read_schema(file, type_, reference or [])
    with registry(registry_url, user, password_file) as client:
        id_ = client.register(subject, schema, normalize=normalize)
        found = client.lookup(subject, schema, normalize=normalize)
    if as_json:
        print_json({"subject": subject, "version": found.version, "id": id_, "guid": found.guid})
    else:
        print(f"registered {subject} version {found.version} with id {id_}")


@app.command("check")
def check(
    subject: SubjectArgument,
    file: SchemaFile,
    version: Annotated[
        str | None,
        typer.Option(
            "--version",
            metavar="VERSION",
            help="Compare with this version or latest (default: as the subject's level says).",
        ),
    ] = None,
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    normalize: NormalizeOption = False,
    as_json: JsonOutput = False,
    registry_url: RegistryUrl = DEFAULT_REGISTRY,
    user: RegistryUser = None,
    password_file: PasswordFile = None,
) -> None:
    """Check whether a subject would accept the schema of a file, and print the reasons if not.

    The exit code is 1 if the schema is incompatible.
    """
    schema = read_schema(file, type_, reference or [])
    with registry(registry_url, user, password_file) as client:
        verdict = _check(client, subject, schema, version, normalize)
    if as_json:
        print_json(
            {
                "subject": subject,
                "compatible": verdict.is_compatible,
                "reasons": list(verdict.reasons),
            }
        )
    else:
        _print_verdict(subject, file, verdict)
    if not verdict.is_compatible:
        raise typer.Exit(1)


def schema_fields(schema: StoredSchema) -> dict[str, object]:
    """Return the properties of a schema under the names of the registry's interface."""
    return {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        "guid": schema.guid,
        "references": [],
        "metadata": schema.metadata,
        "ruleSet": schema.rule_set,
        **schema.to_request(),
    }


def _subject_row(client: RegistryClient, subject: str, deleted: bool) -> dict[str, object]:
    numbers = client.versions(subject, deleted=deleted)
    latest = client.version(subject, numbers[-1], deleted=deleted)
    config = client.config(subject, effective=True) or {}
    row: dict[str, object] = {
        "subject": subject,
        "versions": len(numbers),
        "latest": latest.version,
        "id": latest.id,
        "kind": latest.kind,
        "compatibility": config.get("compatibilityLevel"),
    }
    if deleted:
        row["deleted"] = not client.existing_versions(subject)
    return row


def _version_row(
    client: RegistryClient, subject: str, number: int, is_deleted: bool
) -> dict[str, object]:
    schema = client.version(subject, number, deleted=True)
    return {
        "subject": subject,
        "version": number,
        "id": schema.id,
        "guid": schema.guid,
        "kind": schema.kind,
        "references": [f"{each.subject}:{each.version}" for each in schema.references],
        "deleted": is_deleted,
    }


def _find(client: RegistryClient, name: str, format_: str) -> StoredSchema:
    """Return the schema of an id, a guid or a version."""
    from uuid import UUID

    from odradek.registry.codec import split_version

    if name.isascii() and name.isdigit():
        return client.schema_by_id(int(name), format_=format_)
    try:
        guid = UUID(name)
    except ValueError:
        subject, version = split_version(name)
        is_deleted = version != "latest"
        return client.version(subject, version, deleted=is_deleted, format_=format_)
    return client.schema_by_guid(guid, format_=format_)


def _check(
    client: RegistryClient,
    subject: str,
    schema: StoredSchema,
    version: str | None,
    normalize: bool,
) -> Verdict:
    from odradek.registry.client import RegistryRefusal, Verdict

    number = None if version is None else parse_version(version)
    if version is None and not client.existing_versions(subject):
        write_to_stderr(f"subject '{subject}' has no versions: it would accept any valid schema")
    try:
        return client.check(subject, schema, version=number, normalize=normalize)
    except RegistryRefusal as refusal:
        # Some registries refuse a check with a subject that does not exist.
        if version is None and refusal.code == RegistryErrorCode.SUBJECT_NOT_FOUND:
            return Verdict(True, ())
        raise


def _print_verdict(subject: str, file: Path, verdict: Verdict) -> None:
    state = "compatible" if verdict.is_compatible else "incompatible"
    print(f"{file} is {state} with {subject}")
    for reason in verdict.reasons:
        print(f"  {reason}")
