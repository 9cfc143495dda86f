"""Optional packages that a command needs. This module imports neither Typer nor these packages."""

from __future__ import annotations

from importlib.util import find_spec

from odradek.cli.output import CommandError

SERVER_MODULES = (
    "google.protobuf",
    "grpc_tools",
    "httpx",
    "jsonschema",
    "referencing",
    "starlette",
    "uvicorn",
)
"""Modules of the extra `registry` that an instance of the registry imports."""


def need_registry_server() -> None:
    """Raise CommandError if a module of `SERVER_MODULES` is not installed."""
    missing = [name for name in SERVER_MODULES if not _is_installed(name)]
    if missing:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise CommandError(
            f"{', '.join(missing)} {is_or_are} missing: pip install 'odradek[registry]'."
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False
