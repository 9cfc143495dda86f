"""`odradek schema export` and `import`: all schemas of a registry as a directory of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.client import JsonOutput
from odradek.cli.output import CommandError, print_json, print_rows
from odradek.cli.registry_access import (
    DEFAULT_REGISTRY,
    PasswordFile,
    RegistryUrl,
    RegistryUser,
    registry,
)
from odradek.cli.retry_notices import write_to_stderr

if TYPE_CHECKING:
    from odradek.registry.archive_import import ImportPlan

CONFLICTS_SHOWN_MAX = 10
"""Number of conflicts in the error line. `--dry-run` shows all."""


def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Empty directory, or one of an earlier export.")
    ],
    as_json: JsonOutput = False,
    registry_url: RegistryUrl = DEFAULT_REGISTRY,
    user: RegistryUser = None,
    password_file: PasswordFile = None,
) -> None:
    """Write all schemas of a registry into a directory: a file for each version, and an index.

    The index has ids, references, configs and modes. The same schemas give the same files.
    """
    with registry(registry_url, user, password_file) as client:
        from odradek.registry.archive import InvalidArchive, write_archive
        from odradek.registry.archive_export import read_registry

        archive = read_registry(client)
        try:
            write_archive(directory, archive)
        except InvalidArchive as error:
            raise CommandError(str(error)) from None
    count = sum(1 for _ in archive.versions)
    if as_json:
        print_json({"subjects": len(archive.subjects), "versions": count})
    else:
        print(f"exported {count} versions of {len(archive.subjects)} subjects to {directory}")


def import_(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of an export.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the versions to register, and write nothing.")
    ] = False,
    as_json: JsonOutput = False,
    registry_url: RegistryUrl = DEFAULT_REGISTRY,
    user: RegistryUser = None,
    password_file: PasswordFile = None,
) -> None:
    """Register the schemas of an export with the same ids and versions.

    Versions that the registry has are skipped, so an interrupted import continues. If an id or a
    version belongs to another schema, nothing is written. Subjects are in the mode IMPORT while
    they are written.
    """
    with registry(registry_url, user, password_file) as client:
        from odradek.registry.archive import InvalidArchive, read_archive
        from odradek.registry.archive_import import (
            ImportConflict,
            plan_import,
            restore_mode,
            run_import,
        )

        try:
            archive = read_archive(directory)
            if not dry_run:
                restore_mode(client, directory)
            plan = plan_import(client, archive)
            if not dry_run:
                run_import(client, plan, directory, write_to_stderr)
        except InvalidArchive as error:
            raise CommandError(str(error)) from None
        except ImportConflict as error:
            raise CommandError(_conflict_line(error.conflicts)) from None
    for notice in plan.notices:
        write_to_stderr(notice)
    if dry_run:
        _print_plan(plan, as_json)
    else:
        _print_summary(plan, as_json)
    if plan.conflicts:
        raise typer.Exit(1)


def _conflict_line(conflicts: list[str]) -> str:
    shown = "; ".join(conflicts[:CONFLICTS_SHOWN_MAX])
    more = len(conflicts) - CONFLICTS_SHOWN_MAX
    rest = f"; and {more} more, which --dry-run shows" if more > 0 else ""
    return f"Nothing was imported: {shown}{rest}."


def _print_plan(plan: ImportPlan, as_json: bool) -> None:
    rows: list[dict[str, object]] = [
        {"action": action, "subject": each.subject, "version": each.version, "id": each.id}
        for action, versions in (("register", plan.missing), ("delete", plan.deletions))
        for each in versions
    ]
    if as_json:
        print_json(_summary(plan) | {"steps": rows})
        return
    print_rows(rows, ["action", "subject", "version", "id"], as_json=False)
    for conflict in plan.conflicts:
        print(f"conflict: {conflict}")


def _print_summary(plan: ImportPlan, as_json: bool) -> None:
    if as_json:
        print_json(_summary(plan))
        return
    print(
        f"registered {len(plan.missing)} versions, deleted {len(plan.deletions)};"
        f" {plan.present} were present"
    )


def _summary(plan: ImportPlan) -> dict[str, object]:
    return {
        "registered": len(plan.missing),
        "deleted": len(plan.deletions),
        "present": plan.present,
        "settings": [each.name for each in plan.settings],
        "notices": list(plan.notices),
        "conflicts": list(plan.conflicts),
    }
